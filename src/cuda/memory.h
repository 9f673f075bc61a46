#pragma once

#include <cstdint>

// GPU memory for those who have no framework to take it from. Everything here waits for what is
// queued on the GPU, and throws Error(kRuntime) where the driver refuses.

namespace parapet::cuda {

void* allocate(int gpu, std::int64_t bytes);
void free(int gpu, void* memory) noexcept;

void copy_to_gpu(int gpu, void* to, const void* from, std::int64_t bytes);
void copy_to_host(int gpu, void* to, const void* from, std::int64_t bytes);

void wait(int gpu);

}  // namespace parapet::cuda
