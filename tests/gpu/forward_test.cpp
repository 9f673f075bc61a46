#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "cuda/kernel_store.h"
#include "cuda/kernel_unit.h"
#include "cuda/launch_plan.h"
#include "gpu/gpu_call.h"
#include "parapet/info.h"

// Calls on a GPU against the oracle: every tensor in a fence, every row compared.

namespace parapet::testing {
namespace {

using plan::int64;
using Lengths = std::vector<std::int32_t>;

ForwardOptions causal() {
  return {.causal = true};
}
ForwardOptions window(std::optional<int64> left, std::optional<int64> right) {
  return {.window_left = left, .window_right = right};
}

// The values of each option beside the plain call, then options together.
std::vector<CallSpec> grid() {
  std::vector<CallSpec> specs;
  const auto add = [&](CallSpec spec) { specs.push_back(std::move(spec)); };
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const int64 dim : {8, 16, 40, 64, 72, 96, 128, 160, 192, 256}) {
      add({.dtype = dtype, .head_dim = dim, .head_dim_v = dim});
    }
    for (const auto& [dim, dim_v] :
         {std::pair{192, 128}, {64, 256}, {128, 64}, {256, 8}, {128, 8}, {8, 256}}) {
      add({.dtype = dtype, .head_dim = dim, .head_dim_v = dim_v, .options = causal()});
    }
  }
  for (const int64 dim : {64, 128, 192, 256}) {
    const auto with = [&](ForwardOptions options) {
      add({.head_dim = dim, .head_dim_v = dim, .options = options});
      add({.head_dim = dim,
           .head_dim_v = dim,
           .q_lens = {333, 64, 40},
           .k_lens = {70, 500, 257},
           .packed = false,
           .options = options});
    };
    with(causal());
    with(window(50, 0));
    with(window(17, 30));
    with(window(std::nullopt, 5));
    with(window(100, std::nullopt));
    with(window(0, 0));
    with({.softmax_scale = 0.5f, .softcap = 3.0f});
    with({.causal = true, .window_left = 40, .softcap = 10.0f});
    add({.head_dim = dim, .head_dim_v = dim, .options = causal(), .sink = DType::kFloat32});
    add({.head_dim = dim, .head_dim_v = dim, .sink = DType::kBFloat16});
    for (const Order order : {Order::kHeadsFirst, Order::kOddRows, Order::kReversed}) {
      add({.head_dim = dim, .head_dim_v = dim, .options = causal(), .order = order});
      add({.head_dim = dim,
           .head_dim_v = dim,
           .q_lens = {100, 100},
           .k_lens = {210, 210},
           .packed = false,
           .order = order});
    }
    // Heads that share keys: one tile a head, and packed into a tile.
    add({.head_dim = dim, .head_dim_v = dim, .heads = 6, .heads_k = 2, .options = causal()});
    add({.head_dim = dim,
         .head_dim_v = dim,
         .heads = 8,
         .heads_k = 1,
         .q_lens = {1, 3, 0, 17},
         .k_lens = {400, 33, 9, 17},
         .options = causal(),
         .sink = DType::kFloat16});
    add({.head_dim = dim,
         .head_dim_v = dim,
         .heads = 8,
         .heads_k = 2,
         .q_lens = {1, 1, 1},
         .k_lens = {700, 700, 700},
         .packed = false});
    add({.head_dim = dim,
         .head_dim_v = dim,
         .q_lens = {0, 5, 0, 300, 0},
         .k_lens = {10, 0, 0, 301, 0},
         .extra_rows = 37,
         .options = causal()});
  }
  add({.q_lens = std::vector<std::int32_t>(3000, 3), .k_lens = std::vector<std::int32_t>(3000, 5)});
  add({.q_lens = {1300}, .k_lens = {2100}, .packed = false, .options = causal()});
  return specs;
}

// Has the grid's kernels compiled into the cache before the tests, by all processors at once. One
// by one, at the first call of each, they would make the tests last for minutes.
class Kernels : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!Device::problem().empty()) return;
    const cuda::GpuProperties gpu = cuda::Driver::instance().properties(0);
    std::map<std::string, kernels::ForwardConfig> configs;
    for (const CallSpec& spec : grid()) {
      const auto config =
          cuda::plan_launch(HostCall(spec, 1).problem(), gpu.shared_bytes_per_multiprocessor,
                            gpu.num_multiprocessors)
              .config;
      configs.emplace(cuda::kernel_name(config), config);
    }
    const auto arch = cuda::Arch::of_capability(gpu.major, gpu.minor);
    std::mutex mutex;
    const auto work = [&] {
      while (true) {
        std::unique_lock lock(mutex);
        if (configs.empty()) return;
        const auto next = configs.extract(configs.begin());
        lock.unlock();
        cuda::find_kernel(next.mapped(), arch);
      }
    };
    std::vector<std::jthread> threads;
    for (unsigned int i = 0; i < std::thread::hardware_concurrency(); ++i)
      threads.emplace_back(work);
  }
};
const auto* const kKernels = ::testing::AddGlobalTestEnvironment(new Kernels);

class GpuForward : public GpuTest {
 protected:
  // Runs a call and compares every row.
  static void run_and_compare(const CallSpec& spec, std::uint64_t seed, Fence fence) {
    HostCall host(spec, seed);
    const GpuCall gpu(host, fence);
    gpu.run();
    gpu.download(host);
    expect_right(host, spec.text());
    EXPECT_NO_THROW(check({DeviceType::kCuda, 0}));
  }
};

TEST_F(GpuForward, OptionsGrid) {
  std::uint64_t seed = 0;
  for (const CallSpec& spec : grid()) {
    run_and_compare(spec, seed, seed % 2 == 0 ? Fence::kBehind : Fence::kBefore);
    ++seed;
  }
}

CallSpec ragged() {
  return {.head_dim = 128,
          .head_dim_v = 128,
          .heads = 4,
          .heads_k = 2,
          .q_lens = {200, 30, 0, 270},
          .k_lens = {100, 300, 50, 350},
          .extra_rows = 20,
          .options = causal()};
}

// Bytes of out and lse after a run.
std::vector<std::byte> result_bytes(const HostCall& call) {
  std::vector<std::byte> bytes(call.out.bytes().begin(), call.out.bytes().end());
  bytes.insert(bytes.end(), call.lse.bytes().begin(), call.lse.bytes().end());
  return bytes;
}

TEST_F(GpuForward, IsTheSameEveryTimeAndFromEveryThread) {
  const HostCall inputs(ragged(), 1);
  HostCall first = HostCall(ragged(), 1);
  const GpuCall gpu(inputs, Fence::kBehind);
  gpu.run();
  gpu.download(first);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const cuda::CurrentContext current(Device::instance().context());
      const GpuCall mine(inputs, Fence::kBehind);
      HostCall result(ragged(), 1);
      for (int call = 0; call < 10; ++call) {
        mine.run();
        mine.download(result);
        EXPECT_EQ(result_bytes(result), result_bytes(first));
      }
    });
  }
}

TEST_F(GpuForward, LeavesTheCurrentContextAlone) {
  const HostCall host(ragged(), 2);
  const GpuCall gpu(host, Fence::kBehind);
  void* const before = current_context();
  gpu.run();
  EXPECT_EQ(current_context(), before);
  check({DeviceType::kCuda, 0});
  EXPECT_EQ(current_context(), before);
}

TEST_F(GpuForward, FollowsWhatItsStreamDidBefore) {
  HostCall host(ragged(), 3);
  const HostCall other(ragged(), 4);
  const GpuCall gpu(other, Fence::kBehind);
  const cuda::Stream stream;
  gpu.q.upload(host.q, stream);
  gpu.k.upload(host.k, stream);
  gpu.v.upload(host.v, stream);
  gpu.run(stream.handle());
  gpu.download(host);
  expect_right(host, "side stream");
}

TEST_F(GpuForward, GraphFollowsTheLengthsAtReplay) {
  HostCall host(ragged(), 5);
  const GpuCall gpu(host, Fence::kBehind);
  const cuda::Stream stream;
  // The first use of this kernel and of the status word, in the middle of a capture.
  const Graph graph(stream, [&] { gpu.run(stream.handle()); });
  const std::pair<Lengths, Lengths> replays[] = {
      {{0, 200, 230, 230, 500}, {0, 100, 400, 450, 800}},
      {{0, 1, 2, 3, 520}, {0, 820, 820, 820, 820}},
      {{0, 0, 0, 0, 0}, {0, 1, 2, 3, 4}},
      {{0, 500, 510, 515, 520}, {0, 0, 400, 450, 820}},
  };
  for (const auto& [cu_q, cu_k] : replays) {
    host.cu_seqlens_q.emplace(Tensor::int32(cu_q));
    host.cu_seqlens_k.emplace(Tensor::int32(cu_k));
    gpu.cu_seqlens_q->upload(*host.cu_seqlens_q);
    gpu.cu_seqlens_k->upload(*host.cu_seqlens_k);
    graph.launch(stream);
    graph.launch(stream);
    gpu.download(host);
    expect_right(host, "replay");
  }
  EXPECT_NO_THROW(check({DeviceType::kCuda, 0}));
}

TEST_F(GpuForward, TakesWorkspaceFromTheCaller) {
  HostCall host(ragged(), 6);
  GpuCall gpu(host, Fence::kBehind);
  std::vector<std::unique_ptr<FencedMemory>> given;
  gpu.options.allocate = [&](std::int64_t bytes) {
    given.push_back(std::make_unique<FencedMemory>(bytes, Fence::kBehind));
    return static_cast<void*>(given.back()->data());
  };
  gpu.run();
  gpu.download(host);
  EXPECT_EQ(given.size(), 1u);
  expect_right(host, "workspace in a fence");
}

// Nothing leaves its tensor, every row is written, and check() names the first entry that is wrong.
void run_hostile(const Lengths& cu_q, const Lengths& cu_k, const std::string& named) {
  HostCall host(ragged(), 7);
  host.cu_seqlens_q.emplace(Tensor::int32(cu_q));
  host.cu_seqlens_k.emplace(Tensor::int32(cu_k));
  for (const Fence fence : {Fence::kBehind, Fence::kBefore}) {
    const GpuCall gpu(host, fence);
    gpu.run();
    gpu.download(host);
    expect_right(host, named);
    try {
      check({DeviceType::kCuda, 0});
      ADD_FAILURE() << named << ": not noticed";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(named + ": expected"), std::string::npos)
          << error.what();
    }
  }
}

TEST_F(GpuForward, SurvivesAnyLengths) {
  constexpr std::int32_t kMax = INT32_MAX;
  constexpr std::int32_t kMin = INT32_MIN;
  const Lengths good_q{0, 200, 230, 230, 500};
  const Lengths good_k{0, 100, 400, 450, 800};
  run_hostile({1, 200, 230, 230, 500}, good_k, "cu_seqlens_q[0]");
  run_hostile({0, 200, 100, 230, 500}, good_k, "cu_seqlens_q[2]");
  run_hostile({0, 200, 230, 230, 521}, good_k, "cu_seqlens_q[4]");
  run_hostile({kMin, kMax, kMin, kMax, -1}, good_k, "cu_seqlens_q[0]");
  run_hostile({kMax, kMax, kMax, kMax, kMax}, good_k, "cu_seqlens_q[0]");
  run_hostile(good_q, {0, 100, 400, 450, 821}, "cu_seqlens_k[4]");
  run_hostile(good_q, {0, kMax, kMin, 7, 5}, "cu_seqlens_k[1]");
  run_hostile(good_q, {-5, 100, 90, 450, kMin}, "cu_seqlens_k[0]");
}

TEST_F(GpuForward, SurvivesAnyUsedLengths) {
  HostCall host({.q_lens = {100, 150}, .k_lens = {300, 200}, .packed = false}, 8);
  host.seqused_q.emplace(Tensor::int32({-7, 1000}));
  host.seqused_k.emplace(Tensor::int32({INT32_MAX, INT32_MIN}));
  const GpuCall gpu(host, Fence::kBehind);
  gpu.run();
  gpu.download(host);
  expect_right(host, "hostile seqused");
  EXPECT_THROW(check({DeviceType::kCuda, 0}), Error);
  EXPECT_NO_THROW(check({DeviceType::kCuda, 0}));
}

// What no query sees is NaN, infinite or neither: it makes no difference.
TEST_F(GpuForward, IsNotTouchedByWhatItDoesNotSee) {
  HostCall host({.head_dim = 128,
                 .head_dim_v = 128,
                 .q_lens = {100, 30},
                 .k_lens = {150, 40},
                 .packed = false,
                 .options = window(20, 0)},
                9);
  for (const auto& [batch, used] : {std::pair{0, 150}, {1, 40}}) {
    for (std::int64_t row = 0; row < 150; ++row) {
      const std::int64_t first_seen = used - (batch == 0 ? 100 : 30) - 20;
      if (first_seen <= row && row < used) continue;
      for (std::int64_t i = 0; i < 2 * 128; ++i) {
        host.k.set((batch * 150 + row) * 2 * 128 + i, std::numeric_limits<double>::quiet_NaN());
        host.v.set((batch * 150 + row) * 2 * 128 + i, std::numeric_limits<double>::infinity());
      }
    }
  }
  const GpuCall gpu(host, Fence::kBehind);
  gpu.run();
  gpu.download(host);
  expect_right(host, "poison");
}

TEST_F(GpuForward, RefusesFloat32) {
  const HostCall host({.dtype = DType::kFloat32}, 10);
  const GpuCall gpu(host, Fence::kBehind);
  try {
    gpu.run();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotImplemented);
  }
}

TEST_F(GpuForward, TellsAboutTheGpu) {
  const CudaInfo info = cuda_info();
  ASSERT_FALSE(info.gpus.empty());
  EXPECT_FALSE(info.gpus[0].name.empty());
  EXPECT_GT(info.gpus[0].memory_bytes, 1 << 30);
}

}  // namespace
}  // namespace parapet::testing
