#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "cuda/arch.h"
#include "cuda/driver.h"
#include "kernels/core/params.h"
#include "kernels/mma/traits.h"

namespace parapet::cuda {

// The kernels of one key, ready to launch.
struct ForwardKernels {
  explicit ForwardKernels(const KernelImage& image, const kernels::ForwardConfig& config);

  Module module;
  Function forward;
  Function work_list;
};

// What this process keeps for a GPU, from its first use to the process's end: the context, the
// loaded kernels and the status word. All of it may be used from any thread.
class Gpu {
 public:
  // Throws Error: kInvalidArgument where there is no such GPU, kNotImplemented where it is older
  // than sm_80, kRuntime without a driver.
  static Gpu& get(int index);
  // Those that `get` has returned so far.
  static std::vector<Gpu*> in_use();

  const PrimaryContext& context() const { return context_; }
  int shared_bytes_per_sm() const { return shared_bytes_per_sm_; }
  int multiprocessors() const { return multiprocessors_; }

  // Loads the kernels when they are first asked for, and compiles them before where it must. Needs
  // the context to be current; may be called while a stream is captured.
  const ForwardKernels& kernels(const kernels::ForwardConfig& config);

  // Where kernels note the first metadata entry that they had to change.
  kernels::Status* status();
  // Waits for `stream` and gives what was noted since the last call of either of these two.
  kernels::Status take_status(StreamHandle stream);
  // Waits for the whole GPU first.
  kernels::Status take_status();

 private:
  Gpu(int index, const GpuProperties& properties);

  struct All;
  static All& all();

  struct Entry;
  Entry& entry(const kernels::ForwardConfig& config);

  Arch arch_;
  int shared_bytes_per_sm_;
  int multiprocessors_;
  PrimaryContext context_;
  std::shared_mutex mutex_;  // of entries_
  std::vector<std::unique_ptr<Entry>> entries_;
  std::once_flag status_once_;
  std::unique_ptr<DeviceBuffer> status_;
};

}  // namespace parapet::cuda
