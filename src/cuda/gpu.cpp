#include "cuda/gpu.h"

#include <fmt/format.h>

#include <atomic>
#include <map>

#include "cuda/kernel_store.h"
#include "cuda/kernel_unit.h"
#include "parapet/error.h"

namespace parapet::cuda {

using kernels::ForwardConfig;

ForwardKernels::ForwardKernels(const KernelImage& image, const ForwardConfig& config)
    : module(image),
      forward(module.function(kForwardEntry, kernels::forward_shared_bytes(config))),
      work_list(module.function(kWorkListEntry, kernels::kWorkListSharedBytes)) {}

// Threads that want the same kernels at once wait for the one that loads them; when that fails, the
// next tries again.
struct Gpu::Entry {
  explicit Entry(const ForwardConfig& its_config) : config(its_config) {}

  const ForwardConfig config;
  std::mutex mutex;
  std::unique_ptr<const ForwardKernels> kernels;
  std::atomic<const ForwardKernels*> ready = nullptr;
};

struct Gpu::All {
  std::shared_mutex mutex;  // of by_index
  std::map<int, std::unique_ptr<Gpu>> by_index;
};

Gpu::All& Gpu::all() {
  // Never destroyed: at exit the driver may be gone before us.
  static auto& all = *new All;
  return all;
}

Gpu& Gpu::get(int index) {
  {
    const std::shared_lock lock(all().mutex);
    const auto found = all().by_index.find(index);
    if (found != all().by_index.end()) return *found->second;
  }
  const Driver& driver = Driver::instance();
  if (const int count = driver.device_count(); index < 0 || index >= count) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("device: expected cuda:0 to cuda:{}, found cuda:{}", count - 1, index));
  }
  const GpuProperties properties = driver.properties(index);
  if (properties.major < kOldestCapability) {
    throw Error(
        ErrorCode::kNotImplemented,
        fmt::format("device: expected a GPU of compute capability 8.0 or newer, found cuda:{} "
                    "({}), of {}.{}",
                    index, properties.name, properties.major, properties.minor));
  }
  const std::unique_lock lock(all().mutex);
  std::unique_ptr<Gpu>& gpu = all().by_index[index];
  if (gpu == nullptr) gpu.reset(new Gpu(index, properties));
  return *gpu;
}

std::vector<Gpu*> Gpu::in_use() {
  const std::shared_lock lock(all().mutex);
  std::vector<Gpu*> gpus;
  for (const auto& [index, gpu] : all().by_index) gpus.push_back(gpu.get());
  return gpus;
}

Gpu::Gpu(int index, const GpuProperties& properties)
    : arch_(Arch::of_capability(properties.major, properties.minor)),
      shared_bytes_per_sm_(properties.shared_bytes_per_multiprocessor),
      multiprocessors_(properties.num_multiprocessors),
      context_(index) {}

Gpu::Entry& Gpu::entry(const ForwardConfig& config) {
  const auto find = [&]() -> Entry* {
    for (const auto& candidate : entries_) {
      if (candidate->config == config) return candidate.get();
    }
    return nullptr;
  };
  {
    const std::shared_lock lock(mutex_);
    if (Entry* found = find()) return *found;
  }
  const std::unique_lock lock(mutex_);
  if (Entry* found = find()) return *found;
  return *entries_.emplace_back(std::make_unique<Entry>(config));
}

const ForwardKernels& Gpu::kernels(const ForwardConfig& config) {
  Entry& wanted = entry(config);
  if (const ForwardKernels* ready = wanted.ready) return *ready;
  const std::lock_guard lock(wanted.mutex);
  if (wanted.kernels == nullptr) {
    const KernelImage image = find_kernel(config, arch_);
    const OutsideCapture outside;
    wanted.kernels = std::make_unique<const ForwardKernels>(image, config);
    wanted.ready = wanted.kernels.get();
  }
  return *wanted.kernels;
}

kernels::Status* Gpu::status() {
  std::call_once(status_once_, [&] {
    const OutsideCapture outside;
    status_ = std::make_unique<DeviceBuffer>(sizeof(kernels::Status));
  });
  return static_cast<kernels::Status*>(status_->data());
}

kernels::Status Gpu::take_status(StreamHandle stream) {
  status();
  kernels::Status found{};
  status_->read(&found, stream);
  if (found.array != kernels::kNoArray) status_->clear(stream);
  return found;
}

kernels::Status Gpu::take_status() {
  const CurrentContext current(context_);
  context_.synchronize();
  const Stream stream;
  return take_status(stream.handle());
}

}  // namespace parapet::cuda
