// Packed variable-length attention: three sequences of different lengths in one call.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "parapet/parapet.h"

int main() try {
  constexpr std::int64_t kHeads = 4, kHeadDim = 64;
  std::vector<std::int32_t> cu_seqlens = {0, 5, 5, 12};  // lengths 5, 0 and 7
  const std::int64_t total = cu_seqlens.back();

  // Any numbers do; here a value depends on its sequence alone, so its average is the value itself.
  std::vector<float> q(total * kHeads * kHeadDim, 0.1f), k(q), v(q), out(q.size());
  for (std::int64_t i = 0; i < total * kHeads * kHeadDim; ++i)
    v[i] = i / (kHeads * kHeadDim) < cu_seqlens[1] ? 1.0f : 2.0f;
  std::vector<float> lse(kHeads * total);

  using parapet::DType;
  using parapet::TensorView;
  parapet::ForwardTensors tensors;
  tensors.q = TensorView::contiguous(q.data(), DType::kFloat32, {total, kHeads, kHeadDim});
  tensors.k = TensorView::contiguous(k.data(), DType::kFloat32, {total, kHeads, kHeadDim});
  tensors.v = TensorView::contiguous(v.data(), DType::kFloat32, {total, kHeads, kHeadDim});
  tensors.out = TensorView::contiguous(out.data(), DType::kFloat32, {total, kHeads, kHeadDim});
  tensors.lse = TensorView::contiguous(lse.data(), DType::kFloat32, {kHeads, total});
  tensors.cu_seqlens_q = TensorView::contiguous(cu_seqlens.data(), DType::kInt32, {4});
  tensors.cu_seqlens_k = tensors.cu_seqlens_q;

  parapet::ForwardOptions options;
  options.causal = true;
  parapet::forward(tensors, options);

  std::printf("parapet %s\n", parapet::version());
  bool right = true;
  for (std::int64_t row = 0; row < total; ++row) {
    const float found = out[row * kHeads * kHeadDim], expected = row < cu_seqlens[1] ? 1.0f : 2.0f;
    right = right && std::abs(found - expected) < 1e-5f;
    std::printf("row %2lld: out %.4f, lse %.4f\n", static_cast<long long>(row), found, lse[row]);
  }
  std::puts(right ? "each row is the average of its own sequence" : "WRONG");
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
