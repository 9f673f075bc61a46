#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/string.h>
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <string>

#include "cpu/forward.h"
#include "ffi/arguments.h"
#include "parapet/attention.h"
#include "parapet/error.h"
#include "parapet/info.h"

// The functions that python/parapet/_ffi.py calls.

namespace parapet::ffi {

namespace {

constexpr const char* kFloats = "dtype float32, float16 or bfloat16";
constexpr const char* kInt32 = "dtype int32";

const char* python_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "ValueError";
    case ErrorCode::kNotImplemented:
      return "NotImplementedError";
    case ErrorCode::kRuntime:
      return "RuntimeError";
  }
  return "RuntimeError";
}

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

// The stream that the framework of the arguments works on.
void* current_stream(Device device) {
  return device.type == DeviceType::kCuda ? TVMFFIEnvGetStream(kDLCUDA, device.index) : nullptr;
}

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
            .stream = current_stream(tensors.q.device),
        } {}

  Uint16 uint16;
  ForwardTensors tensors;
  ForwardOptions options;
};

void forward(Arguments arguments) {
  const Call call(arguments);
  parapet::forward(call.tensors, call.options);
}

// Seconds that the C++ call takes, the mean of `repeats`: what the Python call adds to.
double measure_forward(Arguments arguments) {
  const int repeats = to_int(arguments.take("repeats"));
  const Call call(arguments);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) parapet::forward(call.tensors, call.options);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / repeats;
}

// Runs the body of an exported function; parapet's errors become Python's, message unchanged.
template <class Body>
auto translating_errors(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw tvm::ffi::Error(python_name(error.code()), error.what(), "");
  }
}

// The memory of a tensor that parapet makes for a framework that it has no allocator of.
struct Allocator {
  static constexpr std::size_t kAlignment = 64;

  void AllocData(DLTensor* tensor) {
    const std::size_t bytes = tvm::ffi::GetDataSize(*tensor);
    tensor->data = ::operator new(bytes, std::align_val_t{kAlignment});
  }
  void FreeData(DLTensor* tensor) { ::operator delete(tensor->data, std::align_val_t{kAlignment}); }
};

tvm::ffi::Tensor empty(const tvm::ffi::Shape& shape, DLDataType dtype) {
  return tvm::ffi::Tensor::FromNDAlloc(Allocator(), shape, dtype, DLDevice{kDLCPU, 0});
}

void copy_rows(const DLTensor& from, const char* source, int dim, char*& target) {
  const auto element_size = static_cast<std::int64_t>(from.dtype.bits / 8);
  if (dim == from.ndim || (dim == from.ndim - 1 && from.strides[dim] == 1)) {
    const std::int64_t bytes = element_size * (dim == from.ndim ? 1 : from.shape[dim]);
    target = std::copy_n(source, bytes, target);
    return;
  }
  for (std::int64_t i = 0; i < from.shape[dim]; ++i) {
    copy_rows(from, source + i * from.strides[dim] * element_size, dim + 1, target);
  }
}

// A dense copy in C order, its elements as unsigned integers: what NumPy can import of any dtype.
tvm::ffi::Tensor dense_bits(const tvm::ffi::Tensor& tensor) {
  const DLTensor& from = *tensor.GetDLTensorPtr();
  const auto copy = empty(tvm::ffi::Shape(tensor.shape()), DLDataType{kDLUInt, from.dtype.bits, 1});
  auto* target = static_cast<char*>(copy.data_ptr());
  copy_rows(from, static_cast<const char*>(from.data) + from.byte_offset, 0, target);
  return copy;
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
  translating_errors([&] { forward({values, count}); });
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

TVM_FFI_DLL_EXPORT_TYPED_FUNC(empty, empty);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(dense_bits, dense_bits);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cpu_info, cpu_info);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(version, version);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(measure_fma_rate, cpu::measure_fma_rate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(measure_read_bandwidth, cpu::measure_read_bandwidth);

}  // namespace parapet::ffi
