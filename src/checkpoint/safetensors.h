// The safetensors container: 8 bytes of header length, a JSON header, then the tensors' bytes. Private to
// checkpoint/.
//
// Rules, one for every way a file is opened: the header fits the file and is at most 100 MB; each tensor has
// exactly dtype, shape and data_offsets; its size is the product of its shape; sorted by offset the tensors
// follow one another without hole or overlap from the first data byte to the last byte of the file. (The same
// as the reference implementation's, so a file that loads here loads there.)
//
// Format: the README of the safetensors project, "Format".
//
// Owner: entries view the bytes given. Threads: pure functions.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace mlxcel {

using TensorMap = std::map<std::string, TensorEntry, std::less<>>;

// Tensors of one checkpoint, all files together: more than the largest published mixture of experts has
// (140,000, with 384 experts on 60 layers), and few enough that the tables of a hostile file stay below 64
// MiB.
inline constexpr size_t kTensorsMax = 150000;
inline constexpr size_t kTensorNameBytesMax = 1024;

// Adds the tensors of a file to `tensors`. `where` is its path for errors, `file` its base name for the
// entries.
Status read_safetensors(std::span<const std::byte> bytes, const std::string& where, const std::string& file,
                        TensorMap& tensors);

// Where a Git LFS pointer stands instead of the file it points to: the error for it, with what to do.
bool is_lfs_pointer(std::span<const std::byte> bytes);
Error lfs_pointer_error(const std::string& where);

}  // namespace mlxcel
