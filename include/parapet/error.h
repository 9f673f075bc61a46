#pragma once

#include <stdexcept>
#include <string>

#include "parapet/export.h"

namespace parapet {

enum class ErrorCode {
  kInvalidArgument,  // an argument is malformed or disagrees with another one; Python: ValueError
  kNotImplemented,   // a valid request that this version cannot serve; Python: NotImplementedError
  kRuntime,  // the machine failed: no memory, no driver, an unreadable file; Python: RuntimeError
};

// The only exception type that parapet throws. The message names the argument, the value found and
// what was expected.
class PARAPET_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);

  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace parapet
