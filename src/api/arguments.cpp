#include "api/arguments.h"

#include <algorithm>

namespace parapet::api {

Arguments::Arguments(const ForwardTensors& t) {
  const bool packed_q = t.cu_seqlens_q.has_value();
  const bool packed_k = t.cu_seqlens_k.has_value();

  const auto add_operand = [this](const char* name, const TensorView& view, Dim rows, Dim heads,
                                  Dim head_dim, const char* cu_seqlens, bool packed) -> Argument& {
    Argument& argument =
        packed ? add(name, view, Role::kOperand, {rows, heads, head_dim})
               : add(name, view, Role::kOperand, {Dim::kBatch, rows, heads, head_dim});
    argument.cu_seqlens = cu_seqlens;
    argument.packed = packed;
    return argument;
  };
  add_operand("q", t.q, Dim::kRowsQ, Dim::kHeads, Dim::kHeadDim, "cu_seqlens_q", packed_q);
  add_operand("k", t.k, Dim::kRowsK, Dim::kHeadsK, Dim::kHeadDim, "cu_seqlens_k", packed_k);
  add_operand("v", t.v, Dim::kRowsK, Dim::kHeadsK, Dim::kHeadDimV, "cu_seqlens_k", packed_k);
  add_operand("out", t.out, Dim::kRowsQ, Dim::kHeads, Dim::kHeadDimV, "cu_seqlens_q", packed_q)
      .written = true;

  if (t.lse) {
    Argument& lse = packed_q
                        ? add("lse", *t.lse, Role::kLse, {Dim::kHeads, Dim::kRowsQ})
                        : add("lse", *t.lse, Role::kLse, {Dim::kBatch, Dim::kHeads, Dim::kRowsQ});
    lse.written = true;
    lse.cu_seqlens = "cu_seqlens_q";
    lse.packed = packed_q;
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

Argument& Arguments::add(const char* name, const TensorView& view, Role role,
                         std::initializer_list<Dim> dims) {
  Argument& argument = arguments_[count_++];
  argument.name = name;
  argument.view = &view;
  argument.role = role;
  argument.rank = static_cast<int>(dims.size());
  std::ranges::copy(dims, argument.dims.begin());
  return argument;
}

}  // namespace parapet::api
