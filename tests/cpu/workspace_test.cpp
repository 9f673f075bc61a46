#include "cpu/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace parapet::cpu {
namespace {

TEST(Workspace, IsAlignedAndWritable) {
  for (const std::size_t floats : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}}) {
    const Workspace workspace(floats);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.data()) % 64, 0u);
    std::fill_n(workspace.data(), floats, 1.0f);
  }
}

TEST(Workspace, IsKept) {
  const float* first = Workspace(5000).data();
  EXPECT_EQ(Workspace(4000).data(), first);
}

TEST(Workspace, LivingOnesAreApart) {
  const Workspace a(1000), b(1000), c(1000), d(1000), e(1000), f(1000);
  std::vector<const float*> addresses = {a.data(), b.data(), c.data(),
                                         d.data(), e.data(), f.data()};
  std::ranges::sort(addresses);
  for (std::size_t i = 1; i < addresses.size(); ++i) {
    EXPECT_GE(addresses[i] - addresses[i - 1], 1000);
  }
}

TEST(Workspace, ThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([thread] {
      for (int round = 0; round < 300; ++round) {
        const std::size_t floats = 100 + static_cast<std::size_t>(thread * 37 + round) % 900;
        const Workspace workspace(floats);
        std::fill_n(workspace.data(), floats, static_cast<float>(thread));
        std::this_thread::yield();
        for (std::size_t i = 0; i < floats; ++i) {
          ASSERT_EQ(workspace.data()[i], static_cast<float>(thread));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace parapet::cpu
