#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What the program runs on, as far as the system says.

namespace parapet::cli {

// "AMD EPYC"; "unknown processor" where the system has no name for it.
std::string cpu_name();

struct Cache {
  int level = 0;
  std::string type;  // "data", "instruction" or "unified"
  std::int64_t bytes = 0;
};

// Those that the first CPU uses; empty where the system does not say.
std::vector<Cache> caches();

// Bytes that can be allocated without swapping, also inside a container.
double available_memory();

// Throws Error(kRuntime) when `bytes` do not fit comfortably; `what` begins the message.
void require_memory(double bytes, const std::string& what);

// Cores that this process may run on; hardware threads that share one count once.
int physical_cores();

// Threads that a call with num_threads = `requested` uses.
int threads_of(int requested);

}  // namespace parapet::cli
