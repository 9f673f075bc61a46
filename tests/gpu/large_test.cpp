#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <vector>

#include "cuda/nvrtc.h"
#include "gpu/gpu_call.h"
#include "tools/check/check.h"
#include "tools/workload/workload.h"

// Calls whose tensors are gigabytes. They are filled on the GPU with numbers that the host can make
// again one by one, so that a sample of rows can be compared with the oracle.

namespace parapet::testing {
namespace {

// Element `index` of the tensor `seed`: an eighth of an integer from -16 to 15, exact in bfloat16.
float element(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = index + seed * 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return static_cast<float>(static_cast<int>(x >> 59) - 16) * 0.125f;
}

constexpr const char* kFillUnit = R"(
struct Params { unsigned short* to; unsigned long long count, seed; };
extern "C" __global__ void fill(const __grid_constant__ Params params) {
  const unsigned long long step = 1024ull * gridDim.x;
  for (unsigned long long i = blockIdx.x * 1024ull + threadIdx.x; i < params.count; i += step) {
    unsigned long long x = i + params.seed * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    const float value = ((int)(x >> 59) - 16) * 0.125f;
    params.to[i] = (unsigned short)(__float_as_uint(value) >> 16);
  }
}
)";

class Filler {
 public:
  Filler()
      : module_(cuda::Nvrtc::instance().compile("fill", kFillUnit, {"-std=c++20", option()})),
        fill_(module_.function("fill", 0)) {}

  void operator()(void* to, std::int64_t count, std::uint64_t seed) const {
    const struct {
      void* to;
      std::int64_t count;
      std::uint64_t seed;
    } params{to, count, seed};
    fill_.launch(1024, 1024, &params, nullptr);
  }

 private:
  static std::string option() {
    const auto gpu = cuda::Driver::instance().properties(0);
    return cuda::Nvrtc::instance().target(cuda::Arch::of_capability(gpu.major, gpu.minor)).option;
  }

  cuda::Module module_;
  cuda::Function fill_;
};

constexpr std::uint64_t kSeedQ = 1, kSeedK = 2, kSeedV = 3;

// A packed bfloat16 call without options in the GPU's memory.
class LargeCall {
 public:
  LargeCall(std::int64_t heads, std::int64_t head_dim, std::vector<std::int32_t> cu_q,
            std::vector<std::int32_t> cu_k)
      : heads_(heads),
        head_dim_(head_dim),
        cu_q_(std::move(cu_q)),
        cu_k_(std::move(cu_k)),
        q_(bytes(cu_q_.back()), Fence::kBehind),
        k_(bytes(cu_k_.back()), Fence::kBehind),
        v_(bytes(cu_k_.back()), Fence::kBehind),
        out_(bytes(cu_q_.back()), Fence::kBehind),
        device_cu_q_(Tensor::int32(cu_q_), Fence::kBehind),
        device_cu_k_(Tensor::int32(cu_k_), Fence::kBehind) {
    const Filler fill;
    fill(q_.data(), elements(cu_q_.back()), kSeedQ);
    fill(k_.data(), elements(cu_k_.back()), kSeedK);
    fill(v_.data(), elements(cu_k_.back()), kSeedV);
    fill(out_.data(), elements(cu_q_.back()), 99);
    Device::instance().context().synchronize();
  }

  void run() const {
    forward({.q = view(q_, cu_q_.back()),
             .k = view(k_, cu_k_.back()),
             .v = view(v_, cu_k_.back()),
             .out = view(out_, cu_q_.back()),
             .cu_seqlens_q = device_cu_q_.view(),
             .cu_seqlens_k = device_cu_k_.view()});
    check({DeviceType::kCuda, 0});
  }

  // Compares the rows `rows` of a segment's queries, as one head computes them.
  void expect_right(std::size_t segment, std::int64_t head, const std::vector<std::int64_t>& rows) {
    const std::int64_t first_key = cu_k_[segment];
    const std::int64_t num_keys = cu_k_[segment + 1] - first_key;
    const auto num_rows = static_cast<std::int64_t>(rows.size());
    Tensor q(DType::kBFloat16, {1, num_rows, 1, head_dim_});
    Tensor k(DType::kBFloat16, {1, num_keys, 1, head_dim_});
    Tensor v(DType::kBFloat16, {1, num_keys, 1, head_dim_});
    Tensor out(DType::kBFloat16, {1, num_rows, 1, head_dim_});
    for (std::int64_t i = 0; i < num_rows; ++i) {
      const std::int64_t row = cu_q_[segment] + rows[i];
      make_row(q, i, kSeedQ, row, head);
      copy_to_host(static_cast<std::byte*>(out.view().data) + 2 * i * head_dim_,
                   out_.data() + 2 * (row * heads_ + head) * head_dim_, 2 * head_dim_);
    }
    for (std::int64_t i = 0; i < num_keys; ++i) {
      make_row(k, i, kSeedK, first_key + i, head);
      make_row(v, i, kSeedV, first_key + i, head);
    }
    const api::Problem problem = api::make_problem({.q = q, .k = k, .v = v, .out = out}, {});
    const auto comparison = tools::Reference(problem, tools::all_rows(problem)).compare(problem);
    EXPECT_TRUE(comparison.ok()) << "segment " << segment << " head " << head << ": "
                                 << (comparison.out ? comparison.out->text() : "");
  }

 private:
  std::int64_t elements(std::int64_t rows) const { return rows * heads_ * head_dim_; }
  std::size_t bytes(std::int64_t rows) const {
    return 2 * static_cast<std::size_t>(elements(rows));
  }
  TensorView view(const FencedMemory& memory, std::int64_t rows) const {
    return TensorView::contiguous(memory.data(), DType::kBFloat16, {rows, heads_, head_dim_},
                                  {DeviceType::kCuda, 0});
  }
  void make_row(const Tensor& to, std::int64_t row, std::uint64_t seed, std::int64_t from_row,
                std::int64_t head) const {
    auto* values = static_cast<std::uint16_t*>(to.view().data) + row * head_dim_;
    const std::int64_t from = (from_row * heads_ + head) * head_dim_;
    for (std::int64_t i = 0; i < head_dim_; ++i) {
      values[i] =
          static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(element(seed, from + i)) >> 16);
    }
  }

  std::int64_t heads_;
  std::int64_t head_dim_;
  std::vector<std::int32_t> cu_q_;
  std::vector<std::int32_t> cu_k_;
  FencedMemory q_, k_, v_, out_;
  GpuTensor device_cu_q_, device_cu_k_;
};

class GpuLarge : public GpuTest {};

// The call that other libraries crash on, the one with a segment longer than max_seqlen says, and
// the model's longest.
TEST_F(GpuLarge, VideoTransformer) {
  for (const char* name : {"video-dit-124f", "video-dit-124f-as-printed", "video-dit-345f"}) {
    SCOPED_TRACE(name);
    const tools::Case c = tools::read_workload(name).cases.at(0);
    LargeCall call(c.num_heads, c.head_dim, c.cu_seqlens_q, c.cu_seqlens_k);
    call.run();
    for (std::size_t segment = 0; segment + 1 < c.cu_seqlens_q.size(); ++segment) {
      const std::int64_t rows = c.cu_seqlens_q[segment + 1] - c.cu_seqlens_q[segment];
      const auto head = static_cast<std::int64_t>(segment * 13) % c.num_heads;
      call.expect_right(segment, head, {0, rows / 2, rows - 1});
    }
    call.expect_right(0, 0, {0});
    call.expect_right(c.cu_seqlens_q.size() - 2, c.num_heads - 1, {0});
  }
}

// Any number of segments, as one after the other they pass or crash elsewhere.
TEST_F(GpuLarge, OneToSixteenSegments) {
  for (std::int32_t count = 1; count <= 16; ++count) {
    SCOPED_TRACE(count);
    std::vector<std::int32_t> cu_q{0}, cu_k{0};
    for (std::int32_t i = 0; i < count; ++i) {
      cu_q.push_back(cu_q.back() + 500 + 37 * i);
      cu_k.push_back(cu_k.back() + 900 + 113 * (i % 5));
    }
    LargeCall call(8, 128, cu_q, cu_k);
    call.run();
    for (std::int32_t i = 0; i < count; ++i)
      call.expect_right(i, i % 8, {0, 255, 256, 499 + 37 * i});
  }
}

TEST_F(GpuLarge, ManySequences) {
  std::vector<std::int32_t> starts;
  for (std::int32_t i = 0; i <= 80'000; ++i) starts.push_back(16 * i);
  LargeCall call(4, 64, starts, starts);
  call.run();
  for (const std::size_t segment : {0, 1, 777, 39'999, 79'998, 79'999}) {
    call.expect_right(segment, 3, {0, 7, 15});
  }
}

// Keys beyond 2^31 elements from the tensor's start; the segments before them have no queries.
TEST_F(GpuLarge, MoreElementsThan32BitsCount) {
  constexpr std::int32_t kRows = 2'200'000;
  static_assert(std::int64_t{kRows} * 8 * 128 > std::int64_t{1} << 31);
  LargeCall call(8, 128, {0, 0, 300}, {0, kRows - 1000, kRows});
  call.run();
  call.expect_right(1, 7, {0, 150, 299});
  call.expect_right(1, 0, {299});
}

}  // namespace
}  // namespace parapet::testing
