#pragma once

#include <cstddef>
#include <vector>

namespace parapet::cuda {

// How the host sees kernels::ForwardParams. Every generated unit asserts that the device compiler
// sees the same.
struct ParamLayout {
  struct Field {
    const char* name;
    std::size_t offset;
  };
  std::size_t size = 0;
  std::vector<Field> fields;
};

ParamLayout forward_param_layout();

}  // namespace parapet::cuda
