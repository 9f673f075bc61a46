#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "parapet/attention.h"

namespace parapet::api {

// Whether the elements along the last dimension are neighbours.
bool is_row_contiguous(const TensorView& view);

// A backend reads and writes the elements of a head one after the other. These are a call's tensors
// with a densely packed copy in place of each of q, k, v and out that is not stored like that.
class RowContiguous {
 public:
  explicit RowContiguous(const ForwardTensors& tensors);

  const ForwardTensors& tensors() const { return tensors_; }

  // Brings results that were written to a copy home.
  void write_back() const;

 private:
  using Bytes = std::unique_ptr<std::byte[]>;

  // Points `view` to a new allocation of its shape, which the caller owns.
  static Bytes replace(TensorView& view);
  static Bytes replace_with_copy(TensorView& view);

  ForwardTensors tensors_;
  TensorView out_;
  Bytes q_bytes_, k_bytes_, v_bytes_, out_bytes_;
};

}  // namespace parapet::api
