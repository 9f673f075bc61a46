#pragma once

#include <cstddef>

#include "emulate/call.h"

namespace parapet::emulate {

// For an access of the running thread to global memory: checks that it is aligned to `bytes` and
// lies in one of the block's windows.
void check_read(const void* from, std::size_t bytes, const Call& call);
void check_write(void* to, std::size_t bytes, const Call& call);

}  // namespace parapet::emulate
