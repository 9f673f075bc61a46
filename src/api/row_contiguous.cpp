#include "api/row_contiguous.h"

#include <cstdint>
#include <cstring>
#include <span>

namespace parapet::api {
namespace {

// Copies between tensors of one shape and dtype.
template <std::size_t kSize>
void copy(const TensorView& from, const TensorView& to, int dim, std::int64_t from_offset,
          std::int64_t to_offset) {
  if (dim == from.rank) {
    std::memcpy(static_cast<std::byte*>(to.data) + to_offset * std::int64_t{kSize},
                static_cast<const std::byte*>(from.data) + from_offset * std::int64_t{kSize},
                kSize);
    return;
  }
  for (std::int64_t i = 0; i < from.shape[dim]; ++i) {
    copy<kSize>(from, to, dim + 1, from_offset + i * from.strides[dim],
                to_offset + i * to.strides[dim]);
  }
}

void copy(const TensorView& from, const TensorView& to) {
  size_of(from.dtype) == 4 ? copy<4>(from, to, 0, 0, 0) : copy<2>(from, to, 0, 0, 0);
}

}  // namespace

bool is_row_contiguous(const TensorView& view) {
  return view.shape[view.rank - 1] <= 1 || view.strides[view.rank - 1] == 1 ||
         view.num_elements() == 0;
}

RowContiguous::RowContiguous(const ForwardTensors& tensors)
    : tensors_(tensors),
      out_(tensors.out),
      q_bytes_(replace_with_copy(tensors_.q)),
      k_bytes_(replace_with_copy(tensors_.k)),
      v_bytes_(replace_with_copy(tensors_.v)),
      out_bytes_(is_row_contiguous(out_) ? nullptr : replace(tensors_.out)) {}

void RowContiguous::write_back() const {
  if (out_bytes_) copy(tensors_.out, out_);
}

RowContiguous::Bytes RowContiguous::replace(TensorView& view) {
  Bytes bytes(new std::byte[static_cast<std::size_t>(view.num_elements() * size_of(view.dtype))]);
  view = TensorView::contiguous(bytes.get(), view.dtype,
                                std::span(view.shape.data(), static_cast<std::size_t>(view.rank)));
  return bytes;
}

RowContiguous::Bytes RowContiguous::replace_with_copy(TensorView& view) {
  if (is_row_contiguous(view)) return nullptr;
  const TensorView original = view;
  Bytes bytes = replace(view);
  copy(original, view);
  return bytes;
}

}  // namespace parapet::api
