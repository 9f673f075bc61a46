#include "tools/workload/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "cpu/forward.h"
#include "support/errors.h"

namespace parapet::tools {
namespace {

using testing::expect_error;
using testing::expect_refused;

Workload parse(const std::string& text) {
  return parse_workload(text, "w.json");
}

// A valid dense file with `fields` in addition.
std::string dense(const std::string& fields) {
  return R"({"batch": 2, "num_heads": 4, "seqlen": 8, "head_dim": 16)" +
         (fields.empty() ? "" : ", " + fields) + "}";
}

std::string packed(const std::string& fields) {
  return R"({"num_heads": 4, "head_dim": 16, )" + fields + "}";
}

TEST(Workload, TheVideoCall) {
  const Workload workload = read_workload("video-dit-124f");
  EXPECT_EQ(workload.name, "video-dit-124f");
  ASSERT_EQ(workload.cases.size(), 1u);
  const Case& c = workload.cases[0];
  EXPECT_TRUE(c.packed());
  EXPECT_EQ(c.dtype, DType::kBFloat16);
  EXPECT_EQ(c.batch, 8);
  EXPECT_EQ(c.num_heads, 56);
  EXPECT_EQ(c.cu_seqlens_q.back(), 35280);
  EXPECT_EQ(c.cu_seqlens_k.back(), 116448);
  // The work is what its description says: 4 D for each pair, all of them visible.
  EXPECT_EQ(plan_of(c).flops, 56 * 4 * 128 *
                                  (4032LL * 10524 + 5040LL * 15564 + 4 * 5040LL * 17580 +
                                   5040LL * 12540 + 1008LL * 7500));
  EXPECT_EQ(bytes_of(c), 2 * 56 * 128 * (2 * 35280LL + 2 * 116448LL));
}

TEST(Workload, ThePlanHasTheTilesOfTheSimdTarget) {
  Case c = read_workload("llm-prefill-gqa").cases[0];
  for (const std::string& target : cpu::simd_targets()) {
    cpu::force_simd_target(target);
    EXPECT_EQ(plan_of(c).shape.tile_rows * c.num_heads / c.num_heads_k, cpu::panel_rows())
        << target;
  }
  cpu::force_simd_target("");
  c.num_heads_k = 1;
  c.num_heads = 1000;
  EXPECT_EQ(plan_of(c).shape.tile_rows, 1);
}

TEST(Workload, AllThatComeWithParapetAreRead) {
  ASSERT_GE(builtin_workloads().size(), 7u);
  for (const BuiltinWorkload& builtin : builtin_workloads()) {
    const Workload workload = read_workload(std::string(builtin.name));
    EXPECT_EQ(workload.name, builtin.name);
    EXPECT_FALSE(workload.source.empty());
  }
  EXPECT_EQ(read_workload("paper-grid").cases.size(), 36u);
  EXPECT_EQ(read_workload("cpu-grid").cases.size(), 7u);
}

TEST(Workload, DefaultsAndFieldsOfAllCases) {
  const Workload workload = parse(R"({"num_heads": 8, "head_dim": 64, "dtype": "float16", "grid": [
      {"batch": 1, "seqlen": 16},
      {"batch": 3, "seqlen_q": 1, "seqlen_k": 32, "num_heads_k": 2, "head_dim_v": 32,
       "dtype": "float32", "causal": true, "window_left": 4, "window_right": null, "softcap": 15,
       "softmax_scale": 0.5, "sink": true},
      {"q_lens": [1, 0, 2], "cu_seqlens_k": [0, 3, 3, 9]}]})");
  EXPECT_EQ(workload.name, "w");
  ASSERT_EQ(workload.cases.size(), 3u);
  const Case& plain = workload.cases[0];
  EXPECT_FALSE(plain.packed());
  EXPECT_EQ(plain.dtype, DType::kFloat16);
  EXPECT_EQ(plain.seqlen_q, 16);
  EXPECT_EQ(plain.seqlen_k, 16);
  EXPECT_EQ(plain.num_heads_k, 8);
  EXPECT_EQ(plain.head_dim_v, 64);
  EXPECT_FALSE(plain.options.causal);
  EXPECT_FALSE(plain.options.window_left.has_value());
  const Case& full = workload.cases[1];
  EXPECT_EQ(full.dtype, DType::kFloat32);
  EXPECT_EQ(full.num_heads_k, 2);
  EXPECT_EQ(full.head_dim_v, 32);
  EXPECT_TRUE(full.options.causal);
  EXPECT_EQ(full.options.window_left, 4);
  EXPECT_FALSE(full.options.window_right.has_value());
  EXPECT_EQ(full.options.softcap, 15.0f);
  EXPECT_EQ(full.options.softmax_scale, 0.5f);
  EXPECT_TRUE(full.sink);
  const Case& ragged = workload.cases[2];
  EXPECT_EQ(ragged.cu_seqlens_q, (std::vector<std::int32_t>{0, 1, 1, 3}));
  EXPECT_EQ(ragged.cu_seqlens_k, (std::vector<std::int32_t>{0, 3, 3, 9}));
  EXPECT_EQ(ragged.batch, 3);
}

TEST(Workload, ACaseAsJsonIsReadBack) {
  for (const char* name : {"cpu-grid", "llm-prefill-gqa", "video-dit-124f-as-printed"}) {
    for (const Case& c : read_workload(name).cases) {
      const Case again = parse(dump(to_json(c))).cases.at(0);
      EXPECT_EQ(to_json(again), to_json(c));
      EXPECT_EQ(label(again), label(c));
      EXPECT_EQ(plan_of(again).flops, plan_of(c).flops);
    }
  }
}

TEST(Workload, RefusesWithFileAndKey) {
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "w.json: expected an object, found an array"},
      {dense(R"("heads": 3)"), "w.json: unknown key \"heads\"; known are "},
      {dense(R"("causal": 1)"), "w.json: causal: expected true or false, found 1"},
      {dense(R"("dtype": "float8")"), "w.json: dtype: expected \"float32\", \"bfloat16\""},
      {dense(R"("dtype": 16)"), "w.json: dtype: expected a string, found 16"},
      {dense(R"("num_heads_k": 3)"), "num_heads_k: expected a divisor of num_heads = 4, found 3"},
      {dense(R"("num_heads_k": 0)"), "num_heads_k: expected an integer from 1"},
      {dense(R"("seqlen_q": 3)"), "w.json: seqlen_q: not beside seqlen"},
      {dense(R"("window_left": -2)"), "w.json: window_left: expected an integer from -1"},
      {dense(R"("window_left": 1.5)"), "w.json: window_left: expected an integer"},
      {dense(R"("softcap": -1)"), "w.json: softcap: expected a number of at least 0, found -1"},
      {dense(R"("softmax_scale": 1e39)"), "w.json: softmax_scale: expected a number within"},
      {dense(R"("name": 3)"), "w.json: name: expected a string"},
      {dense(R"("tflop": 3)"), "w.json: tflop: expected the work of the file's cases"},
      {dense(R"("max_seqlen_q": -1)"), "w.json: max_seqlen_q: expected an integer from 0"},
      {dense(R"("q_lens": [1])"), "found those of one"},
      {R"({"num_heads": 4, "seqlen": 8, "head_dim": 16})", "w.json: \"batch\" is missing"},
      {R"({"batch": 1, "num_heads": 4, "seqlen_q": 8, "head_dim": 16})", "\"seqlen_k\" is missing"},
      {R"({"batch": 2000000, "num_heads": 1, "seqlen": 8, "head_dim": 16})",
       "batch: expected an integer from 1 to 1048576"},
      {R"({"batch": 1000000, "num_heads": 2147483647, "seqlen": 2147483647, "head_dim": 2147483647})",
       "w.json: expected tensors of fewer than 2^63 bytes"},
      {R"({"batch": 1000000, "num_heads": 1, "seqlen": 2147483647, "head_dim": 1})",
       "and fewer than 2^63 FLOPs"},
      {packed(R"("q_lens": [1], "k_lens": [])"), "k_lens: expected at least one segment"},
      {packed(R"("q_lens": [1], "k_lens": [1, 2])"), "as many segments of k as of q, 1, found 2"},
      {packed(R"("q_lens": [1, -1], "k_lens": [1, 2])"),
       "w.json: q_lens[1]: expected an integer from 0 to 2147483646, found -1"},
      {packed(R"("q_lens": [2147483647, 1], "k_lens": [1, 2])"), "q_lens[1]: expected"},
      {packed(R"("q_lens": {"a": 1}, "k_lens": [1, 2])"), "q_lens: expected an array"},
      {packed(R"("cu_seqlens_q": [1, 2], "k_lens": [1])"),
       "cu_seqlens_q[0]: expected an integer from 0 to 0, found 1"},
      {packed(R"("cu_seqlens_q": [0, 5, 4], "k_lens": [1, 1])"),
       "cu_seqlens_q[2]: expected an integer from 5"},
      {packed(R"("cu_seqlens_q": [0, 5], "q_lens": [5], "k_lens": [1])"),
       "either q_lens or cu_seqlens_q, found both"},
      {packed(R"("q_lens": [1], "k_lens": [1], "batch": 1)"), "batch: not for a packed call"},
      {R"({"grid": []})", "grid: expected at least one case"},
      {R"({"grid": 3})", "grid: expected an array"},
      {R"({"grid": [3]})", "grid[0]: expected an object"},
      {R"({"grid": [{"batch": 1, "num_heads": 1, "seqlen": 1}]})",
       "w.json: grid[0]: \"head_dim\" is missing"},
      {R"({"head_dim": 8, "grid": [{"batch": 1, "num_heads": 1, "seqlen": 1},
                                   {"batch": 0, "num_heads": 1, "seqlen": 1}]})",
       "w.json: grid[1].batch: expected an integer from 1 to 1048576, found 0"},
      {R"({"head_dim": 8, "grid": [{"batch": 1, "num_heads": 1, "seqlen": 1, "grid": []}]})",
       "grid[0]: unknown key \"grid\""},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(text);
    expect_refused({"w.json: ", message}, [&] { parse(text); });
  }
}

TEST(Workload, AFileThatIsNotThere) {
  expect_error(ErrorCode::kRuntime, {"no-such-workload: cannot open"},
               [] { read_workload("no-such-workload"); });
}

TEST(Workload, Labels) {
  const auto label_of = [](const std::string& text) { return label(parse(text).cases.at(0)); };
  EXPECT_EQ(label_of(dense("")), "B2 S8 H4 D16");
  EXPECT_EQ(label_of(dense(R"("causal": true, "num_heads_k": 2, "head_dim_v": 8)")),
            "B2 S8 H4/2 D16/8 causal");
  EXPECT_EQ(label_of(packed(R"("q_lens": [1, 2], "k_lens": [3, 4], "window_left": 2,
                               "softcap": 30, "sink": true)")),
            "2 segments S3/7 H4 D16 window 2,inf softcap 30 sink");
}

TEST(Workload, RandomCallsHaveTheShapesAndAreTheSameForASeed) {
  Case c = parse(packed(R"("q_lens": [3, 2], "k_lens": [4, 5], "num_heads_k": 2, "head_dim_v": 8,
                           "sink": true, "causal": true)"))
               .cases.at(0);
  const Call call = random_call(c, 7);
  EXPECT_EQ(call.q.shape(), (Shape{5, 4, 16}));
  EXPECT_EQ(call.k.shape(), (Shape{9, 2, 16}));
  EXPECT_EQ(call.v.shape(), (Shape{9, 2, 8}));
  EXPECT_EQ(call.learnable_sink->shape(), (Shape{4}));
  EXPECT_EQ(call.cu_seqlens_k->elements<std::int32_t>()[2], 9);
  EXPECT_TRUE(call.options.causal);
  const Result result = call.make_result();
  EXPECT_EQ(result.out.shape(), (Shape{5, 4, 8}));
  EXPECT_EQ(result.lse->shape(), (Shape{4, 5}));
  const auto same = [](const Tensor& a, const Tensor& b) {
    return std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
  };
  EXPECT_TRUE(same(call.q, random_call(c, 7).q));
  EXPECT_FALSE(same(call.q, random_call(c, 8).q));
  EXPECT_FALSE(same(call.k, call.q));
}

}  // namespace
}  // namespace parapet::tools
