#include "gpu/device.h"

#include <fmt/format.h>

#include "cuda/shared_library.h"
#include "plan/host_device.h"

namespace parapet::testing {
namespace {

// As cuda.h has them.
struct Location {
  int type = 1;  // a device
  int id = 0;
};
struct AllocationProperties {
  int type = 1;  // pinned
  int handle_types = 0;
  Location location;
  void* win32 = nullptr;
  unsigned char flags[8] = {};
};
struct AccessDescription {
  Location location;
  int flags = 3;  // read and write
};

const cuda::SharedLibrary& library() {
  static const cuda::SharedLibrary opened = [] {
    std::string reason;
    const auto found = cuda::SharedLibrary::open("libcuda.so.1", reason);
    if (!found) throw Error(ErrorCode::kRuntime, reason);
    return *found;
  }();
  return opened;
}

// Calls a driver function by name; its parameter types are the arguments'.
template <class... Arguments>
void call(const char* name, Arguments... arguments) {
  auto* function = library().find<int(Arguments...)>(name);
  if (function == nullptr) throw Error(ErrorCode::kRuntime, fmt::format("no {}", name));
  if (const int result = function(arguments...); result != 0) {
    throw Error(ErrorCode::kRuntime, fmt::format("{}: error {}", name, result));
  }
}

std::uint64_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

const std::string& Device::problem() {
  static const std::string text = []() -> std::string {
    try {
      if (cuda::Driver::instance().device_count() == 0) return "the driver has no GPU";
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }();
  return text;
}

const Device& Device::instance() {
  static const Device device;
  return device;
}

FencedMemory::FencedMemory(std::size_t bytes, Fence fence) {
  const AllocationProperties properties;
  call("cuMemGetAllocationGranularity", &granularity_, &properties, 0);
  const auto rounded = plan::round_up(static_cast<plan::int64>(bytes == 0 ? 1 : bytes),
                                      static_cast<plan::int64>(granularity_));
  mapped_bytes_ = static_cast<std::size_t>(rounded);
  const std::size_t reserved_bytes = mapped_bytes_ + 2 * granularity_;
  call("cuMemAddressReserve", &reserved_, reserved_bytes, std::size_t{0}, std::uint64_t{0},
       std::uint64_t{0});
  call("cuMemCreate", &handle_, mapped_bytes_, &properties, std::uint64_t{0});
  const std::uint64_t mapped = reserved_ + granularity_;
  call("cuMemMap", mapped, mapped_bytes_, std::size_t{0}, handle_, std::uint64_t{0});
  const AccessDescription access;
  call("cuMemSetAccess", mapped, mapped_bytes_, &access, std::size_t{1});
  data_ = fence == Fence::kBefore ? mapped : mapped + mapped_bytes_ - bytes;
}

FencedMemory::~FencedMemory() {
  try {
    call("cuMemUnmap", reserved_ + granularity_, mapped_bytes_);
    call("cuMemRelease", handle_);
    call("cuMemAddressFree", reserved_, mapped_bytes_ + 2 * granularity_);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

void copy_to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) call("cuMemcpyHtoD_v2", address(device), host, bytes);
}

void copy_to_device(void* device, const void* host, std::size_t bytes, const cuda::Stream& stream) {
  call("cuMemcpyHtoDAsync_v2", address(device), host, bytes, stream.handle());
}

void copy_to_host(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) call("cuMemcpyDtoH_v2", host, address(device), bytes);
}

void synchronize(const cuda::Stream& stream) {
  call("cuStreamSynchronize", stream.handle());
}

void* current_context() {
  void* context = nullptr;
  call("cuCtxGetCurrent", &context);
  return context;
}

Graph::Graph(const cuda::Stream& stream, const std::function<void()>& work) {
  constexpr int kGlobal = 0;  // the strictest mode
  void* graph = nullptr;
  call("cuStreamBeginCapture_v2", stream.handle(), kGlobal);
  try {
    work();
  } catch (const Error&) {
    call("cuStreamEndCapture", stream.handle(), &graph);
    throw;
  }
  call("cuStreamEndCapture", stream.handle(), &graph);
  call("cuGraphInstantiateWithFlags", &executable_, graph, 0ULL);
  call("cuGraphDestroy", graph);
}

Graph::~Graph() {
  if (executable_ != nullptr) call("cuGraphExecDestroy", executable_);
}

void Graph::launch(const cuda::Stream& stream) const {
  call("cuGraphLaunch", executable_, stream.handle());
}

}  // namespace parapet::testing
