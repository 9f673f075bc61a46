#include "api/row_contiguous.h"

#include <cstdint>
#include <cstring>
#include <span>

namespace parapet::api {
namespace {

// Copies between tensors of one shape and dtype, from dimension `dim` on.
template <class Element>
void copy(const TensorView& from, const TensorView& to, int dim, const Element* source,
          Element* target) {
  const std::int64_t from_stride = from.strides[dim], to_stride = to.strides[dim];
  for (std::int64_t i = 0; i < from.shape[dim]; ++i) {
    if (dim + 1 == from.rank) {
      std::memcpy(target + i * to_stride, source + i * from_stride, sizeof(Element));
    } else {
      copy(from, to, dim + 1, source + i * from_stride, target + i * to_stride);
    }
  }
}

template <class Element>
void copy(const TensorView& from, const TensorView& to) {
  copy(from, to, 0, static_cast<const Element*>(from.data), static_cast<Element*>(to.data));
}

// Of which only the size matters.
void copy(const TensorView& from, const TensorView& to) {
  size_of(from.dtype) == 4 ? copy<std::uint32_t>(from, to) : copy<std::uint16_t>(from, to);
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
