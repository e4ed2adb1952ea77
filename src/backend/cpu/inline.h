// Kernels are made of small functions that must disappear into their callers: a lanes operation that stays a
// call would pass its registers through memory.
#pragma once

#define MLXCEL_INLINE inline __attribute__((always_inline))
