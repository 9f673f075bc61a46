#include "api/row_contiguous.h"

#include <cstdint>
#include <cstring>
#include <span>

namespace parapet::api {
namespace {

// Copies between tensors of one shape and dtype, from dimension kDim on.
template <class Element, int kDim = 0>
void copy(const TensorView& from, const TensorView& to, const Element* source, Element* target) {
  if constexpr (kDim < TensorView::kMaxRank) {
    if (kDim < from.rank) {
      for (std::int64_t i = 0; i < from.shape[kDim]; ++i) {
        copy<Element, kDim + 1>(from, to, source + i * from.strides[kDim],
                                target + i * to.strides[kDim]);
      }
      return;
    }
  }
  std::memcpy(target, source, sizeof(Element));
}

template <class Element>
void copy_elements(const TensorView& from, const TensorView& to) {
  copy(from, to, static_cast<const Element*>(from.data), static_cast<Element*>(to.data));
}

// Of which only the size matters.
void copy(const TensorView& from, const TensorView& to) {
  size_of(from.dtype) == 4 ? copy_elements<std::uint32_t>(from, to)
                           : copy_elements<std::uint16_t>(from, to);
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
