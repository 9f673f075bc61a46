#include "tools/call/call.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <utility>

#include "tools/oracle/element.h"

namespace parapet::tools {
namespace {

std::optional<TensorView> view_of(const std::optional<Tensor>& tensor) {
  if (!tensor) return std::nullopt;
  return tensor->view();
}

bool has_ranks(const Call& call) {
  return call.q.view().rank == (call.cu_seqlens_q ? 3 : 4) && call.v.view().rank > 0;
}

// Spreads an index over 64 bits (the finaliser of SplitMix64).
std::uint64_t scatter(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

constexpr int kIndexBits = 12;
constexpr std::size_t kSamples = std::size_t{1} << kIndexBits;

// Normal numbers by the method of Box and Muller, encoded as `dtype`.
template <class T>
std::array<T, kSamples> normal_samples(DType dtype) {
  std::mt19937_64 engine(1);
  const auto uniform = [&] { return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53; };
  std::array<T, kSamples> samples;
  for (std::size_t i = 0; i < kSamples; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    oracle::store(samples.data(), dtype, static_cast<std::int64_t>(i),
                  radius * std::cos(2.0 * std::numbers::pi * uniform()));
  }
  return samples;
}

template <class T>
void fill_from_samples(const Tensor& tensor, std::uint64_t seed) {
  constexpr std::int64_t kPerHash = 64 / kIndexBits;
  const std::array<T, kSamples> samples = normal_samples<T>(tensor.dtype());
  const std::span<T> elements = tensor.elements<T>();
  const auto count = static_cast<std::int64_t>(elements.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t begin = 0; begin < count; begin += kPerHash) {
    std::uint64_t bits = scatter(seed + static_cast<std::uint64_t>(begin));
    for (std::int64_t i = begin; i < std::min(begin + kPerHash, count); ++i) {
      elements[i] = samples[bits % kSamples];
      bits >>= kIndexBits;
    }
  }
}

}  // namespace

Shape Call::out_shape() const {
  if (!has_ranks(*this)) return {};
  Shape shape = q.shape();
  shape.back() = v.view().shape[v.view().rank - 1];
  return shape;
}

Shape Call::lse_shape() const {
  if (!has_ranks(*this)) return {};
  const Shape& shape = q.shape();
  return cu_seqlens_q ? Shape{shape[1], shape[0]} : Shape{shape[0], shape[2], shape[1]};
}

Result Call::make_result() const {
  return {Tensor(q.dtype(), out_shape()), Tensor(DType::kFloat32, lse_shape())};
}

ForwardTensors Call::with(const Result& result) const {
  return {.q = q.view(),
          .k = k.view(),
          .v = v.view(),
          .out = result.out.view(),
          .lse = view_of(result.lse),
          .cu_seqlens_q = view_of(cu_seqlens_q),
          .cu_seqlens_k = view_of(cu_seqlens_k),
          .seqused_q = view_of(seqused_q),
          .seqused_k = view_of(seqused_k),
          .learnable_sink = view_of(learnable_sink)};
}

void fill_with_nan(const Result& result) {
  // All bits set is a NaN in every dtype.
  std::ranges::fill(result.out.bytes(), std::byte{0xFF});
  if (result.lse) std::ranges::fill(result.lse->bytes(), std::byte{0xFF});
}

void fill_normal(const Tensor& tensor, std::uint64_t seed) {
  seed = scatter(seed);
  if (size_of(tensor.dtype()) == 4) {
    fill_from_samples<std::uint32_t>(tensor, seed);
  } else {
    fill_from_samples<std::uint16_t>(tensor, seed);
  }
}

}  // namespace parapet::tools
