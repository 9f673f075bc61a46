#include "cuda/forward.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <thread>

#include "cuda/fake/driver.h"
#include "cuda/kernel_cache.h"
#include "cuda/kernel_store.h"
#include "cuda/launch_plan.h"
#include "cuda/memory.h"
#include "cuda/scoped.h"
#include "parapet/error.h"
#include "parapet/info.h"

// The path from a problem to its launches, over a driver that writes down what it is asked. Each
// case runs in a process of its own, since the driver is opened once in a process.

namespace parapet::cuda {
namespace {

using parapet::testing::fake_capture_mode;
using parapet::testing::fake_contexts;
using parapet::testing::FakeDriver;
using parapet::testing::ScopedEnvironment;
using parapet::testing::TemporaryDirectory;

void in_a_process_of_its_own(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "failures are above";
}

std::string message_of(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

void expect_message(const std::function<void()>& call, ErrorCode code, const std::string& part) {
  const std::string message = message_of(call, code);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

constexpr int kSharedBytes = 228 * 1024;  // of the fake GPU
constexpr int kMultiprocessors = 132;

class CudaForwardTest : public ::testing::Test {
 protected:
  CudaForwardTest() {
    // Packed, ragged: 3 segments, 100 query rows, 8 heads over 2 key heads.
    packed_.dtype = DType::kBFloat16;
    packed_.device = {DeviceType::kCuda, 1};
    packed_.batch = 3;
    packed_.num_heads = 8;
    packed_.num_heads_k = 2;
    packed_.head_dim = packed_.head_dim_v = 128;
    packed_.query = {.rows = 3000, .cu_seqlens = lengths_, .seqused = nullptr};
    packed_.key = {.rows = 5000, .cu_seqlens = lengths_, .seqused = nullptr};
    packed_.q = packed_.k = packed_.v =
        packed_.out = {.data = storage_, .batch_stride = 0, .row_stride = 1024, .head_stride = 128};
    packed_.softmax_scale = 0.125f;
    dense_ = packed_;
    dense_.query.cu_seqlens = dense_.key.cu_seqlens = nullptr;
    for (const api::Problem& problem : {packed_, dense_}) offer_kernel(problem);
  }

  // Stands for machine code that came with the package.
  void offer_kernel(const api::Problem& problem) {
    const Arch arch = Arch::parse("sm_90a");
    KernelCache::output(precompiled_.path())
        .store(precompiled_key(plan_launch(problem, kSharedBytes, kMultiprocessors).config, arch),
               "\177ELF", 1 << 30);
  }

  static FakeDriver& driver() { return FakeDriver::instance(); }

  // As the kernel would, in the memory that the last launch was given.
  static void note_bad_entry(kernels::Status status) {
    *driver().launches.back().params.status = status;
  }

  void run(const api::Problem& problem, void* stream = nullptr) { forward(problem, {stream, {}}); }

  TemporaryDirectory precompiled_;
  TemporaryDirectory cache_;
  ScopedEnvironment precompiled_environment_{"PARAPET_PRECOMPILED_DIR", precompiled_.path()};
  ScopedEnvironment cache_environment_{"PARAPET_CACHE_DIR", cache_.path()};
  ScopedEnvironment check_environment_{"PARAPET_CHECK", std::nullopt};
  std::int32_t lengths_[4] = {};
  alignas(16) char storage_[64] = {};
  api::Problem packed_;
  api::Problem dense_;
};

TEST_F(CudaForwardTest, ListsTheWorkThenRunsIt) {
  in_a_process_of_its_own([&] {
    void* const stream = &storage_[1];
    run(packed_, stream);
    ASSERT_EQ(driver().launches.size(), 2u);
    const LaunchPlan plan = plan_launch(packed_, kSharedBytes, kMultiprocessors);
    const auto& list = driver().launches[0];
    EXPECT_EQ(list.kernel, "parapet_work_list");
    EXPECT_EQ(list.blocks, 1u);
    const auto& attention = driver().launches[1];
    EXPECT_EQ(attention.kernel, "parapet_forward");
    EXPECT_EQ(attention.blocks, static_cast<unsigned int>(plan.blocks));
    EXPECT_EQ(attention.threads, kernels::forward_threads(plan.config));
    EXPECT_EQ(attention.shared_bytes, kernels::forward_shared_bytes(plan.config));
    for (const auto& launch : driver().launches) {
      EXPECT_EQ(launch.stream, stream);
      EXPECT_EQ(launch.context, reinterpret_cast<void*>(std::intptr_t{101}));  // of cuda:1
      EXPECT_NE(launch.params.work_items, nullptr);
      EXPECT_NE(launch.params.status, nullptr);
    }
    EXPECT_EQ(driver().live_pool_buffers, 0);
  });
}

TEST_F(CudaForwardTest, NeedsNoWorkListForEqualKnownLengths) {
  in_a_process_of_its_own([&] {
    run(dense_);
    ASSERT_EQ(driver().launches.size(), 1u);
    EXPECT_EQ(driver().launches[0].kernel, "parapet_forward");
    EXPECT_EQ(driver().launches[0].params.work_items, nullptr);
    EXPECT_EQ(driver().launches[0].params.status, nullptr);
  });
}

TEST_F(CudaForwardTest, LeavesTheCallersContextCurrent) {
  in_a_process_of_its_own([&] {
    int somebody = 0;
    fake_contexts() = {&somebody};
    run(packed_);
    EXPECT_EQ(fake_contexts(), std::vector<void*>{&somebody});
    driver().launch_result = 999;
    expect_message([&] { run(packed_); }, ErrorCode::kRuntime,
                   "cuLaunchKernel: CUDA_ERROR_PRETENDED");
    EXPECT_EQ(fake_contexts(), std::vector<void*>{&somebody});
    EXPECT_EQ(driver().live_pool_buffers, 0);
  });
}

TEST_F(CudaForwardTest, TakesItsWorkspaceFromTheCaller) {
  in_a_process_of_its_own([&] {
    std::vector<std::int64_t> asked;
    alignas(16) static char memory[1 << 16];
    const auto allocate = [&](std::int64_t bytes) {
      asked.push_back(bytes);
      return static_cast<void*>(memory);
    };
    forward(packed_, {nullptr, allocate});
    EXPECT_EQ(asked, std::vector<std::int64_t>{
                         plan_launch(packed_, kSharedBytes, kMultiprocessors).workspace_bytes()});
    EXPECT_EQ(static_cast<void*>(driver().launches.back().params.work_items), memory);
    expect_message(
        [&] {
          forward(packed_, {nullptr, [](std::int64_t) { return static_cast<void*>(nullptr); }});
        },
        ErrorCode::kRuntime, "allocate: expected");
  });
}

TEST_F(CudaForwardTest, MayBeginWithinACapture) {
  in_a_process_of_its_own([&] {
    driver().capturing = true;
    run(packed_);
    EXPECT_EQ(driver().prohibited, std::vector<std::string>{});
    EXPECT_EQ(fake_capture_mode(), 0);
    EXPECT_EQ(driver().launches.size(), 2u);
  });
}

TEST_F(CudaForwardTest, WaitsForNothing) {
  in_a_process_of_its_own([&] {
    run(packed_);
    const int before = driver().synchronized;  // once, to clear the status word
    run(packed_);
    run(dense_);
    EXPECT_EQ(driver().synchronized, before);
  });
}

TEST_F(CudaForwardTest, LoadsAKernelOnceForAllThreads) {
  in_a_process_of_its_own([&] {
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
          for (int call = 0; call < 50; ++call) run(packed_);
        });
      }
    }
    EXPECT_EQ(driver().modules_loaded, 1);
    EXPECT_EQ(driver().launches.size(), 800u);
  });
}

TEST_F(CudaForwardTest, TriesAgainAfterAKernelFailedToLoad) {
  in_a_process_of_its_own([&] {
    driver().module_load_result = 222;
    expect_message([&] { run(packed_); }, ErrorCode::kRuntime,
                   "the driver (CUDA 13.0) cannot load this kernel");
    driver().module_load_result = 0;
    run(packed_);
    EXPECT_EQ(driver().launches.size(), 2u);
  });
}

TEST_F(CudaForwardTest, RunsNothingWhereThereIsNoWork) {
  in_a_process_of_its_own([&] {
    dense_.query.rows = 0;
    run(dense_);
    EXPECT_TRUE(driver().launches.empty());
  });
}

TEST_F(CudaForwardTest, CheckNamesTheBadEntryOnce) {
  in_a_process_of_its_own([&] {
    check(1);  // before any call
    run(packed_);
    check(1);
    note_bad_entry({kernels::kCuSeqlensK, 3, 17, 0});
    expect_message([] { check(1); }, ErrorCode::kInvalidArgument, "cu_seqlens_k[3]: expected");
    check(1);
    note_bad_entry({kernels::kSequsedQ, 0, -5, 0});
    expect_message([] { check(1); }, ErrorCode::kInvalidArgument,
                   "seqused_q[0]: expected 0 to the rows of its segment, found -5");
    check(0);  // another GPU
  });
}

TEST_F(CudaForwardTest, CheckLooksAtEveryGpuInUse) {
  in_a_process_of_its_own([&] {
    check();  // before any call
    run(packed_);
    packed_.device.index = 0;
    note_bad_entry({kernels::kCuSeqlensQ, 2, 99, 0});
    run(packed_);
    note_bad_entry({kernels::kSequsedK, 1, -3, 0});
    expect_message([] { check(); }, ErrorCode::kInvalidArgument, "seqused_k[1]");
    expect_message([] { check(); }, ErrorCode::kInvalidArgument, "cu_seqlens_q[2]");
    check();
  });
}

TEST_F(CudaForwardTest, GivesMemoryToThoseWithoutAFramework) {
  in_a_process_of_its_own([&] {
    const char text[] = "to the GPU and back";
    char back[sizeof(text)] = {};
    void* memory = allocate(1, sizeof(text));
    copy_to_gpu(1, memory, text, sizeof(text));
    const int before = driver().synchronized;
    copy_to_host(1, back, memory, sizeof(text));
    EXPECT_STREQ(back, text);
    EXPECT_EQ(driver().synchronized, before + 1) << "the copy did not wait for the GPU";
    free(1, memory);
    free(1, allocate(1, 0));
    copy_to_host(1, nullptr, nullptr, 0);
    EXPECT_TRUE(fake_contexts().empty());
  });
}

TEST_F(CudaForwardTest, ChecksEveryCallWhenAskedTo) {
  const ScopedEnvironment checked("PARAPET_CHECK", "1");
  in_a_process_of_its_own([&] {
    run(packed_);
    note_bad_entry({kernels::kCuSeqlensQ, 1, 9, 0});
    driver().capturing = true;
    run(packed_);
    driver().capturing = false;
    expect_message([&] { run(packed_); }, ErrorCode::kInvalidArgument, "cu_seqlens_q[1]");
    run(packed_);
  });
}

TEST_F(CudaForwardTest, RefusesADriverThatIsTooOld) {
  in_a_process_of_its_own([&] {
    driver().version = 11040;
    for (int i = 0; i < 2; ++i) {
      expect_message([&] { run(packed_); }, ErrorCode::kRuntime,
                     "expected one of CUDA 12.0 or newer (525 or newer), found CUDA 11.4");
    }
  });
}

TEST_F(CudaForwardTest, PassesOnThatThereIsNoGpu) {
  in_a_process_of_its_own([&] {
    driver().init_result = 100;
    expect_message([&] { run(packed_); }, ErrorCode::kRuntime, "cuInit: CUDA_ERROR_PRETENDED");
  });
}

TEST_F(CudaForwardTest, RefusesAGpuThatIsTooOld) {
  in_a_process_of_its_own([&] {
    driver().capability = 75;
    expect_message([&] { run(packed_); }, ErrorCode::kNotImplemented,
                   "capability 8.0 or newer, found cuda:1 (Fake GPU), of 7.5");
  });
}

TEST_F(CudaForwardTest, RefusesADeviceThatIsNotThere) {
  in_a_process_of_its_own([&] {
    packed_.device.index = 2;
    expect_message([&] { run(packed_); }, ErrorCode::kInvalidArgument,
                   "expected cuda:0 to cuda:1, found cuda:2");
  });
}

TEST_F(CudaForwardTest, TellsWhatIsThere) {
  in_a_process_of_its_own([&] {
    const CudaInfo info = cuda_info();
    EXPECT_EQ(info.driver_version, "13.0");
    EXPECT_EQ(info.driver_problem, "");
    ASSERT_EQ(info.gpus.size(), 2u);
    EXPECT_EQ(info.gpus[1].index, 1);
    EXPECT_EQ(info.gpus[1].name, "Fake GPU");
    EXPECT_EQ(info.gpus[1].capability, "9.0");
    EXPECT_EQ(info.gpus[1].memory_bytes, std::int64_t{141} << 30);
    EXPECT_TRUE(info.gpus[1].supported);
    EXPECT_NE(info.nvrtc_version.empty(), info.nvrtc_problem.empty());
  });
  in_a_process_of_its_own([&] {
    driver().version = 11000;
    const CudaInfo info = cuda_info();
    EXPECT_EQ(info.driver_version, "");
    EXPECT_NE(info.driver_problem.find("too old"), std::string::npos);
    EXPECT_TRUE(info.gpus.empty());
  });
}

TEST_F(CudaForwardTest, UsesCodeForAnOlderGpuOfTheSameKind) {
  in_a_process_of_its_own([&] {
    KernelCache::output(precompiled_.path())
        .store(precompiled_key(plan_launch(packed_, kSharedBytes, kMultiprocessors).config,
                               Arch::parse("sm_80")),
               "\177ELF", 1 << 30);
    const ScopedEnvironment none("PARAPET_NVRTC", "/nowhere/libnvrtc.so");
    driver().capability = 86;
    run(packed_);
    EXPECT_EQ(driver().launches.size(), 2u);
    packed_.softcap = 30.0f;  // another kernel
    expect_message([&] { run(packed_); }, ErrorCode::kRuntime,
                   "for sm_86 has to be compiled: NVRTC");
  });
}

}  // namespace
}  // namespace parapet::cuda
