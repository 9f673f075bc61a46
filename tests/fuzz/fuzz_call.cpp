// A call made of arbitrary bytes: shapes, strides, shared memory, metadata, options. It is refused
// with an Error, or it computes what the oracle says; it never leaves its tensors, each of which is
// in an allocation of exactly its size.

#include <fmt/format.h>
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/problem.h"
#include "api/refuse.h"
#include "parapet/attention.h"
#include "parapet/error.h"
#include "support/tensor.h"
#include "tools/check/check.h"

namespace parapet::testing {
namespace {

[[noreturn]] void fail(const std::string& reason) {
  std::fprintf(stderr, "%s\n", reason.c_str());
  std::abort();
}

std::string text(const TensorView& view) {
  return fmt::format("{} {} with strides {}", name_of(view.dtype), api::shape_text(view),
                     api::strides_text(view));
}

std::string text(const ForwardTensors& t, const ForwardOptions& o) {
  std::string text_of_all =
      fmt::format("q {}, k {}, v {}, out {}", text(t.q), text(t.k), text(t.v), text(t.out));
  const auto add = [&](const char* name, const std::optional<TensorView>& view) {
    if (!view) return;
    text_of_all += fmt::format(", {}:", name);
    for (std::int64_t i = 0; i < view->num_elements(); ++i) {
      text_of_all += fmt::format(" {}", get(*view, i));
    }
  };
  add("cu_seqlens_q", t.cu_seqlens_q);
  add("cu_seqlens_k", t.cu_seqlens_k);
  add("seqused_q", t.seqused_q);
  add("seqused_k", t.seqused_k);
  add("learnable_sink", t.learnable_sink);
  return text_of_all +
         fmt::format("; scale {}, softcap {}, causal {}, window {}, {}, splits {}, threads {}",
                     o.softmax_scale.value_or(-1), o.softcap, o.causal, o.window_left.value_or(-1),
                     o.window_right.value_or(-1), o.num_splits, o.num_threads);
}

// How many elements from its lowest to its highest a view reaches over.
std::int64_t reach(const Extents& shape, const Extents& strides) {
  std::int64_t elements = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    elements += std::abs(strides[dim]) * std::max<std::int64_t>(shape[dim] - 1, 0);
  }
  return elements;
}

class ArbitraryCall {
 public:
  ArbitraryCall(const std::uint8_t* bytes, std::size_t size) : data_(bytes, size) {
    make_tensors();
    make_options();
  }

  const ForwardTensors& tensors() const { return tensors_; }
  const ForwardOptions& options() const { return options_; }

  // Whether numbers stay in a range in which float32 and float64 agree about what overflows.
  bool is_comparable() const {
    return std::fabs(options_.softmax_scale.value_or(1)) <= 8 &&
           (options_.softcap == 0 || options_.softcap >= 0x1p-10f);
  }

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return data_.ConsumeIntegralInRange(low, high);
  }
  bool rarely() { return pick(0, 15) == 15; }
  template <class Container>
  std::size_t index_of(const Container& container) {
    return data_.ConsumeIntegralInRange<std::size_t>(0, std::size(container) - 1);
  }

  void make_tensors() {
    const std::int64_t batch = pick(0, 3);
    const std::int64_t rows_q = pick(0, 9), rows_k = pick(0, 20);
    const std::int64_t heads_k = pick(0, 3), heads = heads_k * pick(1, 3);
    const std::int64_t head_dim = pick(1, 20), head_dim_v = pick(1, 20);
    const bool packed_q = data_.ConsumeBool(), packed_k = data_.ConsumeBool();
    dtype_ = data_.PickValueInArray({DType::kFloat32, DType::kFloat16, DType::kBFloat16});

    const auto rows = [&](bool packed, std::int64_t count, std::int64_t of_heads,
                          std::int64_t dim) {
      return packed ? Extents{count, of_heads, dim} : Extents{batch, count, of_heads, dim};
    };
    tensors_.q = add(dtype_, rows(packed_q, rows_q, heads, head_dim));
    tensors_.k = add(dtype_, rows(packed_k, rows_k, heads_k, head_dim));
    tensors_.v = add(dtype_, rows(packed_k, rows_k, heads_k, head_dim_v));
    tensors_.out = share(add(dtype_, rows(packed_q, rows_q, heads, head_dim_v)));
    if (data_.ConsumeBool()) {
      const Extents shape = packed_q ? Extents{heads, rows_q} : Extents{batch, heads, rows_q};
      tensors_.lse = share(add(DType::kFloat32, shape));
    }
    if (packed_q) tensors_.cu_seqlens_q = add_lengths(batch + 1, rows_q, true);
    if (packed_k) tensors_.cu_seqlens_k = add_lengths(batch + 1, rows_k, true);
    if (data_.ConsumeBool()) tensors_.seqused_q = add_lengths(batch, rows_q, false);
    if (data_.ConsumeBool()) tensors_.seqused_k = add_lengths(batch, rows_k, false);
    if (data_.ConsumeBool()) {
      tensors_.learnable_sink = add(
          data_.PickValueInArray({DType::kFloat32, DType::kFloat16, DType::kBFloat16}), {heads});
    }
  }

  void make_options() {
    const auto number = [this] {
      return rarely() ? data_.ConsumeFloatingPoint<float>()
                      : data_.ConsumeFloatingPointInRange<float>(0, 4);
    };
    const auto window = [this]() -> std::optional<std::int64_t> {
      if (data_.ConsumeBool()) return std::nullopt;
      return rarely() ? data_.ConsumeIntegral<std::int64_t>() : pick(-1, 12);
    };
    const auto count = [this](std::int64_t most) {
      return rarely() ? data_.ConsumeIntegral<int>() : static_cast<int>(pick(0, most));
    };
    options_.check_metadata = data_.ConsumeBool();
    options_.causal = data_.ConsumeBool();
    options_.window_left = window();
    options_.window_right = window();
    if (data_.ConsumeBool()) options_.softmax_scale = number();
    if (data_.ConsumeBool()) options_.softcap = number();
    options_.num_splits = count(5);
    // Hundreds of threads would only be slow.
    options_.num_threads = count(3);
    if (options_.num_threads > 3 && options_.num_threads <= 1024) options_.num_threads = 3;
  }

  // A random tensor of about this shape.
  TensorView add(DType dtype, Extents shape) {
    if (rarely()) shape[index_of(shape)] = pick(0, 12);
    if (rarely()) shape.erase(shape.begin());
    if (rarely()) dtype = data_.PickValueInArray({DType::kFloat32, DType::kFloat16, DType::kInt32});
    Tensor& tensor = owned_.emplace_back(dtype, shape, arbitrary_strides(shape));
    tensor.fill_random(owned_.size());
    TensorView view = tensor;
    if (rarely()) view.device.type = DeviceType::kCuda;
    if (rarely()) view.data = nullptr;
    return view;
  }

  // Dimensions in C order or another, with gaps and backwards now and then; rarely, anything.
  Extents arbitrary_strides(const Extents& shape) {
    Extents strides(shape.size());
    if (rarely()) {
      for (std::int64_t& stride : strides) stride = pick(-20, 20);
      return strides;
    }
    std::vector<std::size_t> order(shape.size());
    std::iota(order.rbegin(), order.rend(), 0);
    if (order.size() > 1 && rarely()) std::swap(order[index_of(order)], order[index_of(order)]);
    std::int64_t next = rarely() ? pick(2, 3) : 1;
    for (const std::size_t dim : order) {
      strides[dim] = rarely() ? -next : next;
      next *= std::max<std::int64_t>(shape[dim], 1);
      if (rarely()) next += pick(1, 9);
    }
    return strides;
  }

  // Lengths that make sense, or any.
  TensorView add_lengths(std::int64_t count, std::int64_t rows, bool cumulative) {
    if (rarely()) count = pick(0, 6);
    std::vector<std::int32_t> values;
    std::int64_t last = 0;
    const bool garbage = rarely();
    for (std::int64_t i = 0; i < count; ++i) {
      if (garbage) {
        values.push_back(data_.ConsumeBool() ? data_.ConsumeIntegral<std::int32_t>()
                                             : static_cast<std::int32_t>(pick(-2, rows + 2)));
      } else {
        values.push_back(static_cast<std::int32_t>(cumulative && i == 0 ? 0 : pick(last, rows)));
        if (cumulative) last = values.back();
      }
    }
    return owned_.emplace_back(Tensor::int32(values));
  }

  // Now and then, puts a tensor into the memory of another one that has room for it.
  TensorView share(TensorView view) {
    if (!rarely()) return view;
    const Tensor& host = owned_[index_of(owned_)];
    const Extents shape(view.shape.begin(), view.shape.begin() + view.rank);
    const Extents strides(view.strides.begin(), view.strides.begin() + view.rank);
    const std::int64_t bytes = reach(shape, strides) * size_of(view.dtype);
    const auto room = static_cast<std::int64_t>(host.bytes().size()) - bytes;
    if (room < 0) return view;
    std::int64_t lowest = 0;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      lowest += std::min<std::int64_t>(strides[dim], 0) * std::max<std::int64_t>(shape[dim] - 1, 0);
    }
    view.data =
        const_cast<std::byte*>(host.bytes().data()) + pick(0, room) - lowest * size_of(view.dtype);
    return view;
  }

  FuzzedDataProvider data_;
  DType dtype_ = DType::kFloat32;
  std::deque<Tensor> owned_;
  ForwardTensors tensors_;
  ForwardOptions options_;
};

// The same call with q, k, v and out in C order.
class CompactCall {
 public:
  explicit CompactCall(const ForwardTensors& tensors) : tensors_(tensors) {
    for (TensorView* view : {&tensors_.q, &tensors_.k, &tensors_.v, &tensors_.out}) {
      const TensorView original = *view;
      Tensor& copy = owned_.emplace_back(
          view->dtype, Extents(view->shape.begin(), view->shape.begin() + view->rank));
      *view = copy;
      if (view == &tensors_.out) continue;
      for (std::int64_t i = 0; i < copy.size(); ++i) copy.set(i, get(original, i));
    }
  }

  const ForwardTensors& tensors() const { return tensors_; }

 private:
  ForwardTensors tensors_;
  std::deque<Tensor> owned_;
};

void check_result(const ArbitraryCall& call) {
  const CompactCall compact(call.tensors());
  const TensorView& strided_out = call.tensors().out;
  const TensorView& out = compact.tensors().out;
  forward(compact.tensors(), call.options());
  for (std::int64_t i = 0; i < out.num_elements(); ++i) {
    const double found = get(strided_out, i), expected = get(out, i);
    if (found == expected || (std::isnan(found) && std::isnan(expected))) continue;
    fail(fmt::format("{}\nelement {} of out is {}, but {} with tensors in C order",
                     text(call.tensors(), call.options()), i, found, expected));
  }

  const api::Problem problem = api::make_problem(compact.tensors(), call.options());
  if (const auto unused = tools::find_nonzero_unused_row(problem)) fail(*unused);
  if (!call.is_comparable()) return;
  const tools::Reference reference(problem, tools::sample_rows(problem, 1, 2, 1));
  const tools::Comparison comparison = reference.compare(problem);
  if (comparison.ok()) return;
  fail(fmt::format("{}\n{} of {} rows are wrong; out: {}; lse: {}",
                   text(call.tensors(), call.options()), comparison.wrong_rows, comparison.rows,
                   comparison.out ? comparison.out->text() : "not compared",
                   comparison.lse ? comparison.lse->text() : "not compared"));
}

}  // namespace
}  // namespace parapet::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const parapet::testing::ArbitraryCall call(bytes, size);
  try {
    parapet::forward(call.tensors(), call.options());
  } catch (const parapet::Error& error) {
    if (error.code() == parapet::ErrorCode::kRuntime) parapet::testing::fail(error.what());
    return 0;
  }
  parapet::testing::check_result(call);
  return 0;
}
