#pragma once

#include "kernels/core/exact_rows.h"
#include "kernels/mma/key_loop.h"

// Attention forward on mma.sync, ldmatrix and cp.async, which every GPU from sm_80 on has.
//
// A block works on one tile of query rows of one head. Each warp keeps the queries and the output
// of its rows in registers; all warps read the same key and value tiles, which the block's threads
// copy ahead of use into a ring of stages in shared memory. There is no block-wide barrier in the
// loop: a stage has one mbarrier that says it is filled and one that says all warps have drained
// it.
//
// From the inside out: warp.h has a warp's registers and the steps that work on them, ring.h the
// copies, key_loop.h the loop over the keys, this file what comes before and after it.

namespace parapet::kernels {

// Normalises a warp's rows, stages them in shared memory and writes them a line at a time.
template <ForwardConfig kConfig>
DEVICE void store_rows(const Warp<kConfig>& warp, const BlockRows<kConfig.packed_heads>& rows,
                       u32 stage, int first_row) {
  using T = Tile<kConfig>;
  const int lane = static_cast<int>(arch::thread_index_again() % 32);
  UNROLL
  for (int m = 0; m < T::kRowTiles; ++m) {
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const int in_warp = m * 16 + half * 8 + lane / 4, row = first_row + in_warp;
      RowResult result{0.0f, -arch::kInfinity};
      float sum = warp.sum[m][T::kPipelined ? half : 2 * half];
      if constexpr (T::kPipelined) sum = row_sum(sum);
      const bool used = row < rows.used();
      if (used) result = finish_row(sum, warp.neg_reference[m][half], rows.sink(row));
      const bool empty = !used || sum == 0.0f;
      UNROLL
      for (int block = 0; block < T::kValueSlices * 2; ++block) {
        const float low = warp.out[m][block][2 * half], high = warp.out[m][block][2 * half + 1];
        arch::store_shared(
            stage + shared_at<T::kRowBytes>(in_warp, block) + lane % 4 * 4,
            empty ? 0 : pack<kConfig.element>(low * result.factor, high * result.factor));
      }
      if (rows.params.lse != nullptr && lane % 4 == 0 && row < rows.owned())
        arch::store_global_float(rows.lse(row), result.lse);
    }
  }
  arch::sync_warp();  // the rows are staged
  constexpr int kUnits = kConfig.head_dim_v / kUnitElements;
  NO_UNROLL
  for (int in_warp = lane / 8; in_warp < T::kWarpRows; in_warp += 4) {
    const int row = first_row + in_warp;
    if (row >= rows.owned()) break;
    char* const to = rows.out(row);
    UNROLL
    for (int line = 0; line < T::lines(kConfig.head_dim_v, 8); ++line) {
      const int unit = line * 8 + lane % 8;
      if (unit < kUnits)
        store_unit<kConfig.aligned>(
            to + unit * 16, arch::load_shared_unit(stage + shared_at<T::kRowBytes>(in_warp, unit)));
    }
  }
}

// Copies the queries of a block's tile; rows that are not used become zeros.
template <ForwardConfig kConfig>
DEVICE void copy_queries(const BlockRows<kConfig.packed_heads>& rows, u32 to, int first_row) {
  using T = Tile<kConfig>;
  const int thread = static_cast<int>(arch::thread_index());
  NO_UNROLL
  for (int i = thread / 8; i < T::kRows; i += T::kThreads / 8) {
    const bool used = first_row + i < rows.used();
    const char* const from = used ? rows.q(first_row + i) : static_cast<const char*>(rows.params.q);
    UNROLL
    for (int line = 0; line < T::lines(kConfig.head_dim, 8); ++line) {
      const int unit = line * 8 + thread % 8;
      copy_unit<kConfig.aligned>(to + shared_at<T::kRowBytes>(i, unit), from + unit * 16,
                                 used && unit < kConfig.head_dim / kUnitElements);
    }
  }
}

// The key tiles that some row of the block sees.
template <ForwardConfig kConfig>
DEVICE plan::Range visited_tiles(const BlockRows<kConfig.packed_heads>& rows, int first_row) {
  using T = Tile<kConfig>;
  const WorkItem& item = rows.item;
  if (first_row >= rows.used()) return {};
  if constexpr (!T::kMasked) return {0, plan::ceil_div(item.key_rows, T::kKeyTile)};
  const int last_row = plan::min(first_row + T::kRows, rows.used()) - 1;
  return plan::key_tiles(band_of(rows.params), {rows.query(first_row), rows.query(last_row) + 1},
                         item.query_used, item.key_rows, T::kKeyTile)
      .visited;
}

// What a warp's rows see, in numbers that ptxas knows the warp agrees on. A warp without rows sees
// no key, and so visits no tile.
template <ForwardConfig kConfig>
DEVICE RowFrame<kConfig> row_frame(const BlockRows<kConfig.packed_heads>& rows, int first_row) {
  const int first_query = rows.query(first_row);
  auto mask = band_mask<kConfig.left_edge, kConfig.right_edge>(
                  band_of(rows.params), rows.item.query_used, rows.item.key_rows)
                  .from_row(first_query);
  if (first_row >= rows.used()) mask.keys = 0;
  mask = {arch::uniform(mask.low), arch::uniform(mask.high), arch::uniform(mask.keys)};
  return {mask, first_query, arch::uniform(first_row - first_query * rows.heads()), rows.heads()};
}

// Loads the queries, starts the ring and works through the key tiles [begin, end).
template <ForwardConfig kConfig, class Mod>
DEVICE void attend(Warp<kConfig>& warp, const BlockRows<kConfig.packed_heads>& rows, const Mod& mod,
                   u32 shared, int first_block_row, int begin, int end) {
  using T = Tile<kConfig>;
  const int in_block = static_cast<int>(arch::thread_index() / 32) * T::kWarpRows;
  Ring<kConfig> ring{rows.params, shared + T::kBarriersAt};
  ring.init_barriers();
  const u32 queries_loaded = shared + T::kQueryBarrierAt;
  if (arch::thread_index() == 0) arch::barrier_init(queries_loaded, T::kThreads);
  arch::sync_block();  // the barriers can be used

  copy_queries<kConfig>(rows, shared + T::kQueriesAt, first_block_row);
  arrive_after_copies<kConfig.aligned>(queries_loaded);
  const int first_key = begin * T::kKeyTile;
  ring.begin(shared, rows.k(first_key), rows.v(first_key),
             plan::min(rows.item.key_rows, end * T::kKeyTile) - first_key);
  ring.fill_ahead(0, early_stages(kConfig));
  arch::barrier_wait(queries_loaded, 0);
  warp.load_queries(T::kQueriesAt + in_block * T::kRowBytes);
  arch::sync_block();  // all warps have their queries: the ring may overwrite them
  ring.fill_ahead(early_stages(kConfig), stages_ahead(kConfig));

  KeyLoop<kConfig, Mod> loop{rows.params,
                             mod,
                             rows.item,
                             rows.slot,
                             warp,
                             ring,
                             row_frame<kConfig>(rows, first_block_row + in_block),
                             shared + T::kLeaksAt};
  const KeyRange any = loop.frame.view();
  const int first = plan::clamp(any.begin / T::kKeyTile, begin, end);
  const int last = plan::clamp((any.end + T::kKeyTile - 1) / T::kKeyTile, first, end);
  loop.visit(arch::uniform(first - begin), arch::uniform(first), arch::uniform(last),
             arch::uniform(end - last));
  arch::wait_for_copies();
}

// The kernel: blocks of forward_threads(kConfig) threads with forward_shared_bytes(kConfig) of
// dynamic shared memory.
template <ForwardConfig kConfig, class Mod = IdentityMod>
DEVICE void forward_mma(const ForwardParams& params, const Mod& mod = Mod{}) {
  using T = Tile<kConfig>;
  using Rows = BlockRows<kConfig.packed_heads>;
  const u32 shared = arch::shared_memory();
  const u32 work_at = shared + T::kWorkAt, leaks_at = shared + T::kLeaksAt;
  Warp<kConfig> warp;
  {
    const BlockWork work =
        find_block_work(params, {T::kRows, kConfig.packed_heads ? params.heads_per_tile : 1,
                                 2 * (kConfig.head_dim + kConfig.head_dim_v), kConfig.right_edge});
    if (!work.exists) return;
    warp.begin(shared);
    if (arch::thread_index() == 0) store_work(work_at, work);  // registers are short: see below
    arch::store_shared(leaks_at + arch::thread_index() / 32 * 4, 0);
    const Rows rows{params, work.item, work.slot};
    const plan::Range tiles = visited_tiles<kConfig>(rows, work.first_row);
    if (!tiles.empty())
      attend<kConfig>(warp, rows, mod, shared, work.first_row, static_cast<int>(tiles.begin),
                      static_cast<int>(tiles.end));
  }
  arch::sync_block();  // no warp reads the ring any more: the output may overwrite it

  const BlockWork work = load_work(work_at);
  const Rows rows{params, work.item, work.slot};
  const int warp_index = static_cast<int>(arch::thread_index_again() / 32);
  const int first_row = work.first_row + warp_index * T::kWarpRows;
  store_rows<kConfig>(warp, rows, shared + warp_index * T::kWarpRows * T::kRowBytes, first_row);
  if constexpr (T::kMasked || !Mod::kIdentity) {
    if (arch::load_shared(leaks_at + warp_index * 4) == 0) return;
    arch::sync_warp();  // the rows are written: some anew
    exact_rows<kConfig>(mod, rows, first_row, plan::min(first_row + T::kWarpRows, rows.used()));
  }
}

}  // namespace parapet::kernels
