#include "ffi/arguments.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>

#include "parapet/error.h"

namespace parapet::ffi {

namespace {

[[noreturn]] void refuse(const Argument& argument, const char* expected, const std::string& found) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}: expected {}, found {}", argument.name, expected, found));
}

[[noreturn]] void refuse_type(const Argument& argument, const char* expected) {
  const std::string found = argument.value.GetTypeKey();
  if (found == "ffi.BigInt") refuse(argument, expected, "one of more than 64 bits");
  throw tvm::ffi::Error(
      "TypeError", fmt::format("{}: expected {}, found {}", argument.name, expected, found), "");
}

template <class T>
T to_scalar(const Argument& argument, const char* expected) {
  const std::optional<T> value = argument.value.try_cast<T>();
  if (!value) refuse_type(argument, expected);
  return *value;
}

// A double that float32 cannot hold would arrive as infinity, or as zero, which may mean "off".
float to_float32(const Argument& argument, const char* expected) {
  const auto value = to_scalar<double>(argument, expected);
  const auto result = static_cast<float>(value);
  if (std::isfinite(value) && (!std::isfinite(result) || (result == 0) != (value == 0))) {
    refuse(argument, "a number within float32's range", fmt::format("{}", value));
  }
  return result;
}

std::optional<DType> to_dtype(DLDataType dtype, Uint16 uint16) {
  if (dtype.lanes != 1) return std::nullopt;
  if (dtype.code == kDLFloat && dtype.bits == 32) return DType::kFloat32;
  if (dtype.code == kDLFloat && dtype.bits == 16) return DType::kFloat16;
  if (dtype.code == kDLBfloat && dtype.bits == 16) return DType::kBFloat16;
  if (dtype.code == kDLInt && dtype.bits == 32) return DType::kInt32;
  if (dtype.code == kDLUInt && dtype.bits == 16 && uint16 == Uint16::kIsBFloat16) {
    return DType::kBFloat16;
  }
  return std::nullopt;
}

std::optional<Device> to_device(DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return Device{DeviceType::kCpu, 0};
    case kDLCUDA:
      return Device{DeviceType::kCuda, device.device_id};
    default:
      return std::nullopt;
  }
}

}  // namespace

TensorView to_tensor(const Argument& argument, const char* expected, Uint16 uint16) {
  const auto* tensor = to_scalar<DLTensor*>(argument, "a tensor");
  const auto dtype = to_dtype(tensor->dtype, uint16);
  if (!dtype) refuse(argument, expected, tvm::ffi::DLDataTypeToString(tensor->dtype));
  const auto device = to_device(tensor->device);
  if (!device) {
    refuse(argument, "a tensor in the memory of a CPU or of a CUDA device",
           fmt::format("DLPack device type {}", static_cast<int>(tensor->device.device_type)));
  }
  if (tensor->ndim > TensorView::kMaxRank) {
    refuse(argument, "at most 4 dimensions", std::to_string(tensor->ndim));
  }

  TensorView view{static_cast<char*>(tensor->data) + tensor->byte_offset,
                  *dtype,
                  *device,
                  tensor->ndim,
                  {},
                  {}};
  std::int64_t dense_stride = 1;
  for (int dim = view.rank - 1; dim >= 0; --dim) {
    view.shape[dim] = tensor->shape[dim];
    view.strides[dim] = tensor->strides ? tensor->strides[dim] : dense_stride;
    dense_stride *= tensor->shape[dim];
  }
  return view;
}

std::optional<TensorView> to_optional_tensor(const Argument& argument, const char* expected,
                                             Uint16 uint16) {
  if (argument.value == nullptr) return std::nullopt;
  return to_tensor(argument, expected, uint16);
}

std::optional<float> to_optional_float(const Argument& argument) {
  if (argument.value == nullptr) return std::nullopt;
  return to_float32(argument, "a number or None");
}

std::optional<std::int64_t> to_optional_int(const Argument& argument) {
  if (argument.value == nullptr) return std::nullopt;
  return to_scalar<std::int64_t>(argument, "an integer or None");
}

float to_float(const Argument& argument) {
  return to_float32(argument, "a number");
}

int to_int(const Argument& argument) {
  const auto value = to_scalar<std::int64_t>(argument, "an integer");
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    refuse(argument, "an integer of 32 bits", std::to_string(value));
  }
  return static_cast<int>(value);
}

bool to_bool(const Argument& argument) {
  return to_scalar<bool>(argument, "a bool");
}

}  // namespace parapet::ffi
