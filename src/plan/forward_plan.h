#pragma once

#include <string>
#include <vector>

#include "plan/band.h"

// What a forward call amounts to, counted before it runs.

namespace parapet::plan {

struct SegmentLengths {
  int64 query = 0;
  int64 key = 0;

  friend bool operator==(const SegmentLengths&, const SegmentLengths&) = default;
};

struct ForwardShape {
  int64 num_heads = 0;
  int64 num_heads_k = 0;
  int64 head_dim = 0;
  int64 head_dim_v = 0;
  Band band = {};
  std::vector<SegmentLengths> segments = {};
  int64 tile_rows = 0;  // queries of a tile
  int64 tile_keys = 0;
};

// Counts for one head. Tiles are (query tile, key tile) pairs: full ones run without a mask,
// skipped ones hold no visible pair and are never touched.
struct TileCounts {
  int64 query_tiles = 0;
  int64 full = 0;
  int64 masked = 0;
  int64 skipped = 0;
  int64 visible_pairs = 0;  // (query, key) pairs that contribute
};

struct ForwardPlan {
  ForwardShape shape;
  std::vector<TileCounts> segments;
  TileCounts total;  // over all segments, still for one head
  int64 flops = 0;   // for all heads: 2 (D + Dv) for each visible pair

  // A table for people. Long batches are summarised: equal segments share a line, and the lines
  // that do the most work come first.
  std::string text() const;
};

// Throws Error(kInvalidArgument) when a count passes 2^63.
ForwardPlan plan_forward(ForwardShape shape);

// How many pairs (query, key) of a segment are visible. Closed form.
int64 count_visible_pairs(Band band, SegmentLengths lengths);

}  // namespace parapet::plan
