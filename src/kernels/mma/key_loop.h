#pragma once

#include "kernels/core/score.h"
#include "kernels/mma/ring.h"
#include "kernels/mma/warp.h"

namespace parapet::kernels {

// A warp's way over the key tiles of its block. The branches here matter also as boundaries of what
// ptxas schedules together: each comment that mentions ptxas was measured.
template <ForwardConfig kConfig, class Mod>
struct KeyLoop {
  using T = Tile<kConfig>;
  using WarpState = Warp<kConfig>;
  using Scores = typename WarpState::Scores;
  using Weights = typename WarpState::Weights;
  using Cursor = typename Ring<kConfig>::Cursor;

  const ForwardParams& params;
  const Mod& mod;
  const WorkItem& item;
  int slot;
  WarpState& warp;
  Ring<kConfig>& ring;
  typename WarpState::Frame frame;
  u32 leaks_at;  // a word for each warp, in shared memory
  typename WarpState::KeyFragments key_fragments{};

  // One chunk of keys.
  struct Chunk {
    u32 keys;  // offsets into the ring
    u32 next_keys;
    u32 values;
    int first_key;  // of the chunk whose scores are computed
    bool careful;   // whether to mask, and to look at every row's reference
    u32 filled;     // the barrier of next_keys' tile
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
    const bool hides = !Mod::kIdentity || frame.cuts(chunk.first_key, chunk.first_key + T::kChunk);
    if (hides && !warp.values_are_finite(chunk.keys + T::kTileBytes))
      arch::store_shared(leaks_at + arch::thread_index_again() / 32 * 4, 1);
  }

  // One step of P V, with the copies dealt out over them. Leaves with the next two key fragments.
  DEVICE void value_step(const Weights& weights, typename WarpState::ValueFragments& fragments,
                         const Chunk& chunk, int step) {
    constexpr int kSteps = WarpState::kValueSteps;
    warp.value_step(weights, fragments, chunk.values, step);
    ring.template copies_at<kSteps>(step);
    UNROLL
    for (int next = 0; next < 2; ++next) {  // with the last two steps, or the only one
      if (step == plan::max(kSteps - 2 + next, 0)) {
        warp.fetch_keys(key_fragments, chunk.next_keys, next);
      }
    }
  }

  // One chunk: scores, softmax, P V. The exponentials are taken against the old reference while the
  // vote on it is still out, and redone in the rare case that it rose. The barrier is tested early,
  // so that its answer is there in time; the branch that insists on it, like the vote's, ends
  // ptxas's scheduling block: in one block with the exponentials, P V would get a single fragment
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
    for (int i = 0; i < WarpState::kScorePairs; ++i) exponent_pair(scores, top, i, chunk.first_key);
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

  // The scores of the next chunk beside the exponentials of this one, then this one's P V beside
  // the next one's exponents.
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

  // Before the copies that go with the tile at `at`: the stage that they refill was in use two
  // tiles before, so warps may drift a whole tile apart before one waits here.
  DEVICE void wait_for_refill(Cursor at) const {
    arch::barrier_wait(ring.drained(ring.stage), at.parity ^ static_cast<int>(at.stage < 2));
  }

  DEVICE Cursor finish_tile(Cursor at) {
    ring.end_tile();
    arch::sync_warp();  // all lanes have read the tile
    if (arch::thread_index() % 32 == 0) arch::barrier_arrive(ring.drained(at.stage));
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
    const int begin = first_key + kLead, end = begin + T::kKeyTile;
    return !Mod::kIdentity || begin <= 0 || end > frame.mask.keys || frame.cuts(begin - 1, end);
  }

  // The key tiles [begin, end), all of which some row of this warp may see.
  DEVICE Cursor plain_tiles(int begin, int end, Cursor at) {
    arch::barrier_wait(ring.filled(at.stage), at.parity);
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
        chunk.filled = ring.filled(ahead.stage);
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
    arch::barrier_wait(ring.filled(at.stage), at.parity);
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
        chunk.filled = ring.filled(ahead.stage);
        chunk.filled_parity = ahead.parity;
        pipelined_step(c % 2 == 0 ? even : odd, c % 2 == 0 ? odd : even, chunk);
      }
      at = finish_tile(at);
    }
    return at;
  }

  // Visits the key tiles [first, last), which this warp's rows see, and passes the block's `before`
  // and `after` them.
  DEVICE void visit(int before, int first, int last, int after) {
    Cursor at = pass_tiles(before, Cursor{});
    if (first < last) {
      if constexpr (T::kPipelined)
        at = pipelined_tiles(first, last, at);
      else
        at = plain_tiles(first, last, at);
    }
    pass_tiles(after, at);
  }
};

}  // namespace parapet::kernels
