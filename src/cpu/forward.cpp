#include "cpu/forward.h"

#include <hwy/targets.h>
#include <hwy/base.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/kernels.h"
#include "parapet/error.h"

namespace parapet::cpu {
namespace {

using plan::int64;

float load(const void* data, DType dtype, int64 index) {
  if (dtype == DType::kFloat32) return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  if (dtype == DType::kFloat16) {
    const float magnitude = std::ldexp(static_cast<float>((bits & 0x3FF) | (bits & 0x7C00 ? 0x400 : 0)),
                                       std::max(1, (bits >> 10) & 31) - 25);
    const float finite = (bits & 0x7C00) != 0x7C00 ? magnitude
                         : bits & 0x3FF            ? std::numeric_limits<float>::quiet_NaN()
                                                   : std::numeric_limits<float>::infinity();
    return bits & 0x8000 ? -finite : finite;
  }
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

void store(void* data, DType dtype, int64 index, float value) {
  if (dtype == DType::kFloat32) {
    static_cast<float*>(data)[index] = value;
    return;
  }
  std::uint16_t bits;
  if (dtype == DType::kFloat16) {
    const float size = std::fabs(value);
    bits = std::signbit(value) ? 0x8000 : 0;
    if (value != value) {
      bits |= 0x7E00;
    } else if (size >= 65520.0f) {
      bits |= 0x7C00;
    } else {
      int exponent = -13;
      if (size > 0) std::frexp(size, &exponent);
      exponent = std::max(exponent, -13);
      const int digits = static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent)));
      bits = static_cast<std::uint16_t>(bits + ((exponent + 13) << 10) + digits);
    }
  } else {
    std::uint32_t wide;
    std::memcpy(&wide, &value, 4);
    bits = value != value ? std::uint16_t((wide >> 16) | 0x40)
                          : std::uint16_t((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16);
  }
  static_cast<std::uint16_t*>(data)[index] = bits;
}

int64 offset(const api::Operand& x, int64 b, int64 row, int64 head) {
  return b * x.batch_stride + row * x.row_stride + head * x.head_stride;
}

void write_row(const api::Problem& p, int64 b, int64 row, int64 head, const std::vector<float>& out,
               float lse) {
  for (int64 d = 0; d < p.head_dim_v; ++d) {
    store(p.out.data, p.dtype, offset(p.out, b, row, head) + d, out[d]);
  }
  if (p.lse) p.lse[b * p.lse_batch_stride + head * p.lse_head_stride + row * p.lse_row_stride] = lse;
}

void scalar_row(const api::Problem& p, const plan::Segment& s, int64 b, int64 head, int64 row) {
  const int64 head_k = head / (p.num_heads / p.num_heads_k);
  const plan::Range keys = plan::visible_keys(p.band, row, s.query.length, s.key.length);
  std::vector<float> scores(static_cast<std::size_t>(keys.size()));
  float maximum = -std::numeric_limits<float>::infinity();
  const float sink = p.sink ? load(p.sink, p.sink_dtype, head * p.sink_stride) : maximum;
  maximum = sink;
  for (int64 j = keys.begin; j < keys.end; ++j) {
    float sum = 0;
    const int64 q = offset(p.q, b, s.query.begin + row, head);
    const int64 k = offset(p.k, b, s.key.begin + j, head_k);
    for (int64 d = 0; d < p.head_dim; ++d) {
      sum += load(p.q.data, p.dtype, q + d) * load(p.k.data, p.dtype, k + d);
    }
    sum *= p.softmax_scale;
    if (p.softcap > 0) sum = p.softcap * std::tanh(sum / p.softcap);
    scores[j - keys.begin] = sum;
    maximum = sum > maximum || sum != sum ? sum : maximum;
  }
  std::vector<float> out(static_cast<std::size_t>(p.head_dim_v), 0.0f);
  if (maximum == -std::numeric_limits<float>::infinity()) {
    write_row(p, b, s.query.begin + row, head, out, maximum);
    return;
  }
  float denominator = p.sink ? std::exp(sink - maximum) : 0.0f;
  for (int64 j = keys.begin; j < keys.end; ++j) {
    const float weight = std::exp(scores[j - keys.begin] - maximum);
    denominator += weight;
    const int64 v = offset(p.v, b, s.key.begin + j, head_k);
    for (int64 d = 0; d < p.head_dim_v; ++d) out[d] += weight * load(p.v.data, p.dtype, v + d);
  }
  for (float& x : out) x /= denominator;
  write_row(p, b, s.query.begin + row, head, out, maximum + std::log(denominator));
}

void fast_segment(const api::Problem& p, const plan::Segment& s, int64 b) {
  const auto at = [&](const api::Operand& x, int64 row) -> void* {
    return static_cast<char*>(x.data) + offset(x, b, row, 0) * (p.dtype == DType::kFloat32 ? 4 : 2);
  };
  const auto strides = [](const api::Operand& x) {
    return AttentionCpuStrides{x.batch_stride, x.row_stride, x.head_stride};
  };
  std::vector<float> lse(static_cast<std::size_t>(p.num_heads * s.query.length));
  AttentionCpuArgs a{};
  a.q = at(p.q, s.query.begin), a.k = at(p.k, s.key.begin), a.v = at(p.v, s.key.begin);
  a.out = at(p.out, s.query.begin), a.lse = lse.data();
  a.q_strides = strides(p.q), a.k_strides = strides(p.k), a.v_strides = strides(p.v);
  a.out_strides = strides(p.out);
  a.batch = 1, a.heads = p.num_heads, a.kv_heads = p.num_heads_k;
  a.queries = s.query.length, a.keys = s.key.length, a.head_dim = p.head_dim;
  a.scale = p.softmax_scale, a.causal = p.band.right == 0;
  a.type = p.dtype == DType::kFloat32 ? 0 : p.dtype == DType::kBFloat16 ? 1 : 2;
  a.threads = p.num_threads;
  attention_cpu_forward(&a);
  for (int64 h = 0; h < p.num_heads && p.lse; ++h) {
    for (int64 i = 0; i < s.query.length; ++i) {
      p.lse[b * p.lse_batch_stride + h * p.lse_head_stride +
            (s.query.begin + i) * p.lse_row_stride] = lse[h * s.query.length + i];
    }
  }
}

}  // namespace

std::vector<plan::Segment> read_segments(const api::Problem& problem) {
  const auto extent = [](const api::Layout& layout, int64 b) {
    plan::Extent e = layout.packed() ? plan::packed_extent(layout.cu_seqlens[b],
                                                           layout.cu_seqlens[b + 1], layout.rows)
                                     : plan::dense_extent(layout.rows);
    return layout.seqused ? plan::used_extent(e, layout.seqused[b]) : e;
  };
  std::vector<plan::Segment> segments;
  for (int64 b = 0; b < problem.batch; ++b) {
    segments.push_back({extent(problem.query, b), extent(problem.key, b)});
  }
  return segments;
}

void forward(const api::Problem& p) {
  const int64 entries = p.query.packed() ? 1 : p.batch;
  const std::vector<float> zeros(static_cast<std::size_t>(p.head_dim_v), 0.0f);
  for (int64 b = 0; b < entries; ++b) {
    for (int64 i = 0; i < p.query.rows; ++i) {
      for (int64 h = 0; h < p.num_heads; ++h) {
        write_row(p, b, i, h, zeros, -std::numeric_limits<float>::infinity());
      }
    }
  }
  const bool plain = p.head_dim == p.head_dim_v && p.softcap == 0 && !p.sink &&
                     p.band.left >= p.query.rows + p.key.rows &&
                     (p.band.right == 0 || p.band.right >= p.query.rows + p.key.rows);
  const std::vector<plan::Segment> segments = read_segments(p);
  for (int64 b = 0; b < p.batch; ++b) {
    const plan::Segment& s = segments[b];
    if (plain && s.query.length > 0) {
      fast_segment(p, s, b);
      continue;
    }
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int64 h = 0; h < p.num_heads; ++h) {
      for (int64 i = 0; i < s.query.length; ++i) scalar_row(p, s, b, h, i);
    }
  }
}

std::string simd_target() { return attention_cpu_target(); }

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (auto targets = static_cast<std::uint64_t>(hwy::SupportedTargets()); targets != 0;
       targets &= targets - 1) {
    names.push_back(hwy::TargetName(static_cast<std::int64_t>(targets & -targets)));
  }
  return names;
}

void force_simd_target(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  if (name.empty()) return;
  for (auto targets = static_cast<std::uint64_t>(hwy::SupportedTargets()); targets != 0;
       targets &= targets - 1) {
    const auto target = static_cast<std::int64_t>(targets & -targets);
    if (name == hwy::TargetName(target)) return hwy::SetSupportedTargetsForTest(target);
  }
  throw Error(ErrorCode::kInvalidArgument, "simd target: this CPU has no " + name);
}

double measure_fma_rate(int threads, double seconds) {
  return attention_cpu_fma_gflops(threads, seconds);
}
double measure_read_bandwidth(int threads, double seconds) {
  return attention_cpu_read_gbytes(threads, seconds);
}

}  // namespace parapet::cpu
