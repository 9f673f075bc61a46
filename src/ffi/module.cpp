#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/string.h>
#include <tvm/ffi/tvm_ffi.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cpu/forward.h"
#include "cuda/forward.h"
#include "cuda/memory.h"
#include "ffi/arguments.h"
#include "ffi/errors.h"
#include "ffi/tensors.h"
#include "parapet/attention.h"
#include "parapet/info.h"

// The functions that python/parapet/_ffi.py calls.

namespace parapet::ffi {

namespace {

constexpr const char* kFloats = "dtype float32, float16 or bfloat16";
constexpr const char* kInt32 = "dtype int32";

// The arguments of a function, taken one after the other.
class Arguments {
 public:
  Arguments(const TVMFFIAny* values, std::int32_t count)
      : next_(reinterpret_cast<const AnyView*>(values)), end_(next_ + count) {}

  Argument take(const char* name) {
    if (next_ == end_) throw tvm::ffi::Error("TypeError", std::string(name) + ": missing", "");
    return {name, *next_++};
  }

 private:
  const AnyView* next_;
  const AnyView* end_;
};

// What tvm-ffi was told by the framework that the arguments come from: the stream that it works on,
// and memory, which the framework has back when this ends. It may be reused then by what is queued
// on the same stream later.
class Framework {
 public:
  explicit Framework(Device device) : device_{kDLCUDA, device.index} {}

  void* stream() const { return TVMFFIEnvGetStream(device_.device_type, device_.device_id); }

  void* allocate(std::int64_t bytes) {
    return memory_
        .emplace_back(tvm::ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, {bytes},
                                                     DLDataType{kDLUInt, 8, 1}, device_))
        .data_ptr();
  }

 private:
  DLDevice device_;
  std::vector<tvm::ffi::Tensor> memory_;
};

struct Call {
  explicit Call(Arguments arguments)
      : uint16(to_bool(arguments.take("uint16_is_bfloat16")) ? Uint16::kIsBFloat16
                                                             : Uint16::kIsUint16),
        tensors{
            .q = to_tensor(arguments.take("q"), kFloats, uint16),
            .k = to_tensor(arguments.take("k"), kFloats, uint16),
            .v = to_tensor(arguments.take("v"), kFloats, uint16),
            .out = to_tensor(arguments.take("out"), kFloats, uint16),
            .lse = to_optional_tensor(arguments.take("lse"), kFloats, uint16),
            .cu_seqlens_q = to_optional_tensor(arguments.take("cu_seqlens_q"), kInt32, uint16),
            .cu_seqlens_k = to_optional_tensor(arguments.take("cu_seqlens_k"), kInt32, uint16),
            .seqused_q = to_optional_tensor(arguments.take("seqused_q"), kInt32, uint16),
            .seqused_k = to_optional_tensor(arguments.take("seqused_k"), kInt32, uint16),
            .learnable_sink = to_optional_tensor(arguments.take("learnable_sink"), kFloats, uint16),
        },
        options{
            .softmax_scale = to_optional_float(arguments.take("softmax_scale")),
            .causal = to_bool(arguments.take("causal")),
            .window_left = to_optional_int(arguments.take("window_left")),
            .window_right = to_optional_int(arguments.take("window_right")),
            .softcap = to_float(arguments.take("softcap")),
            .num_splits = to_int(arguments.take("num_splits")),
        },
        stream(to_optional_int(arguments.take("stream"))) {}

  void run() const {
    ForwardOptions there = options;
    Framework framework(tensors.q.device);
    if (stream) {
      there.stream = reinterpret_cast<void*>(*stream);
    } else if (tensors.q.device.type == DeviceType::kCuda) {
      there.stream = framework.stream();
      there.allocate = [&](std::int64_t bytes) { return framework.allocate(bytes); };
    }
    forward(tensors, there);
  }

  Uint16 uint16;
  ForwardTensors tensors;
  ForwardOptions options;
  std::optional<std::int64_t> stream;  // else the one that tvm-ffi knows of, with its memory
};

// Seconds that the C++ call takes, the mean of `repeats`: what the Python call adds to. On a GPU
// that is the time to queue it.
double measure_forward(Arguments arguments) {
  const int repeats = to_int(arguments.take("repeats"));
  const Call call(arguments);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) call.run();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / repeats;
}

void check() {
  translating_errors([] { cuda::check(); });
}

void wait(DLDevice device) {
  if (device.device_type == kDLCUDA) translating_errors([&] { cuda::wait(device.device_id); });
}

tvm::ffi::Array<tvm::ffi::Any> cpu_info() {
  const CpuInfo info = parapet::cpu_info();
  tvm::ffi::Array<tvm::ffi::String> targets;
  for (const auto& target : info.simd_targets) targets.push_back(target);
  return {tvm::ffi::String(info.simd_target), targets, info.num_threads};
}

tvm::ffi::String version() {
  return parapet::version();
}

}  // namespace

extern "C" {
TVM_FFI_DLL_EXPORT int __tvm_ffi_forward(void*, const TVMFFIAny* values, std::int32_t count,
                                         TVMFFIAny*) {
  TVM_FFI_SAFE_CALL_BEGIN();
  translating_errors([&] { Call({values, count}).run(); });
  TVM_FFI_SAFE_CALL_END();
}

TVM_FFI_DLL_EXPORT int __tvm_ffi_measure_forward(void*, const TVMFFIAny* values, std::int32_t count,
                                                 TVMFFIAny* result) {
  TVM_FFI_SAFE_CALL_BEGIN();
  *reinterpret_cast<tvm::ffi::Any*>(result) =
      translating_errors([&] { return measure_forward({values, count}); });
  TVM_FFI_SAFE_CALL_END();
}
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(check, check);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(wait, wait);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(empty, empty);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(dense_bits, dense_bits);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cpu_info, cpu_info);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(version, version);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(measure_fma_rate, cpu::measure_fma_rate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(measure_read_bandwidth, cpu::measure_read_bandwidth);

}  // namespace parapet::ffi
