#pragma once

#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <optional>

#include "parapet/tensor.h"

// What Python passes, turned into what the C++ interface takes. Errors name the argument.

namespace parapet::ffi {

using tvm::ffi::AnyView;

// An argument and the name that Python has for it.
struct Argument {
  const char* name;
  AnyView value;
};

// How tensors are read. DLPack has a type for bfloat16, but NumPy cannot export it and passes the
// bits as uint16.
enum class Uint16 { kIsUint16, kIsBFloat16 };

// `expected` names the dtypes that fit. None is not a tensor, except where it is optional.
TensorView to_tensor(const Argument& argument, const char* expected, Uint16 uint16);
std::optional<TensorView> to_optional_tensor(const Argument& argument, const char* expected,
                                             Uint16 uint16);

std::optional<float> to_optional_float(const Argument& argument);
std::optional<std::int64_t> to_optional_int(const Argument& argument);
float to_float(const Argument& argument);
int to_int(const Argument& argument);
bool to_bool(const Argument& argument);

}  // namespace parapet::ffi
