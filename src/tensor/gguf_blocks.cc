// GGUF block formats as affine codes. Layouts: ggml-common.h and ggml-quants.c of the ggml project (MIT),
// read for the positions of bits; scales there are products of small integers with an f16, so every s and b
// below is exact.
#include "base/error.h"
#include "tensor/weight_decoders.h"

namespace mlxcel {
namespace {

constexpr int kSmallBlock = 32;
constexpr int kSuperBlock = 256;

uint8_t byte_at(const std::byte* bytes, int index) { return std::to_integer<uint8_t>(bytes[index]); }
float f16_at(const std::byte* bytes) { return f16_to_f32(load_unaligned<uint16_t>(bytes)); }

void set_symmetric_group(const AffineOut& out, int group, float scale, int zero_point) {
  out.scale[group] = scale;
  out.offset[group] = -static_cast<float>(zero_point) * scale;
}

// 16 bytes: element i in the low nibble of byte i, element i + 16 in the high one.
void split_nibbles(const std::byte* packed, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    const uint8_t pair = byte_at(packed, i);
    codes[i] = pair & 0x0F;
    codes[i + 16] = pair >> 4;
  }
}

// The same with a table from nibble to code.
void look_up_nibbles(const std::byte* packed, const uint8_t (&table)[16], uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    const uint8_t pair = byte_at(packed, i);
    codes[i] = table[pair & 0x0F];
    codes[i + 16] = table[pair >> 4];
  }
}

// Bit i of `high` is the fifth bit of code i.
void add_fifth_bits(uint32_t high, uint8_t* codes) {
  for (int i = 0; i < kSmallBlock; ++i) codes[i] |= static_cast<uint8_t>((high >> i & 1u) << 4);
}

struct Q4_0 {
  static constexpr int kElements = kSmallBlock, kBytes = 18, kGroup = 32;
  static void decode(const std::byte* b, const AffineOut& out) {
    set_symmetric_group(out, 0, f16_at(b), 8);
    split_nibbles(b + 2, out.codes);
  }
};

struct Q4_1 {
  static constexpr int kElements = kSmallBlock, kBytes = 20, kGroup = 32;
  static void decode(const std::byte* b, const AffineOut& out) {
    out.scale[0] = f16_at(b);
    out.offset[0] = f16_at(b + 2);
    split_nibbles(b + 4, out.codes);
  }
};

struct Q5_0 {
  static constexpr int kElements = kSmallBlock, kBytes = 22, kGroup = 32;
  static void decode(const std::byte* b, const AffineOut& out) {
    set_symmetric_group(out, 0, f16_at(b), 16);
    split_nibbles(b + 6, out.codes);
    add_fifth_bits(load_unaligned<uint32_t>(b + 2), out.codes);
  }
};

struct Q5_1 {
  static constexpr int kElements = kSmallBlock, kBytes = 24, kGroup = 32;
  static void decode(const std::byte* b, const AffineOut& out) {
    out.scale[0] = f16_at(b);
    out.offset[0] = f16_at(b + 2);
    split_nibbles(b + 8, out.codes);
    add_fifth_bits(load_unaligned<uint32_t>(b + 4), out.codes);
  }
};

struct Q8_0 {
  static constexpr int kElements = kSmallBlock, kBytes = 34, kGroup = 32;
  static void decode(const std::byte* b, const AffineOut& out) {
    set_symmetric_group(out, 0, f16_at(b), 128);
    for (int i = 0; i < kSmallBlock; ++i) out.codes[i] = byte_at(b + 2, i) ^ 0x80;  // value + 128
  }
};

// Two bits at a time out of 64 bytes: group g = 8 * half + 2 * shift/2 + which 16 of the 32 bytes.
void unpack_two_bits(const std::byte* packed, uint8_t* codes) {
  for (int half = 0; half < 2; ++half) {
    for (int field = 0; field < 4; ++field) {
      for (int i = 0; i < 32; ++i) {
        codes[half * 128 + field * 32 + i] = byte_at(packed, half * 32 + i) >> (2 * field) & 3;
      }
    }
  }
}

struct Q2_K {
  static constexpr int kElements = kSuperBlock, kBytes = 84, kGroup = 16;
  static void decode(const std::byte* b, const AffineOut& out) {
    const float d = f16_at(b + 80);
    const float d_min = f16_at(b + 82);
    for (int g = 0; g < 16; ++g) {
      const uint8_t packed = byte_at(b, g);
      out.scale[g] = d * static_cast<float>(packed & 0x0F);
      out.offset[g] = -(d_min * static_cast<float>(packed >> 4));
    }
    unpack_two_bits(b + 16, out.codes);
  }
};

struct Q3_K {
  static constexpr int kElements = kSuperBlock, kBytes = 110, kGroup = 16;
  static void decode(const std::byte* b, const AffineOut& out) {
    const float d = f16_at(b + 108);
    const std::byte* scales = b + 96;  // 16 values of 6 bits: low nibbles in 8 bytes, high pairs in 4
    for (int g = 0; g < 16; ++g) {
      const int low = g < 8 ? byte_at(scales, g) & 0x0F : byte_at(scales, g - 8) >> 4;
      const int high = byte_at(scales, 8 + g % 4) >> (2 * (g / 4)) & 3;
      set_symmetric_group(out, g, d * static_cast<float>((low | high << 4) - 32), 4);
    }
    unpack_two_bits(b + 32, out.codes);
    for (int field = 0; field < 8;
         ++field) {  // bit `field` of mask byte i is the third bit of element 32*field + i
      for (int i = 0; i < 32; ++i) {
        out.codes[field * 32 + i] |= static_cast<uint8_t>((byte_at(b, i) >> field & 1) << 2);
      }
    }
  }
};

// The eight 6-bit (scale, minimum) pairs that Q4_K and Q5_K pack into 12 bytes.
void decode_k_scales(const std::byte* b, const AffineOut& out) {
  const float d = f16_at(b);
  const float d_min = f16_at(b + 2);
  const std::byte* packed = b + 4;
  for (int g = 0; g < 8; ++g) {
    int scale = 0, minimum = 0;
    if (g < 4) {
      scale = byte_at(packed, g) & 63;
      minimum = byte_at(packed, g + 4) & 63;
    } else {
      scale = (byte_at(packed, g + 4) & 0x0F) | (byte_at(packed, g - 4) >> 6) << 4;
      minimum = byte_at(packed, g + 4) >> 4 | (byte_at(packed, g) >> 6) << 4;
    }
    out.scale[g] = d * static_cast<float>(scale);
    out.offset[g] = -(d_min * static_cast<float>(minimum));
  }
}

// 32 bytes hold two groups of 32: low nibbles, then high nibbles.
void split_nibble_groups(const std::byte* packed, uint8_t* codes) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      const uint8_t both = byte_at(packed, pair * 32 + i);
      codes[pair * 64 + i] = both & 0x0F;
      codes[pair * 64 + 32 + i] = both >> 4;
    }
  }
}

struct Q4_K {
  static constexpr int kElements = kSuperBlock, kBytes = 144, kGroup = 32;
  static void decode(const std::byte* b, const AffineOut& out) {
    decode_k_scales(b, out);
    split_nibble_groups(b + 16, out.codes);
  }
};

struct Q5_K {
  static constexpr int kElements = kSuperBlock, kBytes = 176, kGroup = 32;
  static void decode(const std::byte* b, const AffineOut& out) {
    decode_k_scales(b, out);
    split_nibble_groups(b + 48, out.codes);
    for (int g = 0; g < 8; ++g) {
      for (int i = 0; i < 32; ++i) {
        out.codes[g * 32 + i] |= static_cast<uint8_t>((byte_at(b + 16, i) >> g & 1) << 4);
      }
    }
  }
};

struct Q6_K {
  static constexpr int kElements = kSuperBlock, kBytes = 210, kGroup = 16;
  static void decode(const std::byte* b, const AffineOut& out) {
    const float d = f16_at(b + 208);
    for (int g = 0; g < 16; ++g) {
      set_symmetric_group(out, g, d * static_cast<float>(static_cast<int8_t>(byte_at(b + 192, g))), 32);
    }
    for (int half = 0; half < 2; ++half) {
      const std::byte* low = b + half * 64;
      const std::byte* high = b + 128 + half * 32;
      uint8_t* codes = out.codes + half * 128;
      for (int i = 0; i < 32; ++i) {
        const uint8_t a = byte_at(low, i), c = byte_at(low, i + 32), h = byte_at(high, i);
        codes[i] = static_cast<uint8_t>((a & 0x0F) | (h & 3) << 4);
        codes[i + 32] = static_cast<uint8_t>((c & 0x0F) | (h >> 2 & 3) << 4);
        codes[i + 64] = static_cast<uint8_t>(a >> 4 | (h >> 4 & 3) << 4);
        codes[i + 96] = static_cast<uint8_t>(c >> 4 | (h >> 6) << 4);
      }
    }
  }
};

// The 16 levels of IQ4 (kvalues_iq4nl in ggml-common.h: -127 ... 113) plus 127.
constexpr int kIq4ZeroPoint = 127;
constexpr uint8_t kIq4Codes[16] = {0, 23, 44, 62, 78, 92, 105, 117, 128, 140, 152, 165, 180, 196, 216, 240};

struct IQ4_NL {
  static constexpr int kElements = kSmallBlock, kBytes = 18, kGroup = 32;
  static void decode(const std::byte* b, const AffineOut& out) {
    set_symmetric_group(out, 0, f16_at(b), kIq4ZeroPoint);
    look_up_nibbles(b + 2, kIq4Codes, out.codes);
  }
};

struct IQ4_XS {
  static constexpr int kElements = kSuperBlock, kBytes = 136, kGroup = 32;
  static void decode(const std::byte* b, const AffineOut& out) {
    const float d = f16_at(b);
    const uint32_t high = load_unaligned<uint16_t>(b + 2);
    for (int g = 0; g < 8; ++g) {
      const int low_bits = byte_at(b + 4, g / 2) >> (4 * (g % 2)) & 0x0F;
      const int high_bits = static_cast<int>(high >> (2 * g) & 3u);
      set_symmetric_group(out, g, d * static_cast<float>((low_bits | high_bits << 4) - 32), kIq4ZeroPoint);
      look_up_nibbles(b + 8 + 16 * g, kIq4Codes, out.codes + 32 * g);
    }
  }
};

struct MXFP4 {
  static constexpr int kElements = kSmallBlock, kBytes = 17, kGroup = 32;
  static void decode(const std::byte* b, const AffineOut& out) {
    set_symmetric_group(out, 0, 0.5f * e8m0_to_f32(byte_at(b, 0)), kE2m1ZeroPoint);
    look_up_nibbles(b + 1, kE2m1Codes, out.codes);
  }
};

template <class Block>
void decode_blocks(const std::byte* blocks, int64_t count, AffineOut out) {
  for (int64_t done = 0; done < count; done += Block::kElements) {
    Block::decode(blocks, out);
    blocks += Block::kBytes;
    out.codes += Block::kElements;
    out.scale += Block::kElements / Block::kGroup;
    out.offset += Block::kElements / Block::kGroup;
  }
}

}  // namespace

std::optional<AffineShape> gguf_affine_shape(GgufType type) {
  switch (type) {
    case GgufType::kQ4_0:
      return AffineShape{32, 15, true, 8};
    case GgufType::kQ4_1:
      return AffineShape{32, 15, false, 0};
    case GgufType::kQ5_0:
      return AffineShape{32, 31, true, 16};
    case GgufType::kQ5_1:
      return AffineShape{32, 31, false, 0};
    case GgufType::kQ8_0:
      return AffineShape{32, 255, true, 128};
    case GgufType::kQ2_K:
      return AffineShape{16, 3, false, 0};
    case GgufType::kQ3_K:
      return AffineShape{16, 7, true, 4};
    case GgufType::kQ4_K:
      return AffineShape{32, 15, false, 0};
    case GgufType::kQ5_K:
      return AffineShape{32, 31, false, 0};
    case GgufType::kQ6_K:
      return AffineShape{16, 63, true, 32};
    case GgufType::kIQ4_NL:
    case GgufType::kIQ4_XS:
      return AffineShape{32, 240, true, kIq4ZeroPoint};
    case GgufType::kMXFP4:
      return AffineShape{32, 24, true, kE2m1ZeroPoint};
    default:
      return std::nullopt;
  }
}

void decode_gguf_blocks(GgufType type, const std::byte* blocks, int64_t count, const AffineOut& out) {
  switch (type) {
    case GgufType::kQ4_0:
      return decode_blocks<Q4_0>(blocks, count, out);
    case GgufType::kQ4_1:
      return decode_blocks<Q4_1>(blocks, count, out);
    case GgufType::kQ5_0:
      return decode_blocks<Q5_0>(blocks, count, out);
    case GgufType::kQ5_1:
      return decode_blocks<Q5_1>(blocks, count, out);
    case GgufType::kQ8_0:
      return decode_blocks<Q8_0>(blocks, count, out);
    case GgufType::kQ2_K:
      return decode_blocks<Q2_K>(blocks, count, out);
    case GgufType::kQ3_K:
      return decode_blocks<Q3_K>(blocks, count, out);
    case GgufType::kQ4_K:
      return decode_blocks<Q4_K>(blocks, count, out);
    case GgufType::kQ5_K:
      return decode_blocks<Q5_K>(blocks, count, out);
    case GgufType::kQ6_K:
      return decode_blocks<Q6_K>(blocks, count, out);
    case GgufType::kIQ4_NL:
      return decode_blocks<IQ4_NL>(blocks, count, out);
    case GgufType::kIQ4_XS:
      return decode_blocks<IQ4_XS>(blocks, count, out);
    case GgufType::kMXFP4:
      return decode_blocks<MXFP4>(blocks, count, out);
    default:
      MLXCEL_CHECK_MSG(false, "a GGUF type without an affine form");
  }
}

}  // namespace mlxcel
