#include "cuda/launch_plan.h"

#include <gtest/gtest.h>

#include <functional>

#include "parapet/error.h"

namespace parapet::cuda {
namespace {

using plan::int64;

constexpr int kSharedBytes = 228 * 1024;
constexpr int kMultiprocessors = 24;

class LaunchPlanTest : public ::testing::Test {
 protected:
  LaunchPlanTest() {
    problem_.dtype = DType::kBFloat16;
    problem_.device = {DeviceType::kCuda, 0};
    problem_.batch = 2;
    problem_.num_heads = 8;
    problem_.num_heads_k = 8;
    problem_.head_dim = 128;
    problem_.head_dim_v = 64;
    problem_.query.rows = 1000;
    problem_.key.rows = 3000;
    problem_.q = operand(1000 * 8 * 128, 8 * 128, 128);
    problem_.k = operand(3000 * 8 * 128, 8 * 128, 128);
    problem_.v = operand(3000 * 8 * 64, 8 * 64, 64);
    problem_.out = operand(1000 * 8 * 64, 8 * 64, 64);
    problem_.softmax_scale = 0.5f;
  }

  api::Operand operand(int64 batch, int64 row, int64 head) {
    return {.data = storage_, .batch_stride = batch, .row_stride = row, .head_stride = head};
  }

  void expect_refused(const std::string& part) const {
    try {
      plan_launch(problem_, kSharedBytes, kMultiprocessors);
      ADD_FAILURE() << "not refused: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotImplemented);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  alignas(16) char storage_[64] = {};
  std::int32_t lengths_[3] = {};
  api::Problem problem_;
};

TEST_F(LaunchPlanTest, CompilesInWhatTheCallNeedsAndNoMore) {
  const kernels::ForwardConfig plain = plan_launch(problem_, kSharedBytes, kMultiprocessors).config;
  EXPECT_EQ(plain.element, kernels::Element::kBfloat16);
  EXPECT_EQ(plain.head_dim, 128);
  EXPECT_EQ(plain.head_dim_v, 64);
  EXPECT_FALSE(plain.left_edge || plain.right_edge || plain.softcap || plain.packed_heads);
  EXPECT_TRUE(plain.aligned);

  problem_.dtype = DType::kFloat16;
  problem_.band = {.left = 100, .right = 0};
  problem_.softcap = 20.0f;
  const LaunchPlan all = plan_launch(problem_, kSharedBytes, kMultiprocessors);
  EXPECT_EQ(all.config.element, kernels::Element::kFloat16);
  EXPECT_TRUE(all.config.left_edge && all.config.right_edge && all.config.softcap);
  EXPECT_EQ(all.params.band_left, 100);
  EXPECT_EQ(all.params.band_right, 0);
  EXPECT_FLOAT_EQ(all.params.score_scale, 0.5f / 20.0f);
  EXPECT_FLOAT_EQ(all.params.softcap_scale, 20.0f * 1.44269504f);
}

TEST_F(LaunchPlanTest, TreatsAReachBeyondAnyRowAsNone) {
  problem_.band = {.left = plan::kUnlimited, .right = kernels::kMaxRows};
  const LaunchPlan plan = plan_launch(problem_, kSharedBytes, kMultiprocessors);
  EXPECT_FALSE(plan.config.left_edge || plan.config.right_edge);
  EXPECT_EQ(plan.params.band_left, kernels::kMaxRows);
  EXPECT_EQ(plan.params.band_right, kernels::kMaxRows);
}

TEST_F(LaunchPlanTest, SeesEveryUnalignedAddressAndStride) {
  using Change = std::function<void(api::Operand&)>;
  const Change changes[] = {
      [](api::Operand& operand) { operand.data = static_cast<char*>(operand.data) + 2; },
      [](api::Operand& operand) { operand.batch_stride += 4; },
      [](api::Operand& operand) { operand.row_stride -= 4; },
      [](api::Operand& operand) { operand.head_stride += 1; },
      [](api::Operand& operand) { operand.row_stride = -operand.row_stride - 1; },
  };
  const auto changed = [&](api::Operand api::Problem::*operand, const Change& change) {
    api::Problem problem = problem_;
    change(problem.*operand);
    return plan_launch(problem, kSharedBytes, kMultiprocessors).config.aligned;
  };
  for (const auto operand :
       {&api::Problem::q, &api::Problem::k, &api::Problem::v, &api::Problem::out}) {
    for (const Change& change : changes) EXPECT_FALSE(changed(operand, change));
    EXPECT_TRUE(changed(operand, [](api::Operand& view) { view.row_stride = -view.row_stride; }));
  }
}

TEST_F(LaunchPlanTest, RunsAsManyBlocksAsThereIsWorkOrRoom) {
  const LaunchPlan dense = plan_launch(problem_, kSharedBytes, kMultiprocessors);
  const int64 units = 2 * plan::ceil_div(1000, dense.params.unit_rows) * 8;
  EXPECT_EQ(dense.blocks, kMultiprocessors);
  EXPECT_LT(dense.blocks, units);
  EXPECT_EQ(plan_launch(problem_, kSharedBytes, 1000).blocks, units);
  EXPECT_FALSE(dense.uses_work_list());
  EXPECT_EQ(dense.workspace_bytes(), 0);
}

TEST_F(LaunchPlanTest, ListsTheWorkWhereAnyLengthIsOnTheGpu) {
  const auto uses = [&](const std::function<void(api::Problem&)>& change) {
    api::Problem problem = problem_;
    change(problem);
    LaunchPlan plan = plan_launch(problem, kSharedBytes, kMultiprocessors);
    if (plan.uses_work_list()) {
      std::vector<char> memory(static_cast<std::size_t>(plan.workspace_bytes()));
      plan.set_workspace(memory.data());
      // The count lies within the workspace, behind the last entry.
      EXPECT_EQ(reinterpret_cast<char*>(plan.params.work_count),
                memory.data() + plan.work_list_capacity * sizeof(kernels::WorkItem));
      EXPECT_LE(reinterpret_cast<char*>(plan.params.work_count + 1), memory.data() + memory.size());
    }
    return plan.uses_work_list();
  };
  EXPECT_TRUE(uses([&](api::Problem& problem) { problem.query.cu_seqlens = lengths_; }));
  EXPECT_TRUE(uses([&](api::Problem& problem) { problem.key.cu_seqlens = lengths_; }));
  EXPECT_TRUE(uses([&](api::Problem& problem) { problem.query.seqused = lengths_; }));
  EXPECT_TRUE(uses([&](api::Problem& problem) { problem.key.seqused = lengths_; }));
  EXPECT_FALSE(uses([](api::Problem&) {}));
}

TEST_F(LaunchPlanTest, PacksHeadsWhereSegmentsAreShort) {
  problem_.num_heads_k = 2;
  EXPECT_FALSE(plan_launch(problem_, kSharedBytes, kMultiprocessors).config.packed_heads);
  problem_.query.rows = 1;
  const LaunchPlan decode = plan_launch(problem_, kSharedBytes, kMultiprocessors);
  EXPECT_TRUE(decode.config.packed_heads);
  EXPECT_EQ(decode.params.heads_per_tile, 4);
  EXPECT_EQ(decode.blocks, 2 * 2);
  problem_.num_heads_k = 8;
  EXPECT_FALSE(plan_launch(problem_, kSharedBytes, kMultiprocessors).config.packed_heads);
}

TEST_F(LaunchPlanTest, RefusesWhatTheKernelsCannotRun) {
  const api::Problem good = problem_;
  problem_.dtype = DType::kFloat32;
  expect_refused("q: expected float16 or bfloat16 on a GPU, found float32");
  problem_ = good;
  problem_.head_dim = 72 + 4;
  expect_refused("q: expected a head dim on a GPU that is a multiple of 8 up to 256, found 76");
  problem_ = good;
  problem_.head_dim_v = 264;
  expect_refused("v: expected a head dim on a GPU that is a multiple of 8 up to 256, found 264");
  problem_ = good;
  problem_.key.rows = int64{1} << 40;
  expect_refused("rows of k on a GPU");
  problem_ = good;
  problem_.num_splits = 4;
  expect_refused("num_splits: expected 0 or 1 on a GPU, found 4");
  problem_ = good;
  problem_.batch = 1'000'000'000;
  expect_refused("pieces of 256 rows");
}

}  // namespace
}  // namespace parapet::cuda
