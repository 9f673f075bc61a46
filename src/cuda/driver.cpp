#include "cuda/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cuda/shared_library.h"
#include "parapet/error.h"

namespace parapet::cuda {
namespace {

using Result = int;
constexpr Result kSuccess = 0;
constexpr Result kInvalidImage = 200;
constexpr Result kNoBinaryForGpu = 209;
constexpr Result kUnsupportedPtxVersion = 222;

constexpr int kOldestDriver = 12000;  // cuDriverGetVersion's number for CUDA 12.0

constexpr int kMultiprocessorCount = 16;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;
constexpr int kSharedBytesPerMultiprocessor = 81;
constexpr int kFunctionDynamicSharedBytes = 8;
constexpr unsigned int kStreamNonBlocking = 1;
constexpr int kCaptureModeRelaxed = 2;
constexpr int kCaptureStatusNone = 0;

// The functions in use, by the names that they are exported under.
#define PARAPET_DRIVER_FUNCTIONS(F)                                                               \
  F(cuGetErrorName, (Result result, const char** text))                                           \
  F(cuGetErrorString, (Result result, const char** text))                                         \
  F(cuInit, (unsigned int flags))                                                                 \
  F(cuDriverGetVersion, (int* version))                                                           \
  F(cuDeviceGetCount, (int* count))                                                               \
  F(cuDeviceGet, (int* device, int ordinal))                                                      \
  F(cuDeviceGetName, (char* name, int size, int device))                                          \
  F(cuDeviceGetAttribute, (int* value, int attribute, int device))                                \
  F(cuDeviceTotalMem_v2, (std::size_t * bytes, int device))                                       \
  F(cuDevicePrimaryCtxRetain, (ContextHandle * context, int device))                              \
  F(cuCtxPushCurrent_v2, (ContextHandle context))                                                 \
  F(cuCtxPopCurrent_v2, (ContextHandle * context))                                                \
  F(cuCtxSynchronize, ())                                                                         \
  F(cuThreadExchangeStreamCaptureMode, (int* mode))                                               \
  F(cuStreamIsCapturing, (StreamHandle stream, int* status))                                      \
  F(cuStreamSynchronize, (StreamHandle stream))                                                   \
  F(cuMemAlloc_v2, (DevicePointer * pointer, std::size_t bytes))                                  \
  F(cuMemFree_v2, (DevicePointer pointer))                                                        \
  F(cuMemAllocAsync, (DevicePointer * pointer, std::size_t bytes, StreamHandle stream))           \
  F(cuMemFreeAsync, (DevicePointer pointer, StreamHandle stream))                                 \
  F(cuStreamCreate, (StreamHandle * stream, unsigned int flags))                                  \
  F(cuStreamDestroy_v2, (StreamHandle stream))                                                    \
  F(cuMemsetD8Async,                                                                              \
    (DevicePointer pointer, unsigned char value, std::size_t bytes, StreamHandle stream))         \
  F(cuMemcpyDtoHAsync_v2,                                                                         \
    (void* host, DevicePointer pointer, std::size_t bytes, StreamHandle stream))                  \
  F(cuMemcpyDtoH_v2, (void* host, DevicePointer pointer, std::size_t bytes))                      \
  F(cuMemcpyHtoD_v2, (DevicePointer pointer, const void* host, std::size_t bytes))                \
  F(cuModuleLoadData, (ModuleHandle * module, const void* image))                                 \
  F(cuModuleUnload, (ModuleHandle module))                                                        \
  F(cuModuleGetFunction, (FunctionHandle * function, ModuleHandle module, const char* name))      \
  F(cuFuncSetAttribute, (FunctionHandle function, int attribute, int value))                      \
  F(cuLaunchKernel,                                                                               \
    (FunctionHandle function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,      \
     unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, \
     StreamHandle stream, void** parameters, void** extra))

struct Api {
#define F(name, parameters) Result(*name) parameters = nullptr;
  PARAPET_DRIVER_FUNCTIONS(F)
#undef F

  Api() {
    std::string reason;
    const auto library = SharedLibrary::open("libcuda.so.1", reason);
    if (!library) {
      throw Error(
          ErrorCode::kRuntime,
          fmt::format("no NVIDIA driver was found: {}. A tensor on a GPU needs one, of CUDA "
                      "12.0 or newer (525 or newer)",
                      reason));
    }
    // The version comes first: an old driver lacks functions that are looked up next.
    if (auto* get_version = library->find<Result(int*)>("cuDriverGetVersion")) {
      get_version(&version);
    }
    if (version < kOldestDriver) {
      throw Error(
          ErrorCode::kRuntime,
          fmt::format("the NVIDIA driver is too old: expected one of CUDA 12.0 or newer (525 "
                      "or newer), found CUDA {}.{}",
                      version / 1000, version % 1000 / 10));
    }
#define F(name, parameters)                                                       \
  name = library->find<Result parameters>(#name);                                 \
  if (name == nullptr) {                                                          \
    throw Error(ErrorCode::kRuntime, "the NVIDIA driver has no function " #name); \
  }
    PARAPET_DRIVER_FUNCTIONS(F)
#undef F
    check(cuInit(0), "cuInit");
  }

  std::string describe(Result result) const {
    const char* name = nullptr;
    const char* text = nullptr;
    if (cuGetErrorName(result, &name) != kSuccess) return fmt::format("error {}", result);
    cuGetErrorString(result, &text);
    return fmt::format("{} ({})", name, text != nullptr ? text : "");
  }

  void check(Result result, const char* function) const {
    if (result == kSuccess) return;
    throw Error(ErrorCode::kRuntime, fmt::format("{}: {}", function, describe(result)));
  }

  int version = 0;
};

const Api& api() {
  static const Api instance;
  return instance;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Calls a driver function and throws where it fails.
#define PARAPET_DRIVER_CALL(function, ...) api().check(api().function(__VA_ARGS__), #function)

DevicePointer address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

int device_handle(int ordinal) {
  int device = 0;
  PARAPET_DRIVER_CALL(cuDeviceGet, &device, ordinal);
  return device;
}

}  // namespace

Driver::Driver() : version_(version_text(api().version)) {}

const Driver& Driver::instance() {
  static const Driver driver;
  return driver;
}

std::optional<int> Driver::major_version() {
  try {
    return api().version / 1000;
  } catch (const Error&) {
    return std::nullopt;
  }
}

int Driver::device_count() const {
  int count = 0;
  PARAPET_DRIVER_CALL(cuDeviceGetCount, &count);
  return count;
}

GpuProperties Driver::properties(int device) const {
  const int handle = device_handle(device);
  const auto attribute = [&](int which) {
    int value = 0;
    PARAPET_DRIVER_CALL(cuDeviceGetAttribute, &value, which, handle);
    return value;
  };
  std::array<char, 256> name{};
  PARAPET_DRIVER_CALL(cuDeviceGetName, name.data(), static_cast<int>(name.size()) - 1, handle);
  std::size_t bytes = 0;
  PARAPET_DRIVER_CALL(cuDeviceTotalMem_v2, &bytes, handle);
  return {.name = name.data(),
          .major = attribute(kCapabilityMajor),
          .minor = attribute(kCapabilityMinor),
          .num_multiprocessors = attribute(kMultiprocessorCount),
          .shared_bytes_per_multiprocessor = attribute(kSharedBytesPerMultiprocessor),
          .memory_bytes = static_cast<std::int64_t>(bytes)};
}

PrimaryContext::PrimaryContext(int device) {
  PARAPET_DRIVER_CALL(cuDevicePrimaryCtxRetain, &handle_, device_handle(device));
}

void PrimaryContext::synchronize() const {
  const CurrentContext current(*this);
  PARAPET_DRIVER_CALL(cuCtxSynchronize);
}

CurrentContext::CurrentContext(const PrimaryContext& context) {
  PARAPET_DRIVER_CALL(cuCtxPushCurrent_v2, context.handle());
}

CurrentContext::~CurrentContext() {
  ContextHandle popped = nullptr;
  api().cuCtxPopCurrent_v2(&popped);
}

OutsideCapture::OutsideCapture() : mode_(kCaptureModeRelaxed) {
  PARAPET_DRIVER_CALL(cuThreadExchangeStreamCaptureMode, &mode_);
}

OutsideCapture::~OutsideCapture() {
  api().cuThreadExchangeStreamCaptureMode(&mode_);
}

Stream::Stream() {
  PARAPET_DRIVER_CALL(cuStreamCreate, &handle_, kStreamNonBlocking);
}

Stream::~Stream() {
  api().cuStreamDestroy_v2(handle_);
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
  const Stream stream;
  PARAPET_DRIVER_CALL(cuMemAlloc_v2, &pointer_, bytes);
  try {
    clear(stream.handle());
    PARAPET_DRIVER_CALL(cuStreamSynchronize, stream.handle());
  } catch (const Error&) {
    api().cuMemFree_v2(pointer_);
    throw;
  }
}

DeviceBuffer::~DeviceBuffer() {
  api().cuMemFree_v2(pointer_);
}

void DeviceBuffer::clear(StreamHandle stream) const {
  PARAPET_DRIVER_CALL(cuMemsetD8Async, pointer_, 0, bytes_, stream);
}

void DeviceBuffer::read(void* host, StreamHandle stream) const {
  PARAPET_DRIVER_CALL(cuMemcpyDtoHAsync_v2, host, pointer_, bytes_, stream);
  PARAPET_DRIVER_CALL(cuStreamSynchronize, stream);
}

StreamBuffer::StreamBuffer(std::size_t bytes, StreamHandle stream) : stream_(stream) {
  PARAPET_DRIVER_CALL(cuMemAllocAsync, &pointer_, bytes, stream);
}

StreamBuffer::~StreamBuffer() {
  api().cuMemFreeAsync(pointer_, stream_);
}

void* allocate_device_memory(std::size_t bytes) {
  DevicePointer pointer = 0;
  PARAPET_DRIVER_CALL(cuMemAlloc_v2, &pointer, std::max<std::size_t>(bytes, 1));
  return reinterpret_cast<void*>(pointer);
}

void free_device_memory(void* memory) noexcept {
  api().cuMemFree_v2(address(memory));
}

void copy_to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) PARAPET_DRIVER_CALL(cuMemcpyHtoD_v2, address(device), host, bytes);
}

void copy_from_device(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) PARAPET_DRIVER_CALL(cuMemcpyDtoH_v2, host, address(device), bytes);
}

void Function::launch(unsigned int blocks, int threads, const void* parameters,
                      StreamHandle stream) const {
  void* arguments[] = {const_cast<void*>(parameters)};  // the driver copies and does not write
  PARAPET_DRIVER_CALL(cuLaunchKernel, handle_, blocks, 1, 1, static_cast<unsigned int>(threads), 1,
                      1, shared_bytes_, stream, arguments, nullptr);
}

Module::Module(const KernelImage& image) {
  const Result result = api().cuModuleLoadData(&handle_, image.bytes.c_str());
  if (result == kInvalidImage || result == kNoBinaryForGpu || result == kUnsupportedPtxVersion) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("cuModuleLoadData: {}: the driver (CUDA {}) cannot load this kernel; a "
                            "newer driver or an older NVRTC is needed",
                            api().describe(result), version_text(api().version)));
  }
  api().check(result, "cuModuleLoadData");
}

Module::~Module() {
  api().cuModuleUnload(handle_);
}

Function Module::function(const char* name, int shared_bytes) const {
  FunctionHandle function = nullptr;
  PARAPET_DRIVER_CALL(cuModuleGetFunction, &function, handle_, name);
  PARAPET_DRIVER_CALL(cuFuncSetAttribute, function, kFunctionDynamicSharedBytes, shared_bytes);
  return {function, shared_bytes};
}

bool is_capturing(StreamHandle stream) {
  int status = kCaptureStatusNone;
  PARAPET_DRIVER_CALL(cuStreamIsCapturing, stream, &status);
  return status != kCaptureStatusNone;
}

}  // namespace parapet::cuda
