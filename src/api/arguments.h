#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>

#include "parapet/attention.h"
#include "plan/host_device.h"

// The tensors of a call as a table, so that a check is a loop over it.

namespace parapet::api {

using plan::int64;

// The extents that tensors share. kEntries is the batch plus 1.
enum class Dim { kBatch, kEntries, kRowsQ, kRowsK, kHeads, kHeadsK, kHeadDim, kHeadDimV };

enum class Role {
  kOperand,  // q, k, v, out: one of the float dtypes, all the same
  kLse,      // float32
  kLengths,  // int32, without gaps
  kSink,     // one of the float dtypes
};

struct Argument {
  const char* name = nullptr;
  const TensorView* view = nullptr;
  Role role = Role::kOperand;
  bool written = false;
  const char* cu_seqlens = nullptr;  // name of the argument that decides whether this one is packed
  bool packed = false;
  int rank = 0;
  std::array<Dim, TensorView::kMaxRank> dims{};
};

// The arguments that a call was given, q first.
class Arguments {
 public:
  explicit Arguments(const ForwardTensors& tensors);
  // The table points into the tensors.
  explicit Arguments(ForwardTensors&&) = delete;

  const Argument* begin() const { return arguments_.data(); }
  const Argument* end() const { return arguments_.data() + count_; }

 private:
  Argument& add(const char* name, const TensorView& view, Role role,
                std::initializer_list<Dim> dims);

  std::array<Argument, 10> arguments_;
  std::size_t count_ = 0;
};

}  // namespace parapet::api
