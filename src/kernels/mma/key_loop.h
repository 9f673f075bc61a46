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
  using Sums = typename WarpState::Sums;
  using Weights = typename WarpState::Weights;
  using Cursor = typename Ring<kConfig>::Cursor;

  const ForwardParams& params;
  const Mod& mod;
  const WorkItem& item;
  int slot;
  WarpState& warp;
  Ring<kConfig>& ring;
  typename WarpState::Frame frame;
  typename WarpState::KeyFragments key_fragments{};

  // Why a chunk needs a look at all rows' references: a row may not have seen a key before, or may
  // not see all keys of this one, which is then masked.
  enum Care : int { kNone = 0, kFirst = 1, kMasked = 2 };

  // One chunk of keys. Before its P V the warp waits for a barrier: that the next tile is filled,
  // or that the stage which the next copies refill is drained.
  struct Chunk {
    u32 at = 0;  // offsets into the ring
    u32 next_keys = 0;
    int first_key = 0;  // of the chunk whose scores are computed
    int care = kNone;   // a Care
    u32 barrier = 0;
    u32 parity = 0;
  };

  static constexpr int kPairs = WarpState::kScorePairs;

  DEVICE void exponent_pair(Scores& scores, int index, int first_key) const {
    warp.exponent_pair(
        scores, index,
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

  // The slow path of a chunk: masks, and moves the references up, where an exponent grew too large.
  DEVICE void settle(Scores& exponents, const Chunk& chunk, u32 keys_at) {
    if (chunk.care == kMasked) {
      warp.hide(exponents, chunk.first_key, frame);
      note_leak(chunk.first_key, keys_at);
    }
    warp.raise(exponents);
  }
  // Without a branch of its own: `|`.
  DEVICE bool needs_settling(const Scores& exponents, const Chunk& chunk) const {
    return (chunk.care != kNone) | !(warp.largest(exponents) <= kMaxGrowth);
  }

  // A weight of zero does not keep an infinite or NaN value out of P V. Keys that do not exist are
  // zeros in shared memory; where a row does not see a key that others see, and the values are not
  // finite, the warp's rows are computed anew at the end (exact_rows).
  DEVICE void note_leak(int first_key, u32 at) const {
    if constexpr (!T::kMasked && Mod::kIdentity) return;
    const bool hides = !Mod::kIdentity || frame.cuts(first_key, first_key + T::kChunk);
    if (hides && !warp.values_are_finite(at))
      arch::store_shared(Notes::of_this_warp<kConfig>().leak(), 1);
  }

  // One step of P V. Leaves with the next two key fragments.
  DEVICE void value_step(const Weights& weights, typename WarpState::ValueFragments& fragments,
                         const Chunk& chunk, int step) {
    constexpr int kSteps = WarpState::kValueSteps;
    warp.value_step(weights, fragments, chunk.at, step);
    if constexpr (T::kPipelined) ring.template copies_at<kSteps>(step);
    UNROLL
    for (int next = 0; next < 2; ++next) {  // with the last two steps, or the only one
      if (step == plan::max(kSteps - 2 + next, 0)) {
        warp.fetch_keys(key_fragments, chunk.next_keys, next);
      }
    }
  }

  // One chunk: scores beside the copies, softmax, P V. The exponentials are taken against the old
  // reference, and redone in the rare case that it has to rise. The barrier is tested early, so
  // that its answer is there in time; the branch that insists on it, like the vote's, ends ptxas's
  // scheduling block: in one block with the exponentials, P V would get a single fragment buffer
  // and wait for shared memory every four multiplications.
  DEVICE void plain_step(const Chunk& chunk) {
    Scores scores;
    Weights weights;
    Sums sums;
    UNROLL
    for (int i = 0; i < WarpState::kScoreSteps; ++i) {
      warp.score_step(scores, key_fragments, chunk.at, i);
      ring.template copies_at<WarpState::kScoreSteps>(i);
    }
    const bool open = arch::barrier_test(chunk.barrier, chunk.parity);
    UNROLL
    for (int i = 0; i < kPairs; ++i) exponent_pair(scores, i, chunk.first_key);
    const bool unsettled = needs_settling(scores, chunk);

    // The last exponentials are packed behind the branch, which need not wait for them.
    constexpr int kLate = kConfig.shape.late_pairs, kEarly = kPairs - kLate;
    typename WarpState::WeightPair late[kLate];
    const auto weigh = [&] {
      UNROLL
      for (int i = 0; i < kEarly; ++i) warp.add_weights(warp.weigh(scores, i), weights, sums, i);
      UNROLL
      for (int i = 0; i < kLate; ++i) late[i] = warp.weigh(scores, kEarly + i);
    };
    weigh();
    typename WarpState::ValueFragments fragments;
    warp.fetch_values(fragments, chunk.at, 0);
    if (arch::any_in_warp(unsettled | !open)) {
      if (arch::any_in_warp(unsettled)) {
        settle(scores, chunk, chunk.at);
        weigh();
      }
      arch::barrier_wait(chunk.barrier, chunk.parity);
    }
    UNROLL
    for (int i = 0; i < kLate; ++i) warp.add_weights(late[i], weights, sums, kEarly + i);
    warp.add_sums(sums);
    UNROLL
    for (int i = 0; i < WarpState::kValueSteps; ++i) value_step(weights, fragments, chunk, i);
  }

  // The scores of the next chunk, at `keys`, beside the exponentials of this one, then this one's P
  // V beside the next one's exponents.
  DEVICE void pipelined_step(Scores& current, Scores& next, u32 keys, const Chunk& chunk) {
    constexpr auto share = [](int step, int steps) { return kPairs * step / steps; };
    Weights weights;
    Sums sums;
    const bool open = arch::barrier_test(chunk.barrier, chunk.parity);
    UNROLL
    for (int i = 0; i < WarpState::kScoreSteps; ++i) {
      warp.score_step(next, key_fragments, keys, i);
      UNROLL
      for (int j = share(i, WarpState::kScoreSteps); j < share(i + 1, WarpState::kScoreSteps); ++j)
        warp.add_weights(warp.weigh(current, j), weights, sums, j);
    }
    typename WarpState::ValueFragments fragments;
    warp.fetch_values(fragments, chunk.at, 0);
    if (!open) arch::barrier_wait(chunk.barrier, chunk.parity);
    warp.add_sums(sums);
    UNROLL
    for (int i = 0; i < WarpState::kValueSteps; ++i) {
      value_step(weights, fragments, chunk, i);
      UNROLL
      for (int j = share(i, WarpState::kValueSteps); j < share(i + 1, WarpState::kValueSteps); ++j)
        exponent_pair(next, j, chunk.first_key);
    }
    if (arch::any_in_warp(needs_settling(next, chunk))) settle(next, chunk, keys);
  }

  // The copies that go with the tile at `at` refill a stage that was in use some tiles before.
  DEVICE u32 refill_parity(Cursor at) const {
    constexpr int kBehind = kConfig.shape.stages - stages_ahead(kConfig);
    return static_cast<u32>(at.parity ^ static_cast<int>(at.stage < kBehind));
  }
  DEVICE void wait_for_refill(Cursor at) const {
    arch::barrier_wait(ring.drained(ring.stage), refill_parity(at));
  }

  DEVICE Cursor finish_tile(Cursor at) {
    ring.end_tile();
    arch::sync_warp();  // all lanes have read the tile
    arch::barrier_arrive(ring.drained(at.stage), arch::thread_index() % 32 == 0);
    return at.next();
  }

  // The copies run ahead of the arithmetic: after this many more tiles they go on with the next
  // query tile's keys; negative when they have.
  int until_step = 0;

  DEVICE void step_ring_when_due() {
    if (until_step != 0) return;
    ring.step(Notes::of_this_warp<kConfig>());
    until_step = -1;
  }

  // Tiles that no row of this warp sees: it only does its share of the copies.
  DEVICE Cursor pass_tiles(int count, Cursor at) {
    NO_UNROLL
    for (; count > 0; --count) {
      step_ring_when_due();
      --until_step;
      arch::barrier_wait(ring.filled(at.stage), at.parity);  // or it might be filled twice at once
      wait_for_refill(at);
      ring.copy_tile();
      at = finish_tile(at);
    }
    return at;
  }

  // Where chunks are pipelined, scores are this many keys ahead.
  static constexpr int kLead = T::kPipelined ? T::kChunk : 0;

  // A run of key tiles that are treated alike.
  struct Run {
    int first_key;
    int tiles;
    int care;  // in its first chunk; kMasked in all
  };

  DEVICE Cursor plain_tiles(Cursor at, Run run) {
    NO_UNROLL
    for (; run.tiles > 0; --run.tiles) {
      constexpr bool kWaitsInChunks = T::kChunks > 1;
      if constexpr (!kWaitsInChunks) wait_for_refill(at);
      const Cursor next = at.next();
      Chunk chunk{at.offset,
                  next.offset,
                  run.first_key,
                  run.care,
                  ring.filled(next.stage),
                  static_cast<u32>(next.parity)};
      // Not unrolled: the loop's end ends ptxas's scheduling block too, and the slow path is long.
      NO_UNROLL
      for (int left = T::kChunks - 1; left >= 0; --left) {
        chunk.next_keys = chunk.at + T::kChunkBytes;
        if (left == 0) {
          chunk.next_keys = next.offset;
          if (kWaitsInChunks) {
            chunk.barrier = ring.drained(ring.next_stage());
            chunk.parity = refill_parity(next);
          }
        }
        plain_step(chunk);
        chunk.at = chunk.next_keys;
        chunk.first_key += T::kChunk;
        chunk.care &= kMasked;
      }
      run.first_key += T::kKeyTile;
      run.care &= kMasked;
      at = finish_tile(at);
    }
    return at;
  }

  DEVICE Cursor pipelined_tiles(Cursor at, Scores& even, Scores& odd, Run run) {
    NO_UNROLL
    for (; run.tiles > 0; --run.tiles) {
      constexpr bool kWaitsInChunks = T::kChunks > 2;
      if constexpr (!kWaitsInChunks) wait_for_refill(at);
      const Cursor next = at.next();
      const auto offset_of = [&](int c) {
        return c < T::kChunks ? at.offset + c * T::kChunkBytes
                              : next.offset + (c - T::kChunks) * T::kChunkBytes;
      };
      UNROLL
      for (int c = 0; c < T::kChunks; ++c) {
        const bool refills = kWaitsInChunks && c + 2 < T::kChunks;
        const Chunk chunk{offset_of(c),
                          offset_of(c + 2),
                          run.first_key + (c + 1) * T::kChunk,
                          c == 0 ? run.care : run.care & kMasked,
                          refills ? ring.drained(ring.stage) : ring.filled(next.stage),
                          refills ? refill_parity(at) : static_cast<u32>(next.parity)};
        pipelined_step(c % 2 == 0 ? even : odd, c % 2 == 0 ? odd : even, offset_of(c + 1), chunk);
      }
      run.first_key += T::kKeyTile;
      run.care &= kMasked;
      at = finish_tile(at);
    }
    return at;
  }

  // The first tile's first chunk, up to where pipelined_tiles goes on.
  DEVICE void begin_pipeline(Cursor at, Scores& scores, int first_key) {
    UNROLL
    for (int i = 0; i < WarpState::kScoreSteps; ++i)
      warp.score_step(scores, key_fragments, at.offset, i);
    UNROLL
    for (int i = 0; i < WarpState::kScorePairs; ++i) exponent_pair(scores, i, first_key);
    settle(scores, Chunk{.first_key = first_key, .care = kMasked}, at.offset);
    warp.fetch_keys(key_fragments, at.offset + T::kChunkBytes, 0);
    warp.fetch_keys(key_fragments, at.offset + T::kChunkBytes, 1);
  }

  // The key tiles [begin, end), all of which some row of this warp may see.
  DEVICE Cursor attend(Cursor at, int begin, int end) {
    arch::barrier_wait(ring.filled(at.stage), at.parity);
    warp.fetch_keys(key_fragments, at.offset, 0);
    warp.fetch_keys(key_fragments, at.offset, 1);
    Scores even, odd;
    if constexpr (T::kPipelined)
      begin_pipeline(at, even, begin * T::kKeyTile);
    else
      wait_for_refill(at);

    // Tiles whose keys every row sees: none for a mod, which may hide any key. Where the loop comes
    // to them, and no chunk before was such a one, some row may not have seen a key.
    const KeyRange seen = Mod::kIdentity ? frame.seen_by_all() : KeyRange{0, 0};
    int whole_begin = 0;
    if constexpr (kConfig.left_edge)
      whole_begin = arch::uniform((seen.begin - kLead + T::kKeyTile - 1) / T::kKeyTile);
    const int whole_end = arch::uniform((seen.end - kLead) / T::kKeyTile);
    int care_where_whole = T::kPipelined && seen.begin <= begin * T::kKeyTile ? kNone : kFirst;
    NO_UNROLL
    for (int tile = begin; tile < end;) {
      step_ring_when_due();
      Run run{tile * T::kKeyTile, end - tile, kMasked};
      if (tile < whole_begin) {
        run.tiles = plan::min(whole_begin, end) - tile;
      } else if (tile < whole_end) {
        run.tiles = plan::min(whole_end, end) - tile;
        run.care = care_where_whole;
        care_where_whole = kNone;
      }
      if (until_step > 0) run.tiles = plan::min(run.tiles, until_step);
      tile += run.tiles;
      until_step -= run.tiles;
      if constexpr (T::kPipelined)
        at = pipelined_tiles(at, even, odd, run);
      else
        at = plain_tiles(at, run);
    }
    return at;
  }

  // Visits the key tiles [first, last), which this warp's rows see, and passes the block's `before`
  // and `after` them. From the `steps_at`th of all these on, the copies are for the next query
  // tile.
  DEVICE Cursor visit(Cursor at, int steps_at, int before, int first, int last, int after) {
    until_step = steps_at;
    at = pass_tiles(before, at);
    if (first < last) at = attend(at, first, last);
    return pass_tiles(after, at);
  }
};

}  // namespace parapet::kernels
