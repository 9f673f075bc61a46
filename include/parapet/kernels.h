#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parapet/export.h"

// GPU kernels ahead of time, and those that are kept on disk. Nothing here needs a GPU.

namespace parapet {

// One compiled kernel, as its machine code describes it.
struct KernelReport {
  std::string kernel;            // "forward-bf16-d128-right"
  std::string arch;              // "sm_89"
  bool ptx = false;              // PTX for a GPU newer than the compiler; then the four below are 0
  int registers = 0;             // a thread
  std::int64_t local_bytes = 0;  // of local memory a thread
  std::int64_t shared_bytes = 0;  // of shared memory a block
  int threads = 0;                // a block
  std::int64_t image_bytes = 0;
  double seconds = 0.0;  // spent compiling; next to none where the cache had it
};

// The kernels that most calls need on a GPU of the architecture `arch` ("sm_89"): what `precompile`
// makes when none are named.
PARAPET_EXPORT std::vector<std::string> common_kernels(const std::string& arch);

struct PrecompileOptions {
  std::vector<std::string> archs{};    // "sm_80", "sm_90a", ...; at least one
  std::vector<std::string> kernels{};  // names as in KernelReport; empty: the common ones
  std::string directory{};             // created where it does not exist
  int num_threads = 0;                 // compile so many at a time; 0: one a processor
  // Called after each kernel, never by two threads at once.
  std::function<void(const KernelReport&)> on_kernel{};
};

// Compiles kernels for the given architectures into a directory which, named by
// PARAPET_PRECOMPILED_DIR or put beside the library as parapet-kernels, serves calls without a
// compiler. Reports in the order of archs, then kernels.
//
// Throws Error: kInvalidArgument for a name that is no arch or no kernel, kRuntime where NVRTC is
// not found, a kernel does not compile or the directory cannot be written.
PARAPET_EXPORT std::vector<KernelReport> precompile(const PrecompileOptions& options);

// The cache of kernels compiled on first use: PARAPET_CACHE_DIR, else XDG_CACHE_HOME/parapet, else
// ~/.cache/parapet. It holds at most PARAPET_CACHE_MB megabytes (500); what was used longest ago
// goes.
struct KernelCacheReport {
  struct Entry {
    std::string file;
    std::int64_t bytes = 0;
    std::int64_t last_used = 0;  // seconds since 1970
  };
  std::string directory;
  std::string problem;  // why it is not used; empty when it is
  std::int64_t limit_bytes = 0;
  std::vector<Entry> entries;  // most recently used first
};
PARAPET_EXPORT KernelCacheReport kernel_cache();

// Empties the cache; returns how many kernels it held. Throws Error(kRuntime) where it is not
// usable.
PARAPET_EXPORT std::int64_t clear_kernel_cache();

}  // namespace parapet
