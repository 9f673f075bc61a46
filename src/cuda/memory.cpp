#include "cuda/memory.h"

#include "cuda/gpu.h"
#include "parapet/error.h"

namespace parapet::cuda {

void* allocate(int gpu, std::int64_t bytes) {
  const CurrentContext current(Gpu::get(gpu).context());
  return allocate_device_memory(static_cast<std::size_t>(bytes));
}

void free(int gpu, void* memory) noexcept {
  try {
    const CurrentContext current(Gpu::get(gpu).context());
    free_device_memory(memory);
  } catch (const Error&) {  // at exit, when the driver has gone and the memory with it
  }
}

void copy_to_gpu(int gpu, void* to, const void* from, std::int64_t bytes) {
  const PrimaryContext& context = Gpu::get(gpu).context();
  const CurrentContext current(context);
  context.synchronize();
  copy_to_device(to, from, static_cast<std::size_t>(bytes));
}

void copy_to_host(int gpu, void* to, const void* from, std::int64_t bytes) {
  const PrimaryContext& context = Gpu::get(gpu).context();
  const CurrentContext current(context);
  context.synchronize();
  copy_from_device(to, from, static_cast<std::size_t>(bytes));
}

void wait(int gpu) {
  Gpu::get(gpu).context().synchronize();
}

}  // namespace parapet::cuda
