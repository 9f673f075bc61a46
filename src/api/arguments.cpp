#include "api/arguments.h"

#include <algorithm>

namespace parapet::api {

Arguments::Arguments(const ForwardTensors& t) {
  const char* packed_q = t.cu_seqlens_q ? "cu_seqlens_q" : nullptr;
  const char* packed_k = t.cu_seqlens_k ? "cu_seqlens_k" : nullptr;

  const auto add_rows = [this](const char* name, const TensorView& view, Dim rows, Dim heads,
                               Dim head_dim, const char* packed_by, bool written = false) {
    if (packed_by) {
      add(name, view, Role::kOperand, {rows, heads, head_dim}, written, packed_by);
    } else {
      add(name, view, Role::kOperand, {Dim::kBatch, rows, heads, head_dim}, written);
    }
  };
  add_rows("q", t.q, Dim::kRowsQ, Dim::kHeads, Dim::kHeadDim, packed_q);
  add_rows("k", t.k, Dim::kRowsK, Dim::kHeadsK, Dim::kHeadDim, packed_k);
  add_rows("v", t.v, Dim::kRowsK, Dim::kHeadsK, Dim::kHeadDimV, packed_k);
  add_rows("out", t.out, Dim::kRowsQ, Dim::kHeads, Dim::kHeadDimV, packed_q, true);
  if (t.lse && packed_q) {
    add("lse", *t.lse, Role::kLse, {Dim::kHeads, Dim::kRowsQ}, true, packed_q);
  } else if (t.lse) {
    add("lse", *t.lse, Role::kLse, {Dim::kBatch, Dim::kHeads, Dim::kRowsQ}, true);
  }

  const auto add_vector = [this](const char* name, const std::optional<TensorView>& view, Role role,
                                 Dim dim) {
    if (view) add(name, *view, role, {dim});
  };
  add_vector("cu_seqlens_q", t.cu_seqlens_q, Role::kLengths, Dim::kEntries);
  add_vector("cu_seqlens_k", t.cu_seqlens_k, Role::kLengths, Dim::kEntries);
  add_vector("seqused_q", t.seqused_q, Role::kLengths, Dim::kBatch);
  add_vector("seqused_k", t.seqused_k, Role::kLengths, Dim::kBatch);
  add_vector("learnable_sink", t.learnable_sink, Role::kSink, Dim::kHeads);
}

void Arguments::add(const char* name, const TensorView& view, Role role,
                    std::initializer_list<Dim> dims, bool written, const char* packed_by) {
  Argument& argument = arguments_[count_++];
  argument = {name, &view, role, written, packed_by, static_cast<int>(dims.size()), {}};
  std::ranges::copy(dims, argument.dims.begin());
}

}  // namespace parapet::api
