#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/core/params.h"

namespace parapet::testing {

// What the fake libcuda pretends, and what it was asked. A program that links it needs no GPU:
// memory is the host's, and a launch is written down instead of run.
struct FakeDriver {
  struct Launch {
    std::string kernel;
    unsigned int blocks;
    unsigned int threads;
    unsigned int shared_bytes;
    void* stream;
    void* context;
    kernels::ForwardParams params;
  };

  static FakeDriver& instance();

  // Pretended.
  int version = 13000;
  int init_result = 0;
  int device_count = 2;
  int capability = 90;
  int module_load_result = 0;
  int launch_result = 0;
  bool capturing = false;

  // Written down.
  std::mutex mutex;
  std::vector<Launch> launches;
  int modules_loaded = 0;
  int live_pool_buffers = 0;
  int synchronized = 0;
  std::vector<std::string> prohibited;  // calls that would have broken a capture
};

// The calling thread's stack of contexts; the last is current.
std::vector<void*>& fake_contexts();
// 0: global, as a thread starts with; 2: relaxed.
int& fake_capture_mode();

}  // namespace parapet::testing
