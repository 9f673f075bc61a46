#include "tools/check/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "api/problem.h"
#include "tools/check/difference.h"
#include "tools/oracle/element.h"
#include "tools/workload/workload.h"

namespace parapet::tools {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A call with its result, computed row by row with the plain computation, which the check has to
// accept.
class CheckTest : public ::testing::TestWithParam<DType> {
 protected:
  CheckTest() {
    Case c = parse_workload(R"({"num_heads": 4, "num_heads_k": 2, "head_dim": 24, "head_dim_v": 8,
                                "q_lens": [5, 0, 9], "k_lens": [3, 4, 40], "causal": true})",
                            "w")
                 .cases.at(0);
    c.dtype = GetParam();
    call_ = random_call(c, 1);
    call_.seqused_q = int32_tensor(std::vector<std::int32_t>{4, 0, 9});
    result_ = call_.make_result();
    problem_ = api::make_problem(call_.with(result_), call_.options);
    std::memset(result_.out.bytes().data(), 0, result_.out.bytes().size());
    for (float& lse : result_.lse->elements<float>()) lse = -kInfinity;
    for (const RowId& id : all_rows(problem_)) {
      const oracle::Row row = oracle::rounded_row(problem_, id.segment, id.head, id.row);
      const int64 tensor_row = oracle::query_rows(problem_, id.segment).begin + id.row;
      for (int64 d = 0; d < 8; ++d) set_out(tensor_row, id.head, d, row.out[d]);
      lse(tensor_row, id.head) = static_cast<float>(row.lse);
    }
  }

  int64 out_index(int64 row, int64 head, int64 dim) const {
    return row * problem_.out.row_stride + head * problem_.out.head_stride + dim;
  }
  double out(int64 row, int64 head, int64 dim) const {
    return oracle::load(problem_.out.data, problem_.dtype, out_index(row, head, dim));
  }
  void set_out(int64 row, int64 head, int64 dim, double value) {
    oracle::store(problem_.out.data, problem_.dtype, out_index(row, head, dim), value);
  }
  float& lse(int64 row, int64 head) {
    return problem_.lse[head * problem_.lse_head_stride + row * problem_.lse_row_stride];
  }
  Comparison compare() const { return Reference(problem_, all_rows(problem_)).compare(problem_); }

  Call call_;
  Result result_;
  api::Problem problem_;
};

TEST_P(CheckTest, AcceptsTheComputationInTheInputsPrecision) {
  const Comparison comparison = compare();
  EXPECT_TRUE(comparison.ok()) << comparison.out->text() << comparison.lse->text();
  EXPECT_EQ(comparison.rows, 4 * (4 + 9));
  EXPECT_LE(comparison.out->share, 1);
  EXPECT_EQ(find_nonzero_unused_row(problem_), std::nullopt);
}

TEST_P(CheckTest, NamesTheWrongElement) {
  set_out(7, 2, 3, out(7, 2, 3) + 0.1);
  const Comparison comparison = compare();
  EXPECT_FALSE(comparison.ok());
  EXPECT_EQ(comparison.wrong_rows, 1);
  EXPECT_EQ(comparison.out->row, (RowId{2, 2, 2}));
  EXPECT_EQ(comparison.out->dim, 3);
  EXPECT_NEAR(comparison.out->error, 0.1, 0.02);
  EXPECT_NE(comparison.out->text().find("segment 2, head 2, row 2, dim 3"), std::string::npos)
      << comparison.out->text();
}

TEST_P(CheckTest, NamesAWrongLse) {
  lse(6, 1) += 0.01f;
  const Comparison comparison = compare();
  EXPECT_EQ(comparison.wrong_rows, 1);
  EXPECT_EQ(comparison.lse->row, (RowId{2, 1, 1}));
  EXPECT_LE(comparison.out->share, 1);
}

TEST_P(CheckTest, NonFiniteNumbersAreWrong) {
  for (const float value : {kNaN, kInfinity, -kInfinity}) {
    const double right = out(13, 0, 0);
    set_out(13, 0, 0, value);
    EXPECT_EQ(compare().wrong_rows, 1) << value;
    EXPECT_EQ(compare().out->error, kInfinity);
    set_out(13, 0, 0, right);
    const float right_lse = lse(13, 0);
    lse(13, 0) = value;
    EXPECT_EQ(compare().wrong_rows, 1) << value;
    lse(13, 0) = right_lse;
  }
  // Row 0 of the first segment sees no key: its lse is -infinity, and a finite one is wrong.
  ASSERT_EQ(lse(0, 0), -kInfinity);
  lse(0, 0) = -50000;
  EXPECT_EQ(compare().wrong_rows, 1);
}

TEST_P(CheckTest, ARowWithoutKeysMustBeZero) {
  set_out(0, 3, 1, 1e-6);
  EXPECT_EQ(compare().wrong_rows, 1);
}

TEST_P(CheckTest, ASmallBiasIsSeen) {
  const double bias = problem_.dtype == DType::kFloat32 ? 2e-5 : 0.05;
  for (int64 d = 0; d < 8; ++d) set_out(10, 1, d, out(10, 1, d) + bias);
  EXPECT_EQ(compare().wrong_rows, 1);
}

TEST_P(CheckTest, UnusedRowsMustBeEmpty) {
  // Row 4 is the segment's, but not used.
  set_out(4, 1, 2, 0.5);
  EXPECT_TRUE(compare().ok());
  const auto found = find_nonzero_unused_row(problem_);
  ASSERT_TRUE(found.has_value());
  EXPECT_NE(found->find("row 4 of head 1"), std::string::npos) << *found;
  set_out(4, 1, 2, 0);
  lse(4, 2) = 0;
  EXPECT_TRUE(find_nonzero_unused_row(problem_).has_value());
}

TEST_P(CheckTest, SamplesHoldFirstAndLastRows) {
  const std::vector<RowId> ids = sample_rows(problem_, 2, 3, 1);
  const std::set<RowId> sampled(ids.begin(), ids.end());
  EXPECT_EQ(sampled.size(), ids.size());
  for (const int64 head : {0, 1, 3}) {
    for (const RowId& id : {RowId{0, head, 0}, {0, head, 3}, {2, head, 0}, {2, head, 8}}) {
      EXPECT_TRUE(sampled.contains(id)) << id.segment << ' ' << id.head << ' ' << id.row;
    }
  }
  for (const RowId& id : ids) {
    EXPECT_NE(id.head, 2);
    EXPECT_NE(id.segment, 1);
  }
}

TEST_P(CheckTest, NoMoreRowsAreSampledThanThereAre) {
  const std::vector<RowId> all = all_rows(problem_);
  EXPECT_EQ(sample_rows(problem_, INT64_MAX, INT64_MAX, 1), all);
  EXPECT_EQ(sample_rows(problem_, 9, problem_.num_heads, 1), all);
}

TEST_P(CheckTest, DifferencesOfTwoResults) {
  Result other = call_.make_result();
  std::memcpy(other.out.bytes().data(), result_.out.bytes().data(), other.out.bytes().size());
  std::memcpy(other.lse->bytes().data(), result_.lse->bytes().data(), other.lse->bytes().size());
  const api::Problem second = api::make_problem(call_.with(other), call_.options);
  Difference difference = find_difference(problem_, second, 2);
  EXPECT_EQ(difference.numbers, 4 * 13 * (8 + 1));
  EXPECT_EQ(difference.different, 0);
  EXPECT_TRUE(difference.worst.empty());

  set_out(6, 1, 5, out(6, 1, 5) + 1);
  set_out(8, 3, 2, out(8, 3, 2) + 2);
  lse(9, 0) += 4;
  lse(13, 0) = kNaN;
  difference = find_difference(problem_, second, 3);
  EXPECT_EQ(difference.different, 4);
  ASSERT_EQ(difference.worst.size(), 3u);
  EXPECT_EQ(difference.worst[0].row, (RowId{2, 0, 8}));  // NaN against a number
  EXPECT_EQ(difference.worst[1].row, (RowId{2, 0, 4}));
  EXPECT_EQ(difference.worst[1].dim, std::nullopt);
  EXPECT_EQ(difference.worst[2].row, (RowId{2, 3, 3}));
  EXPECT_EQ(difference.worst[2].dim, 2);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CheckTest,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace parapet::tools
