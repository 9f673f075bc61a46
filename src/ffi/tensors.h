#pragma once

#include <tvm/ffi/container/tensor.h>

// Tensors that parapet makes itself, for frameworks that it knows no allocator of.

namespace parapet::ffi {

// Of unknown contents, on a CPU or a CUDA device.
tvm::ffi::Tensor empty(const tvm::ffi::Shape& shape, DLDataType dtype, DLDevice device);

// A dense copy in C order in the host's memory, its elements as unsigned integers: what NumPy can
// import of any dtype. Waits for a GPU.
tvm::ffi::Tensor dense_bits(const tvm::ffi::Tensor& tensor);

}  // namespace parapet::ffi
