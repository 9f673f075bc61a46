#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "cuda/driver.h"
#include "parapet/error.h"

// What tests do with a GPU besides calling parapet.

namespace parapet::testing {

// The first GPU, its context current on this thread.
class Device {
 public:
  // Why there is none to test on; empty where there is one.
  static const std::string& problem();
  static const Device& instance();

  const cuda::PrimaryContext& context() const { return context_; }

 private:
  Device() : context_(0) {}
  cuda::PrimaryContext context_;
};

// A test that needs a GPU. Leaves where there is none.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Device::problem().empty()) GTEST_SKIP() << Device::problem();
    current_.emplace(Device::instance().context());
  }
  void TearDown() override { current_.reset(); }

 private:
  std::optional<cuda::CurrentContext> current_;
};

// Where an allocation touches unmapped memory, so that one byte beyond faults.
enum class Fence { kBehind, kBefore };

// Memory in a mapping of its own, with unmapped pages on both sides.
class FencedMemory {
 public:
  FencedMemory(std::size_t bytes, Fence fence);
  ~FencedMemory();
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;

  std::byte* data() const { return reinterpret_cast<std::byte*>(data_); }

 private:
  std::uint64_t data_ = 0;
  std::uint64_t reserved_ = 0;
  std::size_t granularity_ = 0;
  std::size_t mapped_bytes_ = 0;
  std::uint64_t handle_ = 0;
};

void copy_to_device(void* device, const void* host, std::size_t bytes);
void copy_to_device(void* device, const void* host, std::size_t bytes, const cuda::Stream& stream);
void copy_to_host(void* host, const void* device, std::size_t bytes);
void synchronize(const cuda::Stream& stream);
void* current_context();

// Work captured from a stream.
class Graph {
 public:
  Graph(const cuda::Stream& stream, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(const cuda::Stream& stream) const;

 private:
  void* executable_ = nullptr;
};

}  // namespace parapet::testing
