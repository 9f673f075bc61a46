#include "cuda/fake/driver.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace parapet::testing {

FakeDriver& FakeDriver::instance() {
  static FakeDriver driver;
  return driver;
}

std::vector<void*>& fake_contexts() {
  thread_local std::vector<void*> contexts;
  return contexts;
}

int& fake_capture_mode() {
  thread_local int mode = 0;
  return mode;
}

namespace {

constexpr int kInvalidValue = 1;
constexpr int kInvalidContext = 201;

FakeDriver& fake() {
  return FakeDriver::instance();
}

// Notes a call that is not allowed while a stream is captured, unless the thread relaxed the rule.
void note_unsafe(const char* function) {
  const std::lock_guard lock(fake().mutex);
  if (fake().capturing && fake_capture_mode() == 0) fake().prohibited.emplace_back(function);
}

int need_context() {
  return fake_contexts().empty() ? kInvalidContext : 0;
}

}  // namespace
}  // namespace parapet::testing

using parapet::testing::fake_contexts;

#define FAKE extern "C" __attribute__((visibility("default"))) int

FAKE cuGetErrorName(int result, const char** text) {
  *text = result == 222 ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" : "CUDA_ERROR_PRETENDED";
  return 0;
}
FAKE cuGetErrorString(int, const char** text) {
  *text = "a pretended failure";
  return 0;
}
FAKE cuInit(unsigned int) {
  return parapet::testing::fake().init_result;
}
FAKE cuDriverGetVersion(int* version) {
  *version = parapet::testing::fake().version;
  return 0;
}
// NVRTC asks for one where there is a driver, and takes a refusal.
FAKE cuGetExportTable(const void**, const void*) {
  return parapet::testing::kInvalidValue;
}
FAKE cuDeviceGetCount(int* count) {
  *count = parapet::testing::fake().device_count;
  return 0;
}
FAKE cuDeviceGet(int* device, int ordinal) {
  *device = 100 + ordinal;  // a handle is not an ordinal
  return 0;
}
FAKE cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(size));
  return 0;
}
FAKE cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device < 100) return parapet::testing::kInvalidValue;
  const int capability = parapet::testing::fake().capability;
  switch (attribute) {
    case 16:
      *value = 132;
      break;
    case 81:
      *value = 228 * 1024;
      break;
    case 75:
      *value = capability / 10;
      break;
    case 76:
      *value = capability % 10;
      break;
    default:
      return parapet::testing::kInvalidValue;
  }
  return 0;
}
FAKE cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{141} << 30;
  return 0;
}
FAKE cuDevicePrimaryCtxRetain(void** context, int device) {
  if (device < 100) return parapet::testing::kInvalidValue;
  *context = reinterpret_cast<void*>(std::intptr_t{device});
  return 0;
}
FAKE cuCtxPushCurrent_v2(void* context) {
  fake_contexts().push_back(context);
  return 0;
}
FAKE cuCtxPopCurrent_v2(void** context) {
  if (fake_contexts().empty()) return parapet::testing::kInvalidContext;
  *context = fake_contexts().back();
  fake_contexts().pop_back();
  return 0;
}
FAKE cuCtxSynchronize() {
  parapet::testing::note_unsafe("cuCtxSynchronize");
  ++parapet::testing::fake().synchronized;
  return parapet::testing::need_context();
}
FAKE cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, parapet::testing::fake_capture_mode());
  return 0;
}
FAKE cuStreamIsCapturing(void*, int* status) {
  *status = parapet::testing::fake().capturing ? 1 : 0;
  return 0;
}
FAKE cuStreamSynchronize(void*) {
  parapet::testing::note_unsafe("cuStreamSynchronize");
  ++parapet::testing::fake().synchronized;
  return 0;
}
FAKE cuStreamCreate(void** stream, unsigned int) {
  *stream = reinterpret_cast<void*>(std::intptr_t{7});
  return parapet::testing::need_context();
}
FAKE cuStreamDestroy_v2(void*) {
  return 0;
}
FAKE cuMemAlloc_v2(std::uint64_t* pointer, std::size_t bytes) {
  parapet::testing::note_unsafe("cuMemAlloc");
  *pointer = reinterpret_cast<std::uintptr_t>(std::malloc(bytes));
  return parapet::testing::need_context();
}
FAKE cuMemFree_v2(std::uint64_t pointer) {
  std::free(reinterpret_cast<void*>(pointer));
  return 0;
}
FAKE cuMemAllocAsync(std::uint64_t* pointer, std::size_t bytes, void*) {
  const std::lock_guard lock(parapet::testing::fake().mutex);
  ++parapet::testing::fake().live_pool_buffers;
  *pointer = reinterpret_cast<std::uintptr_t>(std::malloc(bytes));
  return 0;
}
FAKE cuMemFreeAsync(std::uint64_t pointer, void*) {
  const std::lock_guard lock(parapet::testing::fake().mutex);
  --parapet::testing::fake().live_pool_buffers;
  std::free(reinterpret_cast<void*>(pointer));
  return 0;
}
FAKE cuMemsetD8Async(std::uint64_t pointer, unsigned char value, std::size_t bytes, void*) {
  std::memset(reinterpret_cast<void*>(pointer), value, bytes);
  return 0;
}
FAKE cuMemcpyDtoHAsync_v2(void* host, std::uint64_t pointer, std::size_t bytes, void*) {
  std::memcpy(host, reinterpret_cast<const void*>(pointer), bytes);
  return 0;
}
FAKE cuMemcpyDtoH_v2(void* host, std::uint64_t pointer, std::size_t bytes) {
  std::memcpy(host, reinterpret_cast<const void*>(pointer), bytes);
  return parapet::testing::need_context();
}
FAKE cuMemcpyHtoD_v2(std::uint64_t pointer, const void* host, std::size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(pointer), host, bytes);
  return parapet::testing::need_context();
}
FAKE cuModuleLoadData(void** module, const void*) {
  parapet::testing::note_unsafe("cuModuleLoadData");
  const std::lock_guard lock(parapet::testing::fake().mutex);
  ++parapet::testing::fake().modules_loaded;
  *module = reinterpret_cast<void*>(std::intptr_t{11});
  return parapet::testing::fake().module_load_result;
}
FAKE cuModuleUnload(void*) {
  return 0;
}
FAKE cuModuleGetFunction(void** function, void*, const char* name) {
  *function = const_cast<char*>(name);  // of static storage
  return 0;
}
FAKE cuFuncSetAttribute(void*, int, int) {
  return 0;
}
FAKE cuLaunchKernel(void* function, unsigned int grid_x, unsigned int, unsigned int,
                    unsigned int block_x, unsigned int, unsigned int, unsigned int shared_bytes,
                    void* stream, void** parameters, void**) {
  auto& fake = parapet::testing::fake();
  if (fake_contexts().empty()) return parapet::testing::kInvalidContext;
  const std::lock_guard lock(fake.mutex);
  fake.launches.push_back({static_cast<const char*>(function), grid_x, block_x, shared_bytes,
                           stream, fake_contexts().back(),
                           *static_cast<const parapet::kernels::ForwardParams*>(parameters[0])});
  return fake.launch_result;
}
