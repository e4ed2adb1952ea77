# The layers, lowest first. tests/layers reads this table and the #include lines; the CMake targets link by it.
# A module may include its own layer's folder and everything below; sideways only as listed in MLXCEL_SIDEWAYS.
set(MLXCEL_LAYER_0 base tensor)
set(MLXCEL_LAYER_1 checkpoint tokenizer chat grammar)
set(MLXCEL_LAYER_2 model kv sampling)
set(MLXCEL_LAYER_3 backend)
set(MLXCEL_LAYER_4 scheduler engine)
set(MLXCEL_LAYER_5 runtime)
set(MLXCEL_LAYER_6 serve hub client options)
set(MLXCEL_LAYER_7 apps)
set(MLXCEL_SIDEWAYS
  tensor:base scheduler:engine chat:tokenizer grammar:tokenizer model:kv)
# serve/ speaks to runtime/ only: these edges point down and are forbidden all the same.
set(MLXCEL_FORBIDDEN serve:backend serve:kv serve:model)
