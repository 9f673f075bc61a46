// What is refused about the values of cu_seqlens and seqused.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/call.h"
#include "support/errors.h"

namespace parapet {
namespace {

using testing::Call;
using testing::CallShape;
using testing::expect_refused;
using testing::Tensor;

using Lengths = std::vector<std::int32_t>;

// Three segments in 5 rows of queries and 7 of keys.
const CallShape kPacked = {.packed_q = {2, 0, 3}, .packed_k = {4, 1, 2}};

void run_packed(const Lengths& cu_seqlens_q, const Lengths& cu_seqlens_k) {
  Call call(kPacked);
  const Tensor q = Tensor::int32(cu_seqlens_q), k = Tensor::int32(cu_seqlens_k);
  call.tensors.cu_seqlens_q = q, call.tensors.cu_seqlens_k = k;
  call.run();
}

TEST(CheckLengths, CuSeqlensStartAtZero) {
  expect_refused({"cu_seqlens_q[0]: expected 0, found 1"},
                 [] { run_packed({1, 2, 2, 5}, {0, 4, 5, 7}); });
  expect_refused({"cu_seqlens_k[0]: expected 0, found -2147483648"},
                 [] { run_packed({0, 2, 2, 5}, {INT32_MIN, 4, 5, 7}); });
}

TEST(CheckLengths, CuSeqlensNeverDecrease) {
  expect_refused({"cu_seqlens_q[2]: expected at least cu_seqlens_q[1] = 3, found 2"},
                 [] { run_packed({0, 3, 2, 5}, {0, 4, 5, 7}); });
  expect_refused({"cu_seqlens_k[1]: expected at least cu_seqlens_k[0] = 0, found -1"},
                 [] { run_packed({0, 2, 2, 5}, {0, -1, 5, 7}); });
}

TEST(CheckLengths, CuSeqlensEndWithinTheTensor) {
  expect_refused({"cu_seqlens_q[3]: expected at most total_q = 5, found 6"},
                 [] { run_packed({0, 2, 2, 6}, {0, 4, 5, 7}); });
  expect_refused({"cu_seqlens_k[1]: expected at most total_k = 7, found 2147483647"},
                 [] { run_packed({0, 2, 2, 5}, {0, INT32_MAX, INT32_MAX, INT32_MAX}); });
}

TEST(CheckLengths, CuSeqlensMayEndEarly) {
  EXPECT_NO_THROW(run_packed({0, 2, 2, 4}, {0, 4, 5, 5}));
  EXPECT_NO_THROW(run_packed({0, 0, 0, 0}, {0, 0, 0, 0}));
}

TEST(CheckLengths, SequsedOfPackedSegments) {
  const auto run = [](const Lengths& used) {
    Call call(kPacked);
    const Tensor tensor = Tensor::int32(used);
    call.tensors.seqused_k = tensor;
    call.run();
  };
  EXPECT_NO_THROW(run({4, 1, 2}));
  EXPECT_NO_THROW(run({0, 0, 0}));
  expect_refused({"seqused_k[1]: expected 0 to 1, the length of its segment, found 2"},
                 [&] { run({4, 2, 2}); });
  expect_refused({"seqused_k[2]: expected 0 to 2, the length of its segment, found -1"},
                 [&] { run({4, 1, -1}); });
}

TEST(CheckLengths, SequsedOfDenseSegments) {
  const auto run = [](const Lengths& used) {
    Call call;
    const Tensor tensor = Tensor::int32(used);
    call.tensors.seqused_q = tensor;
    call.run();
  };
  EXPECT_NO_THROW(run({3, 0}));
  expect_refused({"seqused_q[0]: expected 0 to 3, the length of its segment, found 4"},
                 [&] { run({4, 0}); });
}

TEST(CheckLengths, NothingIsRefusedWithoutTheCheck) {
  Call call(kPacked);
  call.options.check_metadata = false;
  const Tensor q = Tensor::int32({9, -3, INT32_MAX, INT32_MIN});
  const Tensor k = Tensor::int32({INT32_MIN, INT32_MAX, -1, 6});
  const Tensor used = Tensor::int32({INT32_MAX, -1, INT32_MIN});
  call.tensors.cu_seqlens_q = q, call.tensors.cu_seqlens_k = k;
  call.tensors.seqused_q = used, call.tensors.seqused_k = used;
  EXPECT_NO_THROW(call.run());
}

}  // namespace
}  // namespace parapet
