#include "support/host_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tools/check/check.h"

namespace parapet::testing {
namespace {

std::int64_t sum(const std::vector<std::int32_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::int64_t longest(const std::vector<std::int32_t>& lengths) {
  return *std::max_element(lengths.begin(), lengths.end());
}

std::vector<std::int32_t> starts(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> result{0};
  for (const std::int32_t length : lengths) result.push_back(result.back() + length);
  return result;
}

Tensor make_operand(const CallSpec& spec, const std::vector<std::int32_t>& lengths,
                    std::int64_t heads, std::int64_t dim) {
  const auto batch = static_cast<std::int64_t>(lengths.size());
  const std::int64_t rows = spec.packed ? sum(lengths) + spec.extra_rows : longest(lengths);
  Extents shape{rows, heads, dim};
  Extents strides;
  switch (spec.order) {
    case Order::kRowsFirst:
      strides = {heads * dim, dim, 1};
      break;
    case Order::kHeadsFirst:
      strides = {dim, rows * dim, 1};
      break;
    case Order::kOddRows:
      strides = {heads * dim + 1, dim, 1};
      break;
    case Order::kReversed:
      strides = {-heads * dim, dim, 1};
      break;
  }
  if (!spec.packed) {
    shape.insert(shape.begin(), batch);
    const std::int64_t padding = spec.order == Order::kOddRows ? 1 : 0;
    strides.insert(strides.begin(), rows * (heads * dim + padding));
  }
  return Tensor(spec.dtype, shape, strides);
}

Tensor make_lse(const CallSpec& spec) {
  const auto batch = static_cast<std::int64_t>(spec.q_lens.size());
  if (spec.packed) return Tensor(DType::kFloat32, {spec.heads, sum(spec.q_lens) + spec.extra_rows});
  return Tensor(DType::kFloat32, {batch, spec.heads, longest(spec.q_lens)});
}

}  // namespace

std::string CallSpec::text() const {
  constexpr const char* kOrders[] = {"rows first", "heads first", "odd rows", "reversed"};
  const auto window = [](const std::optional<std::int64_t>& reach) {
    return reach ? fmt::format("{}", *reach) : std::string("-");
  };
  return fmt::format(
      "{} D {} Dv {} heads {}/{} q {} k {} {}{} causal {} window {},{} softcap {} sink {} {}",
      name_of(dtype), head_dim, head_dim_v, heads, heads_k, q_lens, k_lens,
      packed ? "packed" : "dense", extra_rows > 0 ? " with extra rows" : "", options.causal,
      window(options.window_left), window(options.window_right), options.softcap,
      sink ? name_of(*sink) : "none", kOrders[static_cast<int>(order)]);
}

HostCall::HostCall(const CallSpec& spec, std::uint64_t seed)
    : options(spec.options),
      q(make_operand(spec, spec.q_lens, spec.heads, spec.head_dim)),
      k(make_operand(spec, spec.k_lens, spec.heads_k, spec.head_dim)),
      v(make_operand(spec, spec.k_lens, spec.heads_k, spec.head_dim_v)),
      out(make_operand(spec, spec.q_lens, spec.heads, spec.head_dim_v)),
      lse(make_lse(spec)) {
  q.fill_random(seed);
  k.fill_random(seed + 1);
  v.fill_random(seed + 2);
  if (spec.packed) {
    cu_seqlens_q.emplace(Tensor::int32(starts(spec.q_lens)));
    cu_seqlens_k.emplace(Tensor::int32(starts(spec.k_lens)));
  } else if (std::adjacent_find(spec.q_lens.begin(), spec.q_lens.end(), std::not_equal_to<>()) !=
                 spec.q_lens.end() ||
             std::adjacent_find(spec.k_lens.begin(), spec.k_lens.end(), std::not_equal_to<>()) !=
                 spec.k_lens.end()) {
    seqused_q.emplace(Tensor::int32(spec.q_lens));
    seqused_k.emplace(Tensor::int32(spec.k_lens));
  }
  if (spec.sink) sink.emplace(Tensor::random(*spec.sink, {spec.heads}, seed + 3));
}

ForwardTensors HostCall::tensors() const {
  return tensors_of(*this);
}

api::Problem HostCall::problem() const {
  ForwardOptions unchecked = options;
  unchecked.check_metadata = false;
  return api::make_problem(tensors(), unchecked);
}

void expect_right(const HostCall& call, const std::string& what) {
  const api::Problem problem = call.problem();
  const tools::Comparison comparison =
      tools::Reference(problem, tools::all_rows(problem)).compare(problem);
  // The kernels add up weights after rounding them, as they multiply them with v.
  const double lse_rounding = problem.dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
  const bool out_ok = !comparison.out || comparison.out->share <= 1;
  const bool lse_ok =
      !comparison.lse || comparison.lse->share <= 1 || comparison.lse->error <= lse_rounding;
  EXPECT_TRUE(out_ok && lse_ok) << what << ": " << comparison.wrong_rows << " of "
                                << comparison.rows << " rows are wrong\n out: "
                                << (comparison.out ? comparison.out->text() : "")
                                << "\n lse: " << (comparison.lse ? comparison.lse->text() : "");
  if (const auto row = tools::find_nonzero_unused_row(problem)) {
    ADD_FAILURE() << what << ": " << *row;
  }
}

}  // namespace parapet::testing
