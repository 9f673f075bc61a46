#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "emulate/launch.h"
#include "kernels/arch/barrier.h"
#include "kernels/arch/matrix.h"
#include "kernels/arch/memory.h"
#include "kernels/arch/thread.h"

// Small kernels with a fault each, and their right twins.

namespace parapet::emulate {
namespace {

namespace arch = kernels::arch;
using arch::u32;

constexpr int kThreads = 64;
constexpr std::uint64_t kSeeds = 20;

struct Options {
  std::vector<Window> windows{};
  int shared_bytes = 1024;
};

// The text of the fault under one seed; empty if there is none.
std::string fault_of(const std::function<void()>& kernel, std::uint64_t seed,
                     const Options& options) {
  Launch what{.threads = kThreads, .shared_bytes = options.shared_bytes, .seed = seed};
  if (!options.windows.empty()) what.windows = [&](std::int64_t) { return options.windows; };
  try {
    launch(what, kernel);
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "";
}

void expect_fault(const std::string& part, const std::function<void()>& kernel,
                  const Options& options = {}) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string found = fault_of(kernel, seed, options);
    EXPECT_NE(found.find(part), std::string::npos) << "seed " << seed << ": " << found;
  }
}

void expect_no_fault(const std::function<void()>& kernel, const Options& options = {}) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed)
    EXPECT_EQ(fault_of(kernel, seed, options), "");
}

// ---- Races --------------------------------------------------------------------------------------

// Every thread writes its word and reads another's.
void exchange(u32 distance, const std::function<void()>& between) {
  const u32 thread = arch::thread_index(), shared = arch::shared_memory();
  arch::store_shared(shared + thread * 4, thread);
  between();
  EXPECT_EQ(arch::load_shared(shared + (thread ^ distance) * 4), thread ^ distance);
}

TEST(Race, IsAReadThatNothingOrders) {
  expect_fault("race at shared memory", [] {
    arch::store_shared(arch::shared_memory() + arch::thread_index() * 4, 0);
    arch::load_shared(arch::shared_memory() + (arch::thread_index() ^ 1) * 4);
  });
  expect_no_fault([] { exchange(33, [] { arch::sync_block(); }); });
  expect_no_fault([] { exchange(1, [] { arch::sync_warp(); }); });
}

TEST(Race, IsNotPreventedByVotesAndOtherWarps) {
  const auto unordered = [](u32 distance, const std::function<void()>& between) {
    const u32 thread = arch::thread_index(), shared = arch::shared_memory();
    arch::store_shared(shared + thread * 4, thread);
    between();
    arch::load_shared(shared + (thread ^ distance) * 4);
  };
  expect_fault("race at", [&] { unordered(1, [] { arch::any_in_warp(true); }); });
  expect_fault("race at", [&] { unordered(32, [] { arch::sync_warp(); }); });
}

TEST(Race, IsAWriteOfAnotherValueByALaneOfTheSameStore) {
  expect_no_fault(
      [] { arch::store_shared(arch::shared_memory() + arch::thread_index() / 32 * 4, 7); });
  expect_fault("race at", [] {
    arch::store_shared(arch::shared_memory() + arch::thread_index() / 32 * 4, arch::thread_index());
  });
  expect_fault("race at", [] { arch::store_shared(arch::shared_memory(), 7); });
}

TEST(Race, IsNotBetweenAtomics) {
  const auto count = [](bool meets) {
    const u32 shared = arch::shared_memory();
    if (arch::thread_index() == 0) arch::store_shared(shared, 0);
    arch::sync_block();
    arch::add_shared(shared, 1);
    if (meets) arch::sync_block();
    const u32 found = arch::load_shared(shared);
    EXPECT_TRUE(!meets || found == u32{kThreads});
  };
  expect_no_fault([&] { count(true); });
  expect_fault("race at", [&] { count(false); });
}

alignas(16) constexpr u32 kData[kThreads * 4] = {1, 2, 3, 4, 5};

// Every thread copies a unit and reads another's.
void copy(const std::function<void(u32 barrier)>& between) {
  const u32 thread = arch::thread_index(), shared = arch::shared_memory();
  const u32 barrier = shared + kThreads * 16;
  if (thread == 0) arch::barrier_init(barrier, kThreads);
  arch::sync_block();
  arch::copy_unit_async(shared + thread * 16, kData + thread * 4, true);
  between(barrier);
  EXPECT_EQ(arch::load_shared(shared + (thread ^ 1) * 16), kData[(thread ^ 1) * 4]);
}

TEST(Race, IsAReadThatACopyMayOvertake) {
  const Options options{.shared_bytes = 2048};
  expect_no_fault(
      [] {
        copy([](u32 barrier) {
          arch::barrier_arrive_after_copies(barrier);
          arch::barrier_wait(barrier, 0);
        });
      },
      options);
  expect_no_fault(
      [] {
        copy([](u32) {
          arch::wait_for_copies();
          arch::sync_block();
        });
      },
      options);
  const auto read_too_early = [](bool waits) {
    const u32 thread = arch::thread_index(), shared = arch::shared_memory();
    arch::copy_unit_async(shared + thread * 16, kData + thread * 4, true);
    if (waits) arch::wait_for_copies();
    arch::load_shared(shared + (waits ? thread ^ 1 : thread) * 16);
  };
  expect_fault("copy_unit_async", [&] { read_too_early(false); }, options);
  expect_fault("copy_unit_async", [&] { read_too_early(true); }, options);
}

TEST(Copy, HasToLandBeforeItsThreadEnds) {
  expect_fault("ended with copies on their way", [] {
    if (arch::thread_index() == 40) arch::copy_unit_async(arch::shared_memory(), kData, true);
  });
}

// ---- Deadlocks and divergence -------------------------------------------------------------------

TEST(Deadlock, NamesWhoWaitsWhere) {
  const auto wait = [](u32 arrivals) {
    const u32 barrier = arch::shared_memory();
    if (arch::thread_index() == 0) arch::barrier_init(barrier, arrivals);
    arch::sync_block();
    arch::barrier_arrive(barrier, true);
    while (!arch::barrier_test(barrier, 0)) continue;
  };
  expect_no_fault([&] { wait(kThreads); });
  expect_fault("deadlock\n  threads 0-63 wait in barrier_test at fault_test.cpp",
               [&] { wait(kThreads + 1); });
  expect_fault("threads 32-39 41-63 wait in sync_warp at fault_test.cpp", [] {
    if (arch::thread_index() != 40) arch::sync_warp();
  });
}

TEST(Deadlock, IsNotAMeetingThatOthersLeave) {
  expect_no_fault([] {
    if (arch::thread_index() < 32) return;
    arch::sync_block();
  });
}

TEST(Divergence, IsTwoInstructionsAtATime) {
  expect_fault("its warp diverged: other lanes are in", [] {
    if (arch::thread_index() % 2 == 0)
      arch::any_in_warp(true);
    else
      arch::shuffle(1, 0);
  });
}

TEST(Divergence, IsALaneThatDoesNotAgree) {
  expect_no_fault([] { arch::uniform(static_cast<int>(arch::thread_index() / 32)); });
  expect_fault("lanes disagree", [] { arch::uniform(arch::thread_index() == 7); });
}

// ---- Memory -------------------------------------------------------------------------------------

TEST(SharedMemory, HasBoundsAndAlignment) {
  expect_fault("load_shared at fault_test.cpp",
               [] { arch::load_shared(arch::shared_memory() + 1024); });
  expect_fault("-4 of 1024", [] { arch::load_shared(arch::shared_memory() - 4); });
  expect_fault("misaligned", [] { arch::load_shared_unit(arch::shared_memory() + 8); });
  expect_fault("no initialised barrier", [] { arch::barrier_wait(arch::shared_memory(), 0); });
}

TEST(GlobalMemory, HasWindows) {
  const u32* const data = kData + 32;
  const Window rows{.name = "rows", .data = data, .bytes = 8, .rows = 3, .stride = 16};
  const Window reversed{.name = "reversed", .data = data + 8, .bytes = 8, .rows = 3, .stride = -16};
  for (const Window& window : {rows, reversed}) {
    const Options options{.windows = {window}};
    for (const int word : {0, 1, 4, 5, 8, 9})
      expect_no_fault([&] { arch::load_global_u32(data + word); }, options);
    for (const int word : {-1, 2, 3, 6, 7, 10, 12})
      expect_fault("may not read 4 bytes", [&] { arch::load_global_u32(data + word); }, options);
    expect_fault("may not read 16 bytes", [&] { arch::load_global_unit(data); }, options);
    expect_fault(
        "may not write", [&] { arch::store_global_u32(const_cast<u32*>(data), 0); }, options);
  }
  expect_fault("misaligned",
               [] { arch::load_global_u32(reinterpret_cast<const std::byte*>(kData) + 2); });
}

}  // namespace
}  // namespace parapet::emulate
