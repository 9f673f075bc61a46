#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "parapet/error.h"
#include "parapet/tensor.h"

// How src/api says no. Messages read "<argument>: expected <what>, found <value>".

namespace parapet::api {

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> message, Values&&... values) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format(message, std::forward<Values>(values)...));
}

// "(2, 16, 8, 64)".
std::string shape_text(const TensorView& view);
std::string strides_text(const TensorView& view);

// "cpu" or "cuda:1".
std::string device_text(Device device);

}  // namespace parapet::api
