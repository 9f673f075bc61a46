#include "tools/oracle/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace parapet::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double load_bits(DType dtype, std::uint16_t bits) {
  return load(&bits, dtype, 0);
}

std::uint16_t store_bits(DType dtype, double value) {
  std::uint16_t bits = 0;
  store(&bits, dtype, 0, value);
  return bits;
}

TEST(Element, KnownFloat16) {
  EXPECT_EQ(load_bits(DType::kFloat16, 0x3C00), 1.0);
  EXPECT_EQ(load_bits(DType::kFloat16, 0xC000), -2.0);
  EXPECT_EQ(load_bits(DType::kFloat16, 0x7BFF), 65504.0);
  EXPECT_EQ(load_bits(DType::kFloat16, 0x0001), std::ldexp(1.0, -24));
  EXPECT_EQ(load_bits(DType::kFloat16, 0xFC00), -kInfinity);
  EXPECT_TRUE(std::isnan(load_bits(DType::kFloat16, 0x7E00)));
}

// A bfloat16 is the upper half of a float32.
TEST(Element, EveryBfloat16) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::uint32_t wide = bits << 16;
    float expected = 0;
    std::memcpy(&expected, &wide, 4);
    const double found = load_bits(DType::kBFloat16, static_cast<std::uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found));
    } else {
      EXPECT_EQ(found, static_cast<double>(expected));
    }
  }
}

TEST(Element, StoreIsTheInverseOfLoad) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double value = load_bits(dtype, static_cast<std::uint16_t>(bits));
      if (std::isnan(value)) continue;
      EXPECT_EQ(store_bits(dtype, value), bits) << name_of(dtype);
    }
  }
}

// Midway between neighbours the even one wins; a little to a side, that side.
TEST(Element, RoundsToNearestEven) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const std::uint32_t infinity = dtype == DType::kFloat16 ? 0x7C00 : 0x7F80;
    for (std::uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      const double low = load_bits(dtype, static_cast<std::uint16_t>(bits));
      const double high = load_bits(dtype, static_cast<std::uint16_t>(bits + 1));
      const double middle = (low + high) / 2;
      EXPECT_EQ(store_bits(dtype, middle), bits % 2 == 0 ? bits : bits + 1);
      EXPECT_EQ(store_bits(dtype, std::nextafter(middle, 0.0)), bits);
      EXPECT_EQ(store_bits(dtype, -std::nextafter(middle, kInfinity)), (bits + 1) | 0x8000);
    }
  }
}

TEST(Element, BeyondTheLargestIsInfinity) {
  EXPECT_EQ(round_to(DType::kFloat16, 65519.99), 65504.0);
  EXPECT_EQ(round_to(DType::kFloat16, 65520.0), kInfinity);
  EXPECT_EQ(round_to(DType::kFloat16, -1e300), -kInfinity);
  EXPECT_EQ(round_to(DType::kBFloat16, 3.4e38), kInfinity);
  EXPECT_EQ(round_to(DType::kFloat32, 1e39), kInfinity);
  EXPECT_EQ(round_to(DType::kFloat16, 1e-300), 0.0);
  EXPECT_TRUE(std::isnan(round_to(DType::kBFloat16, std::nan(""))));
}

}  // namespace
}  // namespace parapet::oracle
