#pragma once

#include <tvm/ffi/error.h>

#include "parapet/error.h"

namespace parapet::ffi {

inline const char* python_name(ErrorCode code) {
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

// Runs the body of a function that Python calls; parapet's errors become Python's, message
// unchanged.
template <class Body>
auto translating_errors(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw tvm::ffi::Error(python_name(error.code()), error.what(), "");
  }
}

}  // namespace parapet::ffi
