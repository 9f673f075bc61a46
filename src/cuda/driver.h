#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cuda/arch.h"
#include "cuda/nvrtc.h"

// The CUDA driver: the only place that knows libcuda, which is opened when a call first needs a
// GPU. Failures are Error(kRuntime) with the driver's own name for them.

namespace parapet::cuda {

using DevicePointer = std::uint64_t;
using StreamHandle = struct CUstream_st*;
using ContextHandle = struct CUctx_st*;
using ModuleHandle = struct CUmod_st*;
using FunctionHandle = struct CUfunc_st*;

// The oldest compute capability (its major number) whose instructions the kernels use.
inline constexpr int kOldestCapability = 8;

struct GpuProperties {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int num_multiprocessors = 0;
  int shared_bytes_per_multiprocessor = 0;
  std::int64_t memory_bytes = 0;
};

// libcuda itself. The members below are of the process; those of a GPU need its context.
class Driver {
 public:
  // Opens the driver once. Throws, again at each call, while there is none that works.
  static const Driver& instance();
  // The CUDA version of the driver, such as 13 for 13.0; nothing without a driver.
  static std::optional<int> major_version();

  const std::string& version() const { return version_; }
  int device_count() const;
  GpuProperties properties(int device) const;

 private:
  Driver();
  std::string version_;
};

// The primary context of a GPU, the one that the CUDA runtime and so every framework uses. Kept
// until the process ends.
class PrimaryContext {
 public:
  explicit PrimaryContext(int device);
  ContextHandle handle() const { return handle_; }

  // Waits for all work on the GPU.
  void synchronize() const;

 private:
  ContextHandle handle_ = nullptr;
};

// Makes a context the calling thread's current one, and puts the thread's own back at the end.
class CurrentContext {
 public:
  explicit CurrentContext(const PrimaryContext& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

// While it lives, this thread may allocate and load code although a stream is being captured into a
// graph; these acts take place at once and are no part of the graph.
class OutsideCapture {
 public:
  OutsideCapture();
  ~OutsideCapture();
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  int mode_;
};

// The classes and functions below need a current context.

// A stream that waits for no other, the default stream included.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamHandle handle() const { return handle_; }

 private:
  StreamHandle handle_ = nullptr;
};

// Zeroed memory on the GPU.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* data() const { return reinterpret_cast<void*>(pointer_); }
  // Copies the contents to the host once everything queued on `stream` has run, and waits for that.
  void read(void* host, StreamHandle stream) const;
  void clear(StreamHandle stream) const;

 private:
  DevicePointer pointer_ = 0;
  std::size_t bytes_;
};

// Memory from the driver's pool that exists for what is queued on `stream` between this object's
// beginning and end.
class StreamBuffer {
 public:
  StreamBuffer(std::size_t bytes, StreamHandle stream);
  ~StreamBuffer();
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;

  void* data() const { return reinterpret_cast<void*>(pointer_); }

 private:
  DevicePointer pointer_ = 0;
  StreamHandle stream_;
};

// Memory of unknown contents, that of no bytes included. Freeing it waits for the whole GPU.
void* allocate_device_memory(std::size_t bytes);
void free_device_memory(void* memory) noexcept;
// Done when they return.
void copy_to_device(void* device, const void* host, std::size_t bytes);
void copy_from_device(void* host, const void* device, std::size_t bytes);

// A kernel of a loaded module.
class Function {
 public:
  Function() = default;
  Function(FunctionHandle handle, int shared_bytes)
      : handle_(handle), shared_bytes_(static_cast<unsigned int>(shared_bytes)) {}

  // Queues the kernel on `stream`. `parameters` is its only parameter, copied before this returns.
  void launch(unsigned int blocks, int threads, const void* parameters, StreamHandle stream) const;

 private:
  FunctionHandle handle_ = nullptr;
  unsigned int shared_bytes_ = 0;
};

// Loaded code.
class Module {
 public:
  explicit Module(const KernelImage& image);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // The kernel `name`, with the dynamic shared memory that each of its launches asks for.
  Function function(const char* name, int shared_bytes) const;

 private:
  ModuleHandle handle_ = nullptr;
};

// Whether `stream` is being captured into a graph.
bool is_capturing(StreamHandle stream);

}  // namespace parapet::cuda
