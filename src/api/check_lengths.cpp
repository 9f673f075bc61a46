#include <cstdint>

#include "api/checks.h"
#include "api/refuse.h"

namespace parapet::api {
namespace {

const std::int32_t* values(const std::optional<TensorView>& view) {
  return view ? static_cast<const std::int32_t*>(view->data) : nullptr;
}

// `side` is "q" or "k".
void check_cu_seqlens(const char* side, const std::int32_t* cu_seqlens, int64 batch, int64 total) {
  if (cu_seqlens[0] != 0) {
    refuse("cu_seqlens_{}[0]: expected 0, found {}", side, cu_seqlens[0]);
  }
  for (int64 b = 1; b <= batch; ++b) {
    if (cu_seqlens[b] < cu_seqlens[b - 1]) {
      refuse("cu_seqlens_{0}[{1}]: expected at least cu_seqlens_{0}[{2}] = {3}, found {4}", side, b,
             b - 1, cu_seqlens[b - 1], cu_seqlens[b]);
    }
    if (cu_seqlens[b] > total) {
      refuse("cu_seqlens_{0}[{1}]: expected at most total_{0} = {2}, found {3}", side, b, total,
             cu_seqlens[b]);
    }
  }
}

void check_seqused(const char* side, const std::int32_t* seqused, const std::int32_t* cu_seqlens,
                   int64 batch, int64 rows) {
  for (int64 b = 0; b < batch; ++b) {
    const int64 length = cu_seqlens ? cu_seqlens[b + 1] - cu_seqlens[b] : rows;
    if (seqused[b] < 0 || seqused[b] > length) {
      refuse("seqused_{}[{}]: expected 0 to {}, the length of its segment, found {}", side, b,
             length, seqused[b]);
    }
  }
}

void check_side(const char* side, const std::int32_t* cu_seqlens, const std::int32_t* seqused,
                int64 batch, int64 rows) {
  if (cu_seqlens) check_cu_seqlens(side, cu_seqlens, batch, rows);
  if (seqused) check_seqused(side, seqused, cu_seqlens, batch, rows);
}

}  // namespace

void check_lengths(const ForwardTensors& tensors, const Extents& extents) {
  check_side("q", values(tensors.cu_seqlens_q), values(tensors.seqused_q), extents.batch,
             extents.rows_q);
  check_side("k", values(tensors.cu_seqlens_k), values(tensors.seqused_k), extents.batch,
             extents.rows_k);
}

}  // namespace parapet::api
