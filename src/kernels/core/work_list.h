#pragma once

#include "kernels/arch/memory.h"
#include "kernels/arch/thread.h"
#include "kernels/core/params.h"
#include "kernels/mma/traits.h"
#include "plan/segment.h"

// From lengths on the device to query tiles. Where there are length arrays, one block reads them
// all before the attention kernel runs: it clamps every entry into its tensor, records the first
// bad one, and lists the query tiles, those with most keys first, so that no long tile is left for
// the end. The attention kernel sees none of the lengths, only that list.

namespace parapet::kernels {

using arch::u32;
using arch::u64;
using plan::int64;

// ---- Lengths ------------------------------------------------------------------------------------

// Which length array entries had to be changed: the lowest array and index is what gets reported.
struct BadEntry {
  static constexpr u64 kNone = ~u64{0};
  u64 order = kNone;

  DEVICE void note(MetadataArray array, int index) {
    order = plan::min(order, static_cast<u64>(array) << 32 | static_cast<u32>(index));
  }
};

DEVICE int load_int(const int* from) {
  return static_cast<int>(arch::load_global_u32(from));
}

// The rows of packed segment `index`, none of them before `floor`.
DEVICE plan::Extent read_extent(const int* cu_seqlens, MetadataArray array, int index, int floor,
                                int rows, BadEntry& bad) {
  const int first = load_int(cu_seqlens + index);
  const int last = load_int(cu_seqlens + index + 1);
  const plan::Extent extent = plan::packed_extent(plan::max(first, floor), last, rows);
  if (index == 0 && first != 0) bad.note(array, 0);
  if (last != extent.end()) bad.note(array, index + 1);
  return extent;
}

DEVICE plan::Extent read_used(const int* seqused, MetadataArray array, int index,
                              plan::Extent extent, BadEntry& bad) {
  if (seqused == nullptr) return extent;
  const int used = load_int(seqused + index);
  const plan::Extent cut = plan::used_extent(extent, used);
  if (cut.length != used) bad.note(array, index);
  return cut;
}

// Segment `index`; earlier segments own the query rows before `floor`.
DEVICE WorkItem read_segment(const ForwardParams& params, int index, int floor, BadEntry& bad) {
  plan::Extent query = plan::dense_extent(params.rows_q);
  plan::Extent key = plan::dense_extent(params.rows_k);
  if (params.cu_seqlens_q != nullptr)
    query = read_extent(params.cu_seqlens_q, kCuSeqlensQ, index, floor, params.rows_q, bad);
  if (params.cu_seqlens_k != nullptr)
    key = read_extent(params.cu_seqlens_k, kCuSeqlensK, index, 0, params.rows_k, bad);
  WorkItem item{};
  item.segment = index;
  item.query_begin = static_cast<int>(query.begin);
  item.query_rows = static_cast<int>(query.length);
  query = read_used(params.seqused_q, kSequsedQ, index, query, bad);
  key = read_used(params.seqused_k, kSequsedK, index, key, bad);
  item.query_used = static_cast<int>(query.length);
  item.key_begin = static_cast<int>(key.begin);
  item.key_rows = static_cast<int>(key.length);
  return item;
}

// Rows of a packed q that no segment covers: rows of a segment that uses none of them.
DEVICE WorkItem uncovered_rows(int begin, int end) {
  WorkItem item{};
  item.query_begin = begin;
  item.query_rows = end - begin;
  return item;
}

// One thread's share of the segments.
struct SegmentShare {
  int begin;
  int end;
  int floor;      // earlier shares own the query rows before it
  bool has_gaps;  // this thread also visits the rows before the first and after the last segment

  template <class Visit>
  DEVICE void visit(const ForwardParams& params, BadEntry& bad, const Visit& each) const {
    int row = floor;
    for (int index = begin; index < end; ++index) {
      const WorkItem item = read_segment(params, index, row, bad);
      row = item.query_begin + item.query_rows;
      if (item.query_rows > 0) each(item);
    }
    if (!has_gaps || params.cu_seqlens_q == nullptr) return;
    const int first = plan::clamp(load_int(params.cu_seqlens_q), 0, params.rows_q);
    const int last = plan::clamp(load_int(params.cu_seqlens_q + params.batch), row, params.rows_q);
    if (first > 0) each(uncovered_rows(0, first));
    if (last < params.rows_q) each(uncovered_rows(last, params.rows_q));
  }
};

// ---- Longest first ------------------------------------------------------------------------------

// Segments are sorted by their number of keys, to an eighth of a power of two.
inline constexpr int kBuckets = kWorkListBuckets;

// Bucket 0 holds the longest.
PARAPET_HOST_DEVICE constexpr int bucket_of(int keys) {
  int octave = 0;
  while (keys >> octave >= 16) ++octave;
  return kBuckets - 1 - (octave * 8 + (keys >> octave));
}
static_assert(bucket_of(kMaxRows) >= 0 && bucket_of(0) == kBuckets - 1);

DEVICE int query_tiles(const ForwardParams& params, const WorkItem& item) {
  const int64 rows = int64{item.query_rows} * params.heads_per_tile;
  return static_cast<int>(plan::ceil_div(rows, params.unit_rows));
}

// The block's shared memory: a u64, then an int for each warp, then an int for each bucket.
struct WorkListMemory {
  u32 base;

  DEVICE u32 bad_entry() const { return base; }
  DEVICE u32 scan() const { return base + 16; }
  DEVICE u32 bucket(int i) const { return base + 16 + (kWorkListThreads / 32 + i) * 4; }
};

// What `combine` makes of the values of all threads before this one; `neutral` for the first.
template <class Combine>
DEVICE int exclusive_scan(int value, int neutral, u32 scratch, const Combine& combine) {
  const int lane = static_cast<int>(arch::thread_index() % 32);
  const int warp = static_cast<int>(arch::thread_index() / 32);
  int sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int below = arch::shuffle_up(sum, static_cast<u32>(distance));
    if (lane >= distance) sum = combine(below, sum);
  }
  if (lane == 31) arch::store_shared(scratch + warp * 4, static_cast<u32>(sum));
  const int below = arch::shuffle_up(sum, 1);
  arch::sync_block();  // all warps' sums are there
  int result = neutral;
  for (int i = 0; i < warp; ++i)
    result = combine(result, static_cast<int>(arch::load_shared(scratch + i * 4)));
  arch::sync_block();  // all have read them: the next scan may overwrite
  return lane == 0 ? result : combine(result, below);
}

DEVICE void store_item(WorkItem* to, const WorkItem& item) {
  struct Halves {
    arch::Unit half[2];
  };
  const Halves halves = __builtin_bit_cast(Halves, item);
  arch::store_global_unit(to, halves.half[0]);
  arch::store_global_unit(reinterpret_cast<arch::Unit*>(to) + 1, halves.half[1]);
}

// The first report stays until the host has read it.
DEVICE void report(const ForwardParams& params, u64 order) {
  if (load_int(&params.status->array) != kNoArray) return;
  const int array = static_cast<int>(order >> 32);
  const int index = static_cast<int>(order & 0xffffffffu);
  const int* const entries = array == kCuSeqlensQ   ? params.cu_seqlens_q
                             : array == kCuSeqlensK ? params.cu_seqlens_k
                             : array == kSequsedQ   ? params.seqused_q
                                                    : params.seqused_k;
  const Status status{array, index, load_int(entries + index), 0};
  arch::store_global_unit(params.status, __builtin_bit_cast(arch::Unit, status));
}

// A kernel of one block of kWorkListThreads threads and kWorkListSharedBytes of shared memory.
DEVICE void make_work_list(const ForwardParams& params) {
  const WorkListMemory memory{arch::shared_memory()};
  const int thread = static_cast<int>(arch::thread_index());
  if (thread == 0) arch::store_shared_u64(memory.bad_entry(), BadEntry::kNone);
  if (thread < kBuckets) arch::store_shared(memory.bucket(thread), 0);

  const int each = static_cast<int>(plan::ceil_div(params.batch, kWorkListThreads));
  SegmentShare share{};
  share.begin = static_cast<int>(plan::min(int64{thread} * each, int64{params.batch}));
  share.end = plan::min(share.begin + each, params.batch);
  share.has_gaps = thread == kWorkListThreads - 1;

  // Entries may decrease, but a row belongs to one segment only: the first that reaches it.
  int highest = 0;
  if (params.cu_seqlens_q != nullptr)
    for (int index = share.begin; index < share.end; ++index)
      highest = plan::max(highest, load_int(params.cu_seqlens_q + index));
  share.floor = exclusive_scan(plan::min(highest, params.rows_q), 0, memory.scan(),
                               [](int a, int b) { return plan::max(a, b); });

  // How many tiles each bucket gets, then where it begins.
  BadEntry bad;
  share.visit(params, bad, [&](const WorkItem& item) {
    arch::add_shared(memory.bucket(bucket_of(item.key_rows)),
                     static_cast<u32>(query_tiles(params, item)));
  });
  if (bad.order != BadEntry::kNone) arch::min_shared(memory.bad_entry(), bad.order);
  arch::sync_block();  // all tiles are counted
  const bool owns_bucket = thread < kBuckets;
  const int tiles = owns_bucket ? static_cast<int>(arch::load_shared(memory.bucket(thread))) : 0;
  const int first = exclusive_scan(tiles, 0, memory.scan(), [](int a, int b) { return a + b; });
  if (owns_bucket) arch::store_shared(memory.bucket(thread), static_cast<u32>(first));
  if (thread == kWorkListThreads - 1)
    arch::store_global_u32(params.work_count, static_cast<u32>(first + tiles));
  arch::sync_block();  // all buckets know where they begin

  // Segments of one bucket come in any order: what a tile computes does not depend on it.
  share.visit(params, bad, [&](WorkItem item) {
    const int count = query_tiles(params, item);
    item.first_unit = static_cast<int>(
        arch::add_shared(memory.bucket(bucket_of(item.key_rows)), static_cast<u32>(count)));
    for (int tile = 0; tile < count; ++tile)
      store_item(params.work_items + item.first_unit + tile, item);
  });

  if (thread == 0) {
    const u64 order = arch::load_shared_u64(memory.bad_entry());
    if (order != BadEntry::kNone) report(params, order);
  }
}

}  // namespace parapet::kernels
