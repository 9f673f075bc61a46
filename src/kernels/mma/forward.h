#pragma once

#include "kernels/core/query_rows.h"
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
  RowFrame frame;
  RowSource keys;
  RowSource values;
  u32 filled_barriers;
  u32 drained_barriers;
  typename WarpState::KeyFragments key_fragments;

  // One chunk of keys: where it lies, and what to wait for before the next fragments can be read and
  // the next copies issued.
  struct Chunk {
    u32 keys;        // offsets into the ring
    u32 next_keys;
    u32 values;
    int first_key;   // of the chunk whose scores are computed
    float allowed;   // exponents up to this need no slow path
    u32 filled;      // barriers and their parities
    u32 filled_parity;
    u32 drained;
    u32 drained_parity;
  };

  // A score in powers of two, relative to its row's reference.
  DEVICE float exponent(float score, float neg_reference, const typename WarpState::Pair& p, int e,
                        int first_key) const {
    if constexpr (Mod::kIdentity) {
      if constexpr (kConfig.softcap)
        return soft_cap(score * params.score_scale, params.softcap_scale) + neg_reference;
      return arch::multiply_add(score, params.score_scale, neg_reference);
    } else {
      const int row = WarpState::tile_row(frame, p.m, p.half);
      const int heads = frame.heads_per_tile;
      const ScorePosition position{item.segment,
                                   kConfig.packed_heads ? slot * heads + row % heads : slot,
                                   WarpState::query_row(frame, p.m, p.half),
                                   first_key + WarpState::key_in_chunk(p.block, e),
                                   item.query_used,
                                   item.key_rows};
      const float scaled = kConfig.softcap
                               ? soft_cap(score * params.score_scale, params.softcap_scale)
                               : score * params.score_scale;
      return mod(scaled * kLn2, position) * kLog2E + neg_reference;
    }
  }

  DEVICE void exponent_pair(Scores& scores, float (&top)[T::kRowTiles][2], int index, int first_key) {
    warp.exponent_pair(scores, top, index,
                       [&](float score, float neg_reference, const typename WarpState::Pair& p,
                           int e) { return exponent(score, neg_reference, p, e, first_key); });
  }

  // The slow path of a chunk: masks, and moves the references up, when an exponent has grown past
  // `allowed`. In tiles that some row does not see whole, and up to the first that all see, nothing
  // is allowed, so they always come here, and no other tile is ever masked.
  DEVICE bool settle(Scores& exponents, const float (&top)[T::kRowTiles][2], const Chunk& chunk) {
    float highest = arch::max(top[0][0], top[0][1]);
    UNROLL
    for (int m = 1; m < T::kRowTiles; ++m)
      highest = arch::max(highest, arch::max(top[m][0], top[m][1]));
    if (!arch::any_in_warp(!(highest <= chunk.allowed))) return false;
    if (chunk.allowed < 0.0f) warp.hide(exponents, chunk.first_key, frame);
    warp.raise(exponents);
    return true;
  }

  DEVICE void wait(const Chunk& chunk, bool filled, bool drained) const {
    while (!(filled && drained)) {
      filled = arch::barrier_test(chunk.filled, chunk.filled_parity);
      drained = arch::barrier_test(chunk.drained, chunk.drained_parity);
    }
  }

  // P V, with the copies dealt out over it. Leaves with the next two key fragments.
  DEVICE void multiply_values(const Weights& weights, typename WarpState::ValueFragments& fragments,
                              const Chunk& chunk, int step) {
    constexpr int kSteps = WarpState::kValueSteps;
    warp.value_step(weights, fragments, chunk.values, step);
    ring.template copies_at<kSteps>(step, keys, values);
    if (step >= kSteps - 2) warp.fetch_keys(key_fragments, chunk.next_keys, step - (kSteps - 2));
  }

  // One chunk: scores, softmax, P V. The exponentials are taken against the old reference while the
  // vote on it is still out, and redone in the rare case that it rose. The barriers are tested early,
  // so that their answers are there in time; the loop that insists on them, like the vote's branch,
  // ends ptxas's scheduling block: in one block with the exponentials, P V would get a single fragment
  // buffer and wait for shared memory every four multiplications.
  DEVICE void plain_step(const Chunk& chunk) {
    Scores scores;
    Weights weights;
    UNROLL
    for (int i = 0; i < WarpState::kScoreSteps; ++i)
      warp.score_step(scores, key_fragments, chunk.keys, i);
    float top[T::kRowTiles][2];
    const bool filled = arch::barrier_test(chunk.filled, chunk.filled_parity);
    const bool drained = arch::barrier_test(chunk.drained, chunk.drained_parity);
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
    wait(chunk, filled, drained);
    UNROLL
    for (int i = 0; i < WarpState::kValueSteps; ++i) multiply_values(weights, fragments, chunk, i);
  }

  // The scores of the next chunk beside the exponentials of this one, then this one's P V beside the
  // next one's exponents.
  DEVICE void pipelined_step(Scores& current, Scores& next, const Chunk& chunk) {
    constexpr int kPairs = WarpState::kScorePairs;
    constexpr auto share = [](int step, int steps) { return kPairs * step / steps; };
    Weights weights;
    const bool filled = arch::barrier_test(chunk.filled, chunk.filled_parity);
    const bool drained = arch::barrier_test(chunk.drained, chunk.drained_parity);
    UNROLL
    for (int i = 0; i < WarpState::kScoreSteps; ++i) {
      warp.score_step(next, key_fragments, chunk.keys, i);
      UNROLL
      for (int j = share(i, WarpState::kScoreSteps); j < share(i + 1, WarpState::kScoreSteps); ++j)
        warp.weight_pair(current, weights, j);
    }
    typename WarpState::ValueFragments fragments;
    warp.fetch_values(fragments, chunk.values, 0);
    wait(chunk, filled, drained);
    float top[T::kRowTiles][2];
    UNROLL
    for (int i = 0; i < WarpState::kValueSteps; ++i) {
      multiply_values(weights, fragments, chunk, i);
      UNROLL
      for (int j = share(i, WarpState::kValueSteps); j < share(i + 1, WarpState::kValueSteps); ++j)
        exponent_pair(next, top, j, chunk.first_key);
    }
    settle(next, top, chunk);
  }

  // Copies a tile that no row of this warp sees: the other warps need it.
  DEVICE void pass_tile(const Chunk& chunk) {
    arch::barrier_wait(chunk.drained, chunk.drained_parity);
    NO_UNROLL
    for (int c = 0; c < T::kChunks; ++c) ring.copy_chunk(keys, values);
  }

  // Visits the key tiles [begin, end).
  DEVICE void visit_tiles(int begin, int end, const RowsView& view) {
    int stage = 0, parity = 0;  // of the tile in use
    Scores even, odd;           // only pipelined kernels keep scores from step to step
    Chunk chunk;
    arch::barrier_wait(filled_barriers, 0);
    warp.fetch_keys(key_fragments, 0, 0);
    warp.fetch_keys(key_fragments, 0, 1);
    if constexpr (T::kPipelined) {
      float top[T::kRowTiles][2];
      UNROLL
      for (int i = 0; i < WarpState::kScoreSteps; ++i) warp.score_step(even, key_fragments, 0, i);
      chunk.first_key = begin * T::kKeyTile;
      chunk.allowed = -arch::kInfinity;
      UNROLL
      for (int i = 0; i < WarpState::kScorePairs; ++i) exponent_pair(even, top, i, chunk.first_key);
      settle(even, top, chunk);
      warp.fetch_keys(key_fragments, T::kChunkBytes, 0);
      warp.fetch_keys(key_fragments, T::kChunkBytes, 1);
    }
    NO_UNROLL
    for (int tile = begin; tile < end; ++tile) {
      const bool wraps = stage == ring.kStages - 1;
      const int next_stage = wraps ? 0 : stage + 1, next_parity = parity ^ static_cast<int>(wraps);
      const u32 here = stage * T::kStageBytes, next = next_stage * T::kStageBytes;
      chunk.drained = drained_barriers + ring.stage * 8;
      chunk.drained_parity = parity ^ static_cast<int>(stage < 2);
      const int first_key = tile * T::kKeyTile, last_key = first_key + T::kKeyTile - 1;

      // The vote only tells ptxas that the warp agrees.
      const bool reached = arch::any_in_warp(first_key < view.any.end && last_key >= view.any.begin);
      if (reached) {
        constexpr int kLead = T::kPipelined ? T::kChunk : 0;  // the scores are that far ahead
        const bool open = first_key + kLead > view.all.begin && last_key + kLead < view.all.end;
        chunk.allowed = open && Mod::kIdentity ? kMaxGrowth : -arch::kInfinity;
        if constexpr (T::kPipelined) {
          const auto keys_of = [&](int c) {
            return c < T::kChunks ? here + c * T::kChunkBytes : next + (c - T::kChunks) * T::kChunkBytes;
          };
          UNROLL
          for (int c = 0; c < T::kChunks; ++c) {
            const bool ahead = c + 2 >= T::kChunks;
            chunk.keys = keys_of(c + 1);
            chunk.next_keys = keys_of(c + 2);
            chunk.values = here + T::kTileBytes + c * T::kChunkBytes;
            chunk.first_key = first_key + (c + 1) * T::kChunk;
            chunk.filled = filled_barriers + (ahead ? next_stage : stage) * 8;
            chunk.filled_parity = ahead ? next_parity : parity;
            pipelined_step(c % 2 == 0 ? even : odd, c % 2 == 0 ? odd : even, chunk);
          }
        } else {
          // Not unrolled: the loop's end ends ptxas's scheduling block too, and the slow path is long.
          NO_UNROLL
          for (int c = 0; c < T::kChunks; ++c) {
            const bool last = c == T::kChunks - 1;
            chunk.keys = here + c * T::kChunkBytes;
            chunk.next_keys = last ? next : here + (c + 1) * T::kChunkBytes;
            chunk.values = here + T::kTileBytes + c * T::kChunkBytes;
            chunk.first_key = first_key + c * T::kChunk;
            chunk.filled = filled_barriers + (last ? next_stage : stage) * 8;
            chunk.filled_parity = last ? next_parity : parity;
            plain_step(chunk);
          }
        }
      } else {
        pass_tile(chunk);
      }
      ring.end_tile(filled_barriers);
      arch::sync_warp();  // all lanes have read the tile
      if (arch::thread_index() % 32 == 0) arch::barrier_arrive(drained_barriers + stage * 8);
      stage = next_stage;
      parity = next_parity;
    }
  }
};

// Normalises a warp's rows, stages them in shared memory and writes them a line at a time.
template <ForwardConfig kConfig, class Mod>
DEVICE void store_rows(const Warp<kConfig, Mod>& warp, const QueryRows<kConfig.packed_heads>& rows,
                       u32 stage, int first_row) {
  using T = Tile<kConfig>;
  const int lane = static_cast<int>(arch::thread_index() % 32);
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
        arch::store_global_u32(rows.lse(row), __builtin_bit_cast(u32, result.lse));
    }
  arch::sync_warp();  // the rows are staged
  constexpr int kUnits = kConfig.head_dim_v / kUnitElements;
  NO_UNROLL
  for (int in_warp = lane / 8; in_warp < T::kWarpRows; in_warp += 4) {
    const int row = first_row + in_warp;
    if (row >= rows.owned()) break;
    char* const to = rows.out(row);
    UNROLL
    for (int line = 0; line < T::units_in_lines(kConfig.head_dim_v) / 8; ++line) {
      const int unit = line * 8 + lane % 8;
      if (unit < kUnits)
        store_unit<kConfig.aligned>(
            to + unit * 16, arch::load_shared_unit(stage + shared_at<T::kRowBytes>(in_warp, unit)));
    }
  }
}

// The kernel: blocks of forward_threads(kConfig) threads with forward_shared_bytes(kConfig) of dynamic
// shared memory.
template <ForwardConfig kConfig, class Mod = IdentityMod>
DEVICE void forward_mma(const ForwardParams& params, const Mod& mod = Mod{}) {
  using T = Tile<kConfig>;
  constexpr int kBytesPerKey = 2 * (kConfig.head_dim + kConfig.head_dim_v);
  const BlockWork work = find_block_work(params, kConfig.right_edge, kBytesPerKey);
  if (!work.exists) return;
  const WorkItem& item = work.item;
  const QueryRows<kConfig.packed_heads> rows{params, item, work.slot};
  const int thread = static_cast<int>(arch::thread_index());
  const int in_block = thread / 32 * T::kWarpRows;
  const int first_row = work.first_row + in_block;
  const u32 shared = arch::shared_memory();

  ForwardBlock<kConfig, Mod> block{params, mod, item, work.slot};
  block.warp.begin(shared);

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
  if (!tiles.empty()) {
    const int begin = static_cast<int>(tiles.begin), end = static_cast<int>(tiles.end);
    block.filled_barriers = shared + T::kBarriersAt;
    block.drained_barriers = block.filled_barriers + kConfig.shape.stages * 8;
    if (thread < kConfig.shape.stages) {
      arch::barrier_init(block.filled_barriers + thread * 8, T::kThreads);
      arch::barrier_init(block.drained_barriers + thread * 8, kConfig.shape.warps);
    }

    NO_UNROLL
    for (int i = thread / 8; i < T::kRows; i += T::kThreads / 8) {
      const int row = work.first_row + i;
      const bool used = row < rows.used();
      const char* const from = used ? rows.q(row) : static_cast<const char*>(params.q);
      UNROLL
      for (int line = 0; line < T::units_in_lines(kConfig.head_dim) / 8; ++line) {
        const int unit = line * 8 + thread % 8;
        copy_unit<kConfig.aligned>(shared + shared_at<T::kRowBytes>(i, unit), from + unit * 16,
                                   used && unit < kConfig.head_dim / kUnitElements);
      }
    }
    arch::wait_for_copies();
    arch::sync_block();  // the queries are there, and the barriers
    block.warp.load_queries(in_block * T::kRowBytes);
    arch::sync_block();  // all warps have them: the ring may overwrite

    const int key_head = kConfig.packed_heads ? work.slot : work.slot / (params.num_heads / params.num_heads_k);
    block.keys = {static_cast<const char*>(params.k) +
                      2 * (item.segment * params.k_batch_stride + item.key_begin * params.k_row_stride +
                           key_head * params.k_head_stride),
                  2 * params.k_row_stride};
    block.values = {static_cast<const char*>(params.v) +
                        2 * (item.segment * params.v_batch_stride + item.key_begin * params.v_row_stride +
                             key_head * params.v_head_stride),
                    2 * params.v_row_stride};
    block.ring.begin(shared, block.keys, block.values, begin * T::kKeyTile,
                     plan::min(item.key_rows, end * T::kKeyTile));
    NO_UNROLL
    for (int t = 0; t < block.ring.kAhead; ++t) {
      NO_UNROLL
      for (int c = 0; c < T::kChunks; ++c) block.ring.copy_chunk(block.keys, block.values);
      block.ring.end_tile(block.filled_barriers);
    }

    block.frame = {band_mask(band, item.query_used, item.key_rows), first_row, rows.heads()};
    RowsView view{{0, 0}, {0, item.key_rows}};
    if (first_row < rows.used()) {
      view.any.end = item.key_rows;
      if constexpr (T::kMasked) {
        const int first = rows.query(first_row);
        const int last = rows.query(plan::min(first_row + T::kWarpRows, rows.used()) - 1);
        view = {block.frame.mask.of_any(first, last), block.frame.mask.of_all(first, last)};
      }
    }
    block.visit_tiles(begin, end, view);
    arch::wait_for_copies();
    arch::sync_block();  // no warp reads the ring any more: it may be overwritten by the output
  }
  store_rows<kConfig, Mod>(block.warp, rows, shared + in_block * T::kRowBytes, first_row);
}

}  // namespace parapet::kernels
