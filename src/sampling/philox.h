// Philox4x32-10: a counter-based random number generator (Salmon, Moraes, Dror, Shaw, "Parallel Random
// Numbers: As Easy as 1, 2, 3", SC11; constants from that paper, checked against the known answers of the
// Random123 library). A number is a pure function of key and counter, so no state travels with a request and
// nothing depends on batch mates.
//
// Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>

namespace mlxcel {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxCounter = std::array<uint32_t, 4>;

constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;  // golden ratio, sqrt(3) - 1
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0], product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// Which uniform number: every field is part of the key or the counter, so equal only for equal fields.
struct DrawId {
  uint64_t seed = 0;          // key
  uint32_t choice_index = 0;  // counter, word 3
  uint32_t draw_index = 0;    // counter, word 2
  int64_t position = 0;       // counter, words 0 and 1
};

// In [0, 1), 53 bits.
constexpr double uniform_draw(const DrawId& id) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto position = static_cast<uint64_t>(id.position);
  const PhiloxCounter bits = philox4x32_10({low(position), high(position), id.draw_index, id.choice_index},
                                           {low(id.seed), high(id.seed)});
  const uint64_t mantissa = (uint64_t{bits[0]} << 21) | (bits[1] >> 11);
  return static_cast<double>(mantissa) * 0x1p-53;
}

}  // namespace mlxcel
