#include "tools/oracle/element.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace parapet::oracle {
namespace {

using plan::int64;

// A 16-bit floating-point format as IEEE 754 lays it out: sign, exponent, fraction.
struct Format {
  int exponent_bits;
  int fraction_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int max_field() const { return (1 << exponent_bits) - 1; }  // of infinity and NaN
};

Format format_of(DType dtype) {
  return dtype == DType::kFloat16 ? Format{5, 10} : Format{8, 7};
}

double decode(Format format, std::uint16_t bits) {
  const int field = (bits >> format.fraction_bits) & format.max_field();
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (field == format.max_field()) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  // Subnormal numbers have the smallest exponent and no leading one.
  const int digits = field == 0 ? fraction : fraction | 1 << format.fraction_bits;
  const int exponent = (field == 0 ? 1 : field) - format.bias() - format.fraction_bits;
  return sign * std::ldexp(digits, exponent);
}

std::uint16_t encode(Format format, double value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = format.max_field() << format.fraction_bits;
  const auto signed_bits = [&](int bits) { return static_cast<std::uint16_t>(sign | bits); };
  if (std::isnan(value)) return signed_bits(infinity | 1 << (format.fraction_bits - 1));
  if (value == 0) return signed_bits(0);
  if (std::fabs(value) >= std::ldexp(1.0, format.bias() + 1)) return signed_bits(infinity);

  const int smallest = 1 - format.bias();
  const int exponent = std::max(std::ilogb(value), smallest);
  // In units of the last digit, with the leading one; rounded to nearest, ties to even, which may
  // carry into the exponent and up to infinity.
  const double units =
      std::nearbyint(std::ldexp(std::fabs(value), format.fraction_bits - exponent));
  return signed_bits(((exponent - smallest) << format.fraction_bits) + static_cast<int>(units));
}

}  // namespace

double load(const void* data, DType dtype, int64 index) {
  if (dtype == DType::kFloat32) return static_cast<double>(static_cast<const float*>(data)[index]);
  return decode(format_of(dtype), static_cast<const std::uint16_t*>(data)[index]);
}

void store(void* data, DType dtype, int64 index, double value) {
  if (dtype == DType::kFloat32) {
    static_cast<float*>(data)[index] = static_cast<float>(value);
  } else {
    static_cast<std::uint16_t*>(data)[index] = encode(format_of(dtype), value);
  }
}

double round_to(DType dtype, double value) {
  if (dtype == DType::kFloat32) return static_cast<double>(static_cast<float>(value));
  return decode(format_of(dtype), encode(format_of(dtype), value));
}

}  // namespace parapet::oracle
