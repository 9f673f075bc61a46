#include "cuda/param_layout.h"

#include "kernels/core/params.h"

namespace parapet::cuda {
namespace {

using kernels::ForwardParams;

struct SizedField {
  const char* name;
  std::size_t offset;
  std::size_t size;
};

#define FIELD(name)                                                   \
  SizedField {                                                        \
    #name, offsetof(ForwardParams, name), sizeof(ForwardParams::name) \
  }

constexpr SizedField kFields[] = {
    FIELD(q),
    FIELD(k),
    FIELD(v),
    FIELD(out),
    FIELD(lse),
    FIELD(sink),
    FIELD(cu_seqlens_q),
    FIELD(cu_seqlens_k),
    FIELD(seqused_q),
    FIELD(seqused_k),
    FIELD(work_items),
    FIELD(work_count),
    FIELD(status),
    FIELD(q_batch_stride),
    FIELD(q_row_stride),
    FIELD(q_head_stride),
    FIELD(k_batch_stride),
    FIELD(k_row_stride),
    FIELD(k_head_stride),
    FIELD(v_batch_stride),
    FIELD(v_row_stride),
    FIELD(v_head_stride),
    FIELD(out_batch_stride),
    FIELD(out_row_stride),
    FIELD(out_head_stride),
    FIELD(lse_batch_stride),
    FIELD(lse_row_stride),
    FIELD(lse_head_stride),
    FIELD(sink_stride),
    FIELD(batch),
    FIELD(num_heads),
    FIELD(num_heads_k),
    FIELD(rows_q),
    FIELD(rows_k),
    FIELD(band_left),
    FIELD(band_right),
    FIELD(sink_type),
    FIELD(score_scale),
    FIELD(softcap_scale),
    FIELD(unit_rows),
    FIELD(heads_per_tile),
};

#undef FIELD

// A field missing above would leave a hole: the struct has none of its own.
constexpr bool covers_the_struct() {
  std::size_t end = 0;
  for (const SizedField& field : kFields) {
    if (field.offset != end) return false;
    end = field.offset + field.size;
  }
  return end == sizeof(ForwardParams);
}
static_assert(covers_the_struct(), "kFields: lists every field of ForwardParams, in order");

}  // namespace

ParamLayout forward_param_layout() {
  ParamLayout layout{.size = sizeof(ForwardParams), .fields = {}};
  for (const SizedField& field : kFields) layout.fields.push_back({field.name, field.offset});
  return layout;
}

}  // namespace parapet::cuda
