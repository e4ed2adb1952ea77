# One interface target that every module links: warnings, the floating-point rules of docs/numerics.md, sanitizers.
add_library(mlxcel_flags INTERFACE)
target_compile_options(mlxcel_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual -Wunused
  -Woverloaded-virtual -Wformat=2 -Wnull-dereference -Wimplicit-fallthrough -Wunknown-pragmas
  # The numeric contract: an FMA happens where the source says std::fma and nowhere else.
  -ffp-contract=off -fno-fast-math)
# GCC 12 reports false positives of these at -O3 in inlined standard-library code.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(mlxcel_flags INTERFACE -Wno-null-dereference -Wno-maybe-uninitialized -Wno-restrict
    -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(MLXCEL_WERROR)
  target_compile_options(mlxcel_flags INTERFACE -Werror)
endif()
if(MLXCEL_SANITIZE)
  if(MLXCEL_SANITIZE MATCHES "thread" AND MLXCEL_SANITIZE MATCHES "address")
    message(FATAL_ERROR "the thread and address sanitizers exclude each other")
  endif()
  add_compile_options(-fsanitize=${MLXCEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MLXCEL_SANITIZE})
endif()
find_program(MLXCEL_MOLD mold)
if(MLXCEL_MOLD AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  add_link_options(-fuse-ld=mold)
endif()
find_program(MLXCEL_CCACHE ccache)
if(MLXCEL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MLXCEL_CCACHE})
endif()
