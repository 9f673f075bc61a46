#pragma once

#include "kernels/core/exact_rows.h"
#include "kernels/mma/ring.h"
#include "kernels/mma/warp.h"

// Attention forward on mma.sync, ldmatrix and cp.async, which every GPU from sm_80 on has.
//
// A block works on one tile of query rows of one head. Each warp keeps the queries and the output of
// its rows in registers; all warps read the same key and value tiles, which the block's threads copy
// ahead of use into a ring of stages in shared memory. There is no block-wide barrier in the loop:
// a stage has one mbarrier that says it is filled and one that says all warps have drained it.
//
// What decides the speed is how ptxas schedules a basic block, so the branches here also matter as
// boundaries: each comment that mentions ptxas was measured.

namespace parapet::kernels {

template <ForwardConfig kConfig, class Mod>
struct ForwardBlock {
  using T = Tile<kConfig>;
  using WarpState = Warp<kConfig, Mod>;
  using Scores = typename WarpState::Scores;
  using Weights = typename WarpState::Weights;

  const ForwardParams& params;
  const Mod& mod;
  const WorkItem& item;
  int slot;

  WarpState warp;
  Ring<kConfig> ring;
  typename WarpState::Frame frame;
  u32 filled_barriers;
  u32 drained_barriers;
  u32 leaks_at;  // a word for each warp, in shared memory: whether to compute its rows anew
  typename WarpState::KeyFragments key_fragments;

  // One chunk of keys.
  struct Chunk {
    u32 keys;           // offsets into the ring
    u32 next_keys;
    u32 values;
    int first_key;      // of the chunk whose scores are computed
    bool careful;       // whether to mask, and to look at every row's reference
    u32 filled;         // the barrier of next_keys' tile
    u32 filled_parity;
  };

  DEVICE void exponent_pair(Scores& scores, float (&top)[T::kRowTiles][2], int index,
                            int first_key) const {
    warp.exponent_pair(
        scores, top, index,
        [&](float score, float neg_reference, const typename WarpState::Pair& p, int e) {
          return exponent<kConfig.softcap>(params, mod, score, neg_reference, [&] {
            const int lane = static_cast<int>(arch::thread_index() % 32);
            const int row = WarpState::row_in_warp(lane, p.m, p.half);
            return ScorePosition{item.segment,
                                 slot * frame.heads_per_tile + frame.head(row),
                                 frame.first_query + frame.query(row),
                                 first_key + WarpState::key_in_chunk(lane, p.block, e),
                                 item.query_used,
                                 item.key_rows};
          });
        });
  }

  // The slow path of a chunk: masks, and moves the references up, when an exponent has grown past
  // kMaxGrowth. Careful tiles always come here, and no other tile is ever masked.
  DEVICE bool settle(Scores& exponents, const float (&top)[T::kRowTiles][2], const Chunk& chunk) {
    float highest = arch::max(top[0][0], top[0][1]);
    UNROLL
    for (int m = 1; m < T::kRowTiles; ++m)
      highest = arch::max(highest, arch::max(top[m][0], top[m][1]));
    if (!arch::any_in_warp(chunk.careful || !(highest <= kMaxGrowth))) return false;
    if (chunk.careful) {
      warp.hide(exponents, chunk.first_key, frame);
      note_leak(chunk);
    }
    warp.raise(exponents);
    return true;
  }

  // A weight of zero does not keep an infinite or NaN value out of P V. Keys that do not exist are
  // zeros in shared memory; where a row does not see a key that others see, and the values are not
  // finite, the warp's rows are computed anew at the end (exact_rows).
  DEVICE void note_leak(const Chunk& chunk) const {
    if constexpr (!T::kMasked && Mod::kIdentity) return;
    const KeyRange all = frame.view().all;
    const int last_key = plan::min(chunk.first_key + T::kChunk, frame.mask.keys);
    const bool hides = !Mod::kIdentity || chunk.first_key < all.begin || last_key > all.end;
    if (hides && !warp.values_are_finite(chunk.keys + T::kTileBytes))
      arch::store_shared(leaks_at + arch::thread_index_again() / 32 * 4, 1);
  }

  // One step of P V, with the copies dealt out over them. Leaves with the next two key fragments.
  DEVICE void value_step(const Weights& weights, typename WarpState::ValueFragments& fragments,
                         const Chunk& chunk, int step) {
    constexpr int kSteps = WarpState::kValueSteps;
    warp.value_step(weights, fragments, chunk.values, step);
    ring.template copies_at<kSteps>(step);
    if (step >= kSteps - 2) warp.fetch_keys(key_fragments, chunk.next_keys, step - (kSteps - 2));
  }

  // One chunk: scores, softmax, P V. The exponentials are taken against the old reference while the
  // vote on it is still out, and redone in the rare case that it rose. The barrier is tested early, so
  // that its answer is there in time; the branch that insists on it, like the vote's, ends ptxas's
  // scheduling block: in one block with the exponentials, P V would get a single fragment
  // buffer and wait for shared memory every four multiplications.
  DEVICE void plain_step(const Chunk& chunk) {
    Scores scores;
    Weights weights;
    UNROLL
    for (int i = 0; i < WarpState::kScoreSteps; ++i)
      warp.score_step(scores, key_fragments, chunk.keys, i);
    float top[T::kRowTiles][2];
    const bool filled = arch::barrier_test(chunk.filled, chunk.filled_parity);
    UNROLL
    for (int i = 0; i < WarpState::kScorePairs; ++i)
      exponent_pair(scores, top, i, chunk.first_key);
    UNROLL
    for (int i = 0; i < WarpState::kScorePairs; ++i) warp.weight_pair(scores, weights, i);
    typename WarpState::ValueFragments fragments;
    warp.fetch_values(fragments, chunk.values, 0);
    if (settle(scores, top, chunk)) {
      UNROLL
      for (int i = 0; i < WarpState::kScorePairs; ++i) warp.weight_pair(scores, weights, i);
    }
    if (!filled) arch::barrier_wait(chunk.filled, chunk.filled_parity);
    UNROLL
    for (int i = 0; i < WarpState::kValueSteps; ++i) value_step(weights, fragments, chunk, i);
  }

  // The scores of the next chunk beside the exponentials of this one, then this one's P V beside the
  // next one's exponents.
  DEVICE void pipelined_step(Scores& current, Scores& next, const Chunk& chunk) {
    constexpr int kPairs = WarpState::kScorePairs;
    constexpr auto share = [](int step, int steps) { return kPairs * step / steps; };
    Weights weights;
    const bool filled = arch::barrier_test(chunk.filled, chunk.filled_parity);
    UNROLL
    for (int i = 0; i < WarpState::kScoreSteps; ++i) {
      warp.score_step(next, key_fragments, chunk.keys, i);
      UNROLL
      for (int j = share(i, WarpState::kScoreSteps); j < share(i + 1, WarpState::kScoreSteps); ++j)
        warp.weight_pair(current, weights, j);
    }
    typename WarpState::ValueFragments fragments;
    warp.fetch_values(fragments, chunk.values, 0);
    if (!filled) arch::barrier_wait(chunk.filled, chunk.filled_parity);
    float top[T::kRowTiles][2];
    UNROLL
    for (int i = 0; i < WarpState::kValueSteps; ++i) {
      value_step(weights, fragments, chunk, i);
      UNROLL
      for (int j = share(i, WarpState::kValueSteps); j < share(i + 1, WarpState::kValueSteps); ++j)
        exponent_pair(next, top, j, chunk.first_key);
    }
    settle(next, top, chunk);
  }

  // Fills the stages [first, end) before any is in use.
  DEVICE void fill_ahead(int first, int end) {
    NO_UNROLL
    for (int stage = first; stage < end; ++stage) {
      ring.copy_tile();
      ring.end_tile(filled_barriers);
    }
  }

  // The stage of the tile in use, and the parity of its barriers' phase.
  struct Cursor {
    int stage = 0;
    int parity = 0;

    DEVICE Cursor next() const {
      const bool wraps = stage == kConfig.shape.stages - 1;
      return {wraps ? 0 : stage + 1, parity ^ static_cast<int>(wraps)};
    }
    DEVICE u32 offset() const { return static_cast<u32>(stage * T::kStageBytes); }
  };

  DEVICE u32 filled(Cursor at) const { return filled_barriers + at.stage * 8; }
  DEVICE u32 drained(Cursor at) const { return drained_barriers + at.stage * 8; }

  // Before the copies that go with the tile at `at`: the stage that they refill was in use two tiles
  // before, so warps may drift a whole tile apart before one waits here.
  DEVICE void wait_for_refill(Cursor at) const {
    arch::barrier_wait(drained_barriers + ring.stage * 8,
                       at.parity ^ static_cast<int>(at.stage < 2));
  }

  DEVICE Cursor finish_tile(Cursor at) {
    ring.end_tile(filled_barriers);
    arch::sync_warp();  // all lanes have read the tile
    if (arch::thread_index() % 32 == 0) arch::barrier_arrive(drained(at));
    return at.next();
  }

  // Tiles that no row of this warp sees: it only does its share of the copies.
  DEVICE Cursor pass_tiles(int count, Cursor at) {
    NO_UNROLL
    for (; count > 0; --count) {
      wait_for_refill(at);
      ring.copy_tile();
      at = finish_tile(at);
    }
    return at;
  }

  // Tiles that some row of the warp does not see whole, or up to which some row may not have seen a
  // key. The scores are kLead keys ahead.
  DEVICE bool careful_in(int first_key) const {
    constexpr int kLead = T::kPipelined ? T::kChunk : 0;
    const KeyRange all = frame.view().all;
    return !Mod::kIdentity || first_key + kLead <= all.begin ||
           first_key + kLead + T::kKeyTile > all.end;
  }

  // The key tiles [begin, end), all of which some row of this warp may see.
  DEVICE Cursor plain_tiles(int begin, int end, Cursor at) {
    arch::barrier_wait(filled(at), at.parity);
    warp.fetch_keys(key_fragments, at.offset(), 0);
    warp.fetch_keys(key_fragments, at.offset(), 1);
    NO_UNROLL
    for (int tile = begin; tile < end; ++tile) {
      wait_for_refill(at);
      Chunk chunk;
      chunk.careful = careful_in(tile * T::kKeyTile);
      // Not unrolled: the loop's end ends ptxas's scheduling block too, and the slow path is long.
      NO_UNROLL
      for (int c = 0; c < T::kChunks; ++c) {
        const bool last = c == T::kChunks - 1;
        const Cursor ahead = last ? at.next() : at;
        chunk.keys = at.offset() + c * T::kChunkBytes;
        chunk.next_keys = last ? ahead.offset() : chunk.keys + T::kChunkBytes;
        chunk.values = chunk.keys + T::kTileBytes;
        chunk.first_key = tile * T::kKeyTile + c * T::kChunk;
        chunk.filled = filled(ahead);
        chunk.filled_parity = ahead.parity;
        plain_step(chunk);
      }
      at = finish_tile(at);
    }
    return at;
  }

  DEVICE Cursor pipelined_tiles(int begin, int end, Cursor at) {
    Scores even, odd;
    Chunk chunk;
    float top[T::kRowTiles][2];
    arch::barrier_wait(filled(at), at.parity);
    warp.fetch_keys(key_fragments, at.offset(), 0);
    warp.fetch_keys(key_fragments, at.offset(), 1);
    UNROLL
    for (int i = 0; i < WarpState::kScoreSteps; ++i)
      warp.score_step(even, key_fragments, at.offset(), i);
    chunk.keys = at.offset();
    chunk.first_key = begin * T::kKeyTile;
    chunk.careful = true;
    UNROLL
    for (int i = 0; i < WarpState::kScorePairs; ++i) exponent_pair(even, top, i, chunk.first_key);
    settle(even, top, chunk);
    warp.fetch_keys(key_fragments, at.offset() + T::kChunkBytes, 0);
    warp.fetch_keys(key_fragments, at.offset() + T::kChunkBytes, 1);
    NO_UNROLL
    for (int tile = begin; tile < end; ++tile) {
      const Cursor next = at.next();
      const auto keys_of = [&](int c) {
        return c < T::kChunks ? at.offset() + c * T::kChunkBytes
                              : next.offset() + (c - T::kChunks) * T::kChunkBytes;
      };
      wait_for_refill(at);
      chunk.careful = careful_in(tile * T::kKeyTile);
      UNROLL
      for (int c = 0; c < T::kChunks; ++c) {
        const Cursor ahead = c + 2 < T::kChunks ? at : next;
        chunk.keys = keys_of(c + 1);
        chunk.next_keys = keys_of(c + 2);
        chunk.values = keys_of(c) + T::kTileBytes;
        chunk.first_key = tile * T::kKeyTile + (c + 1) * T::kChunk;
        chunk.filled = filled(ahead);
        chunk.filled_parity = ahead.parity;
        pipelined_step(c % 2 == 0 ? even : odd, c % 2 == 0 ? odd : even, chunk);
      }
      at = finish_tile(at);
    }
    return at;
  }

  // Visits the key tiles [begin, end); this warp's rows see those of [first, last) among them.
  DEVICE void visit_tiles(int begin, int end, int first, int last) {
    Cursor at = pass_tiles(first - begin, Cursor{});
    if (first < last) {
      if constexpr (T::kPipelined)
        at = pipelined_tiles(first, last, at);
      else
        at = plain_tiles(first, last, at);
    }
    pass_tiles(end - last, at);
  }
};

// Normalises a warp's rows, stages them in shared memory and writes them a line at a time.
template <ForwardConfig kConfig, class Mod>
DEVICE void store_rows(const Warp<kConfig, Mod>& warp, const BlockRows<kConfig.packed_heads>& rows,
                       u32 shared, int first_block_row) {
  using T = Tile<kConfig>;
  const int thread = static_cast<int>(arch::thread_index_again()), lane = thread % 32;
  const int in_block = thread / 32 * T::kWarpRows, first_row = first_block_row + in_block;
  const u32 stage = shared + in_block * T::kRowBytes;
  UNROLL
  for (int m = 0; m < T::kRowTiles; ++m)
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

// The kernel: blocks of forward_threads(kConfig) threads with forward_shared_bytes(kConfig) of dynamic
// shared memory.
template <ForwardConfig kConfig, class Mod = IdentityMod>
DEVICE void forward_mma(const ForwardParams& params, const Mod& mod = Mod{}) {
  using T = Tile<kConfig>;
  const BlockWork work = find_block_work(
      params, {T::kRows, kConfig.packed_heads ? params.heads_per_tile : 1,
               2 * (kConfig.head_dim + kConfig.head_dim_v), kConfig.right_edge});
  if (!work.exists) return;
  const WorkItem& item = work.item;
  const BlockRows<kConfig.packed_heads> rows{params, item, work.slot};
  const int thread = static_cast<int>(arch::thread_index());
  const int in_block = thread / 32 * T::kWarpRows;
  const int first_row = work.first_row + in_block;
  const u32 shared = arch::shared_memory();

  // The key tiles that some row of the block sees.
  const plan::Band band = band_of(params);
  plan::Range tiles{0, plan::ceil_div(item.key_rows, T::kKeyTile)};
  if (work.first_row >= rows.used()) {
    tiles = {};
  } else if constexpr (T::kMasked) {
    const int last_row = plan::min(work.first_row + T::kRows, rows.used()) - 1;
    tiles = plan::key_tiles(band, {rows.query(work.first_row), rows.query(last_row) + 1},
                            item.query_used, item.key_rows, T::kKeyTile)
                .visited;
  }

  ForwardBlock<kConfig, Mod> block{params, mod, item, work.slot, {}, {params}};
  block.warp.begin(shared);
  block.leaks_at = shared + T::kLeaksAt;
  arch::store_shared(block.leaks_at + thread / 32 * 4, 0);
  if (thread == 0) store_work(shared + T::kWorkAt, work);  // for the end: registers are short
  if (!tiles.empty()) {
    const int begin = static_cast<int>(tiles.begin), end = static_cast<int>(tiles.end);
    constexpr int kStages = kConfig.shape.stages;
    block.filled_barriers = shared + T::kBarriersAt;
    block.drained_barriers = block.filled_barriers + kStages * 8;
    const u32 queries_loaded = block.drained_barriers + kStages * 8;
    if (thread < kStages) {
      arch::barrier_init(block.filled_barriers + thread * 8, T::kThreads);
      arch::barrier_init(block.drained_barriers + thread * 8, kConfig.shape.warps);
    }
    if (thread == 0) arch::barrier_init(queries_loaded, T::kThreads);
    arch::sync_block();  // the barriers can be used

    copy_queries<kConfig>(rows, shared + T::kQueriesAt, work.first_row);
    arrive_after_copies<kConfig.aligned>(queries_loaded);
    const int first_key = begin * T::kKeyTile;
    block.ring.begin(shared, rows.k(first_key), rows.v(first_key),
                     plan::min(item.key_rows, end * T::kKeyTile) - first_key);
    block.fill_ahead(0, early_stages(kConfig));
    arch::barrier_wait(queries_loaded, 0);
    block.warp.load_queries(T::kQueriesAt + in_block * T::kRowBytes);
    arch::sync_block();  // all warps have their queries: the ring may overwrite them
    block.fill_ahead(early_stages(kConfig), stages_ahead(kConfig));

    // A warp without rows sees no key, and so visits no tile.
    const int first_query = rows.query(first_row);
    auto mask = band_mask<kConfig.left_edge, kConfig.right_edge>(band, item.query_used, item.key_rows);
    if (first_row >= rows.used()) mask.keys = 0;
    mask = mask.from_row(first_query);
    mask = {arch::uniform(mask.low), arch::uniform(mask.high), arch::uniform(mask.keys)};
    block.frame = {mask, first_query, arch::uniform(first_row - first_query * rows.heads()),
                   rows.heads()};
    const KeyRange any = block.frame.view().any;
    const int first_tile = plan::clamp(any.begin / T::kKeyTile, begin, end);
    const int last_tile = plan::clamp((any.end + T::kKeyTile - 1) / T::kKeyTile, first_tile, end);
    block.visit_tiles(begin, end, arch::uniform(first_tile), arch::uniform(last_tile));
    arch::wait_for_copies();
  }
  arch::sync_block();  // no warp reads the ring any more: the output may overwrite it
  const BlockWork kept = load_work(shared + T::kWorkAt);
  const BlockRows<kConfig.packed_heads> kept_rows{params, kept.item, kept.slot};
  store_rows<kConfig, Mod>(block.warp, kept_rows, shared, kept.first_row);
  if constexpr (T::kMasked || !Mod::kIdentity) {
    const int warp = static_cast<int>(arch::thread_index_again() / 32);
    const int begin = kept.first_row + warp * T::kWarpRows;
    if (arch::load_shared(shared + T::kLeaksAt + warp * 4) != 0)
      exact_rows<kConfig>(mod, kept_rows, begin, plan::min(begin + T::kWarpRows, kept_rows.used()));
  }
}

}  // namespace parapet::kernels
