#pragma once

// What the host hands to a kernel: the one boundary between them. Both sides compile this file, and
// every generated unit asserts that both see the same size and offsets. Only fixed-width scalars
// and pointers. Strides count elements; the last dimension's is 1; of packed tensors batch strides
// are 0.

namespace parapet::kernels {

// Rows of one segment: what a block must know before it computes an address. The work list holds
// one for each unit of work, made on the device from lengths that nobody vouches for
// (core/work_list.h).
struct WorkItem {
  int segment;      // batch entry
  int first_unit;   // the work list's index of the segment's first unit
  int query_begin;  // first row in q and out
  int query_rows;   // rows that the segment owns; those from query_used on are written as zeros
  int query_used;
  int key_begin;  // first row in k and v
  int key_rows;
  int reserved;
};
static_assert(sizeof(WorkItem) == 32);

// The first entry of a length array that had to be changed; array is kNoArray if none had.
enum MetadataArray : int { kNoArray, kCuSeqlensQ, kCuSeqlensK, kSequsedQ, kSequsedK };

struct Status {
  int array;  // a MetadataArray
  int index;
  int value;
  int reserved;
};
static_assert(sizeof(Status) == 16);

enum SinkType : int { kSinkFloat32, kSinkBfloat16, kSinkFloat16 };

// No tensor has more rows than this: sums of two row numbers and a tile fit an int.
inline constexpr int kMaxRows = 1'000'000'000;

struct ForwardParams {
  const void* q;
  const void* k;
  const void* v;
  void* out;
  float* lse;        // or null
  const void* sink;  // num_heads of them, or null

  const int* cu_seqlens_q;  // batch + 1, or null: dense
  const int* cu_seqlens_k;
  const int* seqused_q;  // batch, or null
  const int* seqused_k;

  // Null where all segments have the same, known lengths: dense tensors without seqused.
  WorkItem* work_items;
  int* work_count;  // units in work_items
  Status* status;   // the caller sets it to zero; null where work_items is

  long long q_batch_stride;
  long long q_row_stride;
  long long q_head_stride;
  long long k_batch_stride;
  long long k_row_stride;
  long long k_head_stride;
  long long v_batch_stride;
  long long v_row_stride;
  long long v_head_stride;
  long long out_batch_stride;
  long long out_row_stride;
  long long out_head_stride;
  long long lse_batch_stride;
  long long lse_row_stride;
  long long lse_head_stride;
  long long sink_stride;

  int batch;
  int num_heads;
  int num_heads_k;
  int rows_q;  // packed: rows of the tensor; dense: rows of a batch entry
  int rows_k;

  // Query i sees the keys i + Sk - Sq - band_left ... i + Sk - Sq + band_right; kMaxRows:
  // unlimited.
  int band_left;
  int band_right;

  int sink_type;  // a SinkType

  // Scores are worked on in powers of two: score_scale is softmax_scale * log2(e). With a softcap
  // c, the score q k becomes softcap_scale * tanh(q k * score_scale), where score_scale is
  // softmax_scale / c and softcap_scale is c * log2(e).
  float score_scale;
  float softcap_scale;

  // What a unit of work covers (core/block_work.h): so many rows, and so many query heads that
  // share them (1, or num_heads / num_heads_k where heads are packed; then rows_q times that is at
  // most kMaxRows). There are at most kMaxRows units, times the heads or key heads.
  int unit_rows;
  int heads_per_tile;
};

}  // namespace parapet::kernels
