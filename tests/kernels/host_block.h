#pragma once

#include <cstddef>
#include <functional>

namespace parapet::test {

// Runs `kernel` as one block of `threads` host threads that share `shared_bytes` of memory: enough
// of arch/ for integer kernels.
void run_block(unsigned threads, std::size_t shared_bytes, const std::function<void()>& kernel);

}  // namespace parapet::test
