#pragma once

#include "kernels/core/exact_rows.h"
#include "kernels/mma/key_loop.h"

// Attention forward on mma.sync, ldmatrix and cp.async, which every GPU from sm_80 on has.
//
// A block works on one tile of query rows of one head after another. Each warp keeps the queries
// and the output of its rows in registers; all warps read the same key and value tiles, which the
// block's threads copy ahead of use into a ring of stages in shared memory. There is no block-wide
// barrier: a stage has one mbarrier that says it is filled and one that says all warps have drained
// it. The ring runs on from one query tile's keys to the next one's, so that a warp that is done
// with its rows stores them and goes on while others still multiply.
//
// From the inside out: warp.h has a warp's registers and the steps that work on them, ring.h the
// copies, key_loop.h the loop over the keys, this file what comes before and after it.

namespace parapet::kernels {

template <ForwardConfig kConfig>
DEVICE BlockShape block_shape(const ForwardParams& params) {
  return {forward_query_tile(kConfig), kConfig.packed_heads ? params.heads_per_tile : 1,
          pairs_tiles(kConfig)};
}

// Normalises a warp's rows and writes them.
template <ForwardConfig kConfig>
DEVICE void store_rows(const Warp<kConfig>& warp, const BlockRows<kConfig.packed_heads>& rows,
                       int first_row) {
  using T = Tile<kConfig>;
  const int lane = static_cast<int>(arch::thread_index_again() % 32);
  float sink = -arch::kInfinity;
  if constexpr (!kConfig.packed_heads) sink = rows.sink(0);
  UNROLL
  for (int m = 0; m < T::kRowTiles; ++m) {
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + Warp<kConfig>::row_in_warp(lane, m, half);
      const bool used = row < rows.used(), owned = row < rows.owned();
      if constexpr (kConfig.packed_heads) sink = rows.sink(used ? row : 0);
      const float sum = row_sum(warp.sum[m][half]);
      RowResult result{0.0f, -arch::kInfinity};
      if (used) result = finish_row(sum, warp.neg_reference[m][half], sink);
      const bool empty = !used || sum == 0.0f;
      if (arch::opaque(rows.params.lse) != nullptr && lane % 4 == 0 && owned)
        arch::store_global_float(rows.lse(row), result.lse);
      char* const to = rows.out(owned ? row : 0);
      UNROLL
      for (int slice = 0; slice < T::kValueSlices; ++slice) {
        arch::HalfUnit words;
        UNROLL
        for (int i = 0; i < 2; ++i) {
          const float low = warp.out[m][2 * slice + i][2 * half];
          const float high = warp.out[m][2 * slice + i][2 * half + 1];
          words.word[i] =
              empty ? 0 : pack<kConfig.element>(low * result.factor, high * result.factor);
        }
        trade_words(words, lane % 2 != 0);
        if (owned && traded_unit(lane, 2 * slice) < kConfig.head_dim_v / kUnitElements)
          store_half_unit<kConfig.aligned>(to + traded_byte(lane, 2 * slice), words);
      }
    }
  }
}

// The key tiles that a query tile visits: of its keys the tiles first ... first + count - 1. At
// least as many as the ring runs ahead, so that it never runs ahead by more than one query tile;
// keys past the last are zeros in shared memory.
struct VisitedTiles {
  int first = 0;
  int count = 0;
  int rows = 0;  // that exist
};

template <ForwardConfig kConfig>
DEVICE VisitedTiles visited_tiles(const BlockRows<kConfig.packed_heads>& rows, int first_row) {
  using T = Tile<kConfig>;
  const WorkItem& item = rows.item;
  plan::Range range{};
  if (first_row < rows.used()) {
    range = {0, (item.key_rows + T::kKeyTile - 1) / T::kKeyTile};
    if constexpr (T::kMasked) {
      const int last_row = plan::min(first_row + T::kRows, rows.used()) - 1;
      range =
          plan::key_tiles(band_of(rows.params), {rows.query(first_row), rows.query(last_row) + 1},
                          item.query_used, item.key_rows, T::kKeyTile)
              .visited;
    }
  }
  const int begin = static_cast<int>(range.begin), end = static_cast<int>(range.end);
  return {begin, plan::max(end - begin, stages_ahead(kConfig)),
          plan::min(item.key_rows, end * T::kKeyTile) - begin * T::kKeyTile};
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

// Notes what the ring's pointers move by from the end of `tiles` to the keys of `next`.
template <ForwardConfig kConfig>
DEVICE void note_step(const Notes& notes, const BlockRows<kConfig.packed_heads>& rows,
                      const VisitedTiles& tiles, const BlockWork& next) {
  using T = Tile<kConfig>;
  long long key_step = 0, value_step = 0;
  int row_step = tiles.count * T::kKeyTile - tiles.rows;
  if (next.exists()) {
    const BlockRows<kConfig.packed_heads> next_rows{rows.params, next.item, next.slot};
    const VisitedTiles next_tiles = visited_tiles<kConfig>(next_rows, next.first_row);
    const int end = (tiles.first + tiles.count) * T::kKeyTile;
    const int begin = next_tiles.first * T::kKeyTile;
    key_step = next_rows.k(begin) - rows.k(end);
    value_step = next_rows.v(begin) - rows.v(end);
    row_step += next_tiles.rows;
  }
  arch::store_shared_u64(notes.key_step(), static_cast<u64>(key_step));
  arch::store_shared_u64(notes.value_step(), static_cast<u64>(value_step));
  arch::store_shared(notes.row_step(), static_cast<u32>(row_step));
}

// In the second tile of a pair the warps take the rows in reverse order: those that had fewer keys
// in the first have more in the second, and they drift apart less.
template <ForwardConfig kConfig>
DEVICE int first_row_of_warp(const BlockWork& work) {
  const int warp = static_cast<int>(arch::thread_index_again() / 32);
  const bool reversed = pairs_tiles(kConfig) && work.short_row < 0;
  return work.first_row +
         Tile<kConfig>::kWarpRows * (reversed ? kConfig.shape.warps - 1 - warp : warp);
}

// Asks for a warp's next queries, so that they come from the L2 cache when their time has come.
template <ForwardConfig kConfig>
DEVICE void prefetch_queries(const BlockRows<kConfig.packed_heads>& rows, int first_row) {
  using T = Tile<kConfig>;
  const int lane = static_cast<int>(arch::thread_index_again() % 32), row = first_row + lane;
  if (lane >= T::kWarpRows || row >= rows.used()) return;
  UNROLL
  for (int byte = 0; byte < 2 * kConfig.head_dim; byte += 128) arch::prefetch(rows.q(row) + byte);
}

// The kernel: blocks of forward_threads(kConfig) threads with forward_shared_bytes(kConfig) of
// dynamic shared memory. Any number of blocks does all of the work.
template <ForwardConfig kConfig, class Mod = IdentityMod>
DEVICE void forward_mma(const ForwardParams& params, const Mod& mod = Mod{}) {
  using T = Tile<kConfig>;
  using Rows = BlockRows<kConfig.packed_heads>;
  const u32 shared = arch::shared_memory();
  const BlockShape shape = block_shape<kConfig>(params);
  Warp<kConfig> warp;
  Ring<kConfig> ring{params, shared + T::kBarriersAt};
  {
    const BlockWork work = work_of_round(params, shape, 0);
    if (!work.exists()) return;
    ring.init_barriers();
    arch::sync_block();  // the barriers can be used
    const Rows rows{params, work.item, work.slot};
    const VisitedTiles tiles = visited_tiles<kConfig>(rows, work.first_row);
    ring.begin(shared, rows.k(tiles.first * T::kKeyTile), rows.v(tiles.first * T::kKeyTile),
               tiles.rows);
    ring.fill_ahead(stages_ahead(kConfig));
    store_work(Notes::of_this_warp<kConfig>().next_work(), work);
    arch::sync_warp();
  }
  warp.begin(shared);
  typename Ring<kConfig>::Cursor at{};
  while (true) {
    {
      const Notes notes = Notes::of_this_warp<kConfig>();
      const BlockWork work = load_work(notes.next_work());
      if (!arch::any_in_warp(work.exists())) break;  // a vote: ptxas then knows that all agree
      const Rows rows{params, work.item, work.slot};
      const int first_row = first_row_of_warp<kConfig>(work);
      auto queries = warp.fetch_queries(rows, first_row);
      const BlockWork next = next_work(params, shape, work);
      const VisitedTiles tiles = visited_tiles<kConfig>(rows, work.first_row);
      arch::sync_warp();  // all lanes have read the notes
      store_work(notes.work(), work);
      store_work(notes.next_work(), next);
      note_step<kConfig>(notes, rows, tiles, next);
      arch::store_shared(notes.leak(), 0);
      if (next.exists())
        prefetch_queries<kConfig>({params, next.item, next.slot}, first_row_of_warp<kConfig>(next));
      arch::sync_warp();  // the notes are written
      warp.begin_rows(queries);

      KeyLoop<kConfig, Mod> loop{
          params, mod, work.item, work.slot, warp, ring, row_frame<kConfig>(rows, first_row)};
      const KeyRange any = loop.frame.view();
      const int end = tiles.first + tiles.count;
      const int first = plan::clamp(any.begin / T::kKeyTile, tiles.first, end);
      const int last = plan::clamp((any.end + T::kKeyTile - 1) / T::kKeyTile, first, end);
      at = loop.visit(at, arch::uniform(tiles.count - stages_ahead(kConfig)),
                      arch::uniform(first - tiles.first), arch::uniform(first), arch::uniform(last),
                      arch::uniform(end - last));
    }
    const Notes notes = Notes::of_this_warp<kConfig>();
    const BlockWork work = load_work(notes.work());
    const Rows rows{params, work.item, work.slot};
    const int first_row = first_row_of_warp<kConfig>(work);
    store_rows<kConfig>(warp, rows, first_row);
    if constexpr (T::kMasked || !Mod::kIdentity) {
      if (arch::load_shared(notes.leak()) != 0) {
        arch::sync_warp();  // the rows are written: some anew
        exact_rows<kConfig>(mod, rows, first_row, plan::min(first_row + T::kWarpRows, rows.used()));
      }
    }
  }
  arch::wait_for_copies();
}

}  // namespace parapet::kernels
