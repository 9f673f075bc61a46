// Counts beyond 16 and 32 bits. What is large here is an index, not the work.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "api/problem.h"
#include "cpu/forward.h"
#include "support/call.h"
#include "support/check.h"
#include "tools/check/check.h"

namespace parapet {
namespace {

using testing::Call;
using testing::Tensor;

// Computes a call and compares a few rows.
void expect_some_rows_right(const ForwardTensors& tensors, const ForwardOptions& options = {}) {
  const api::Problem problem = api::make_problem(tensors, options);
  forward(tensors, options);
  std::vector<tools::RowId> ids;
  for (const plan::int64 segment : {plan::int64{0}, problem.batch / 2, problem.batch - 1}) {
    for (const plan::int64 head : {plan::int64{0}, problem.num_heads - 1}) {
      const plan::int64 rows = oracle::query_rows(problem, segment).length;
      ids.push_back({segment, head, 0});
      ids.push_back({segment, head, rows - 1});
    }
  }
  const tools::Comparison found = tools::Reference(problem, ids).compare(problem);
  EXPECT_TRUE(found.ok()) << (found.out ? found.out->text() : "");
}

TEST(Large, Batch65536) {
  const Call call({.dtype = DType::kFloat16,
                   .batch = 65536,
                   .seqlen_q = 4,
                   .seqlen_k = 4,
                   .num_heads = 2,
                   .num_heads_k = 2,
                   .head_dim = 16,
                   .head_dim_v = 16});
  expect_some_rows_right(call.tensors);
}

TEST(Large, Heads65536) {
  for (const std::int64_t num_heads_k : {1, 65536}) {
    const Call call({.batch = 1,
                     .seqlen_q = 10,
                     .seqlen_k = 10,
                     .num_heads = 65536,
                     .num_heads_k = num_heads_k,
                     .head_dim = 4,
                     .head_dim_v = 4});
    expect_some_rows_right(call.tensors, {.causal = true});
  }
}

TEST(Large, ManyShortSegments) {
  const std::vector<std::int32_t> lengths(80'000, 16);
  const Call call({.num_heads = 1,
                   .num_heads_k = 1,
                   .head_dim = 8,
                   .head_dim_v = 8,
                   .packed_q = lengths,
                   .packed_k = lengths});
  expect_some_rows_right(call.tensors, {.causal = true});
}

// Address space that costs nothing until it is touched.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Reserved() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  float* floats() const { return data_ == MAP_FAILED ? nullptr : static_cast<float*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// Rows so far apart that their offsets pass 2^31 elements.
TEST(Large, OffsetsBeyond32Bits) {
  for (const std::int64_t seqlen : {3, 20}) {
    constexpr std::int64_t kStride = std::int64_t{1} << 30;
    const Reserved memory(static_cast<std::size_t>(seqlen * kStride) * sizeof(float));
    if (!memory.floats()) GTEST_SKIP() << "cannot reserve the address space";
    Call call({.batch = 1,
               .seqlen_q = seqlen,
               .seqlen_k = seqlen,
               .num_heads = 1,
               .num_heads_k = 1,
               .head_dim = 4,
               .head_dim_v = 4});
    int place = 0;
    for (TensorView* view :
         {&call.tensors.q, &call.tensors.k, &call.tensors.v, &call.tensors.out}) {
      const auto* from = static_cast<const float*>(view->data);
      float* to = memory.floats() + 4096 * place++;
      for (std::int64_t row = 0; row < seqlen; ++row) {
        std::copy_n(from + row * 4, 4, to + row * kStride);
      }
      view->data = to;
      view->strides[1] = kStride;
    }
    const api::Problem problem = api::make_problem(call.tensors, {});
    cpu::forward(problem);
    const tools::Comparison found =
        tools::Reference(problem, tools::all_rows(problem)).compare(problem);
    EXPECT_TRUE(found.ok()) << (found.out ? found.out->text() : "");
  }
}

// More keys than 2^31, of which a window shows the last few. One row in memory stands for all of
// them.
TEST(Large, KeysBeyond32Bits) {
  for (const std::int64_t seqlen_q : {1, 40}) {
    Call call({.batch = 1, .seqlen_q = seqlen_q, .seqlen_k = 1, .num_heads = 2, .num_heads_k = 1});
    for (TensorView* view : {&call.tensors.k, &call.tensors.v}) {
      view->shape[1] = (std::int64_t{1} << 31) + 77;
      view->strides[0] = view->strides[1] = 0;
    }
    expect_some_rows_right(call.tensors, {.causal = true, .window_left = 300});
  }
}

}  // namespace
}  // namespace parapet
