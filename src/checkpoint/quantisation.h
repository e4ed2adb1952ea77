// The quantisation keys of a config.json: MLX's "quantization" and the fp8 and mxfp4 forms of
// "quantization_config". Private to checkpoint/; mlx_quantisation() itself is in checkpoint.h. Owner: none.
// Threads: pure functions.
#pragma once

#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace mlxcel {

// Every key that changes the arithmetic is one we know: an unknown method, mode or key is an error that names
// it.
Status check_quantisation_config(const Checkpoint& checkpoint);
// config.json declares fp8 weights in blocks of 128 x 128. REQUIRES: check_quantisation_config() was ok.
bool is_fp8_block_checkpoint(const Checkpoint& checkpoint);

}  // namespace mlxcel
