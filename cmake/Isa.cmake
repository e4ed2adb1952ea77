# Per-file instruction-set flags. The program itself is built for the baseline of its architecture; only files named
# here get more, and only code reached after a run-time check (backend/cpu/isa.h) may call into them.
set(MLXCEL_FLAGS_AVX2 -mavx2 -mfma -mf16c -mbmi2)
set(MLXCEL_FLAGS_AVX512 -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512vl -mavx512dq)
set(MLXCEL_FLAGS_AVX512VNNI ${MLXCEL_FLAGS_AVX512} -mavx512vnni)
set(MLXCEL_FLAGS_AMX ${MLXCEL_FLAGS_AVX512VNNI} -mamx-tile -mamx-int8)
