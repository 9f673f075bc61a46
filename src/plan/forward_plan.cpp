#include "plan/forward_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "parapet/error.h"

namespace parapet::plan {
namespace {

[[noreturn]] void overflow() {
  throw Error(ErrorCode::kInvalidArgument,
              "seqlens: expected work that can be counted in 63 bits, found more");
}

int64 add(int64 a, int64 b) {
  int64 sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) overflow();
  return sum;
}

int64 multiply(int64 a, int64 b) {
  int64 product = 0;
  if (__builtin_mul_overflow(a, b, &product)) overflow();
  return product;
}

// first + (first + 1) + ... , `count` terms, all of them positive.
int64 arithmetic_sum(int64 first, int64 count) {
  // One of the two factors is even, and halving it first keeps the product exact.
  const int64 ends = add(multiply(2, first), count - 1);
  return ends % 2 == 0 ? multiply(ends / 2, count) : multiply(ends, count / 2);
}

// The sum of clamp(first + i, 0, limit) over 0 <= i < count.
int64 clamped_sum(int64 first, int64 count, int64 limit) {
  const int64 rising_begin = clamp(-first, int64{0}, count);           // below: 0
  const int64 rising_end = clamp(limit - first, rising_begin, count);  // from here on: limit
  const int64 rising = rising_end == rising_begin
                           ? 0
                           : arithmetic_sum(first + rising_begin, rising_end - rising_begin);
  return add(rising, multiply(limit, count - rising_end));
}

TileCounts count_tiles(const ForwardShape& shape, SegmentLengths lengths) {
  TileCounts counts;
  counts.query_tiles = ceil_div(lengths.query, shape.tile_rows);
  const int64 key_tile_count = ceil_div(lengths.key, shape.tile_keys);
  for (int64 tile = 0; tile < counts.query_tiles; ++tile) {
    const int64 begin = tile * shape.tile_rows;
    const Range rows{begin, min(begin + shape.tile_rows, lengths.query)};
    const KeyTiles keys = key_tiles(shape.band, rows, lengths.query, lengths.key, shape.tile_keys);
    counts.full = add(counts.full, keys.full.size());
    counts.masked = add(counts.masked, keys.visited.size() - keys.full.size());
    counts.skipped = add(counts.skipped, key_tile_count - keys.visited.size());
  }
  counts.visible_pairs = count_visible_pairs(shape.band, lengths);
  return counts;
}

void accumulate(TileCounts& total, const TileCounts& counts) {
  total.query_tiles = add(total.query_tiles, counts.query_tiles);
  total.full = add(total.full, counts.full);
  total.masked = add(total.masked, counts.masked);
  total.skipped = add(total.skipped, counts.skipped);
  total.visible_pairs = add(total.visible_pairs, counts.visible_pairs);
}

std::string band_text(Band band) {
  const auto side = [](int64 reach) {
    return reach >= kUnlimited ? std::string("unlimited") : fmt::format("{}", reach);
  };
  if (band.left >= kUnlimited && band.right >= kUnlimited) return "no mask";
  if (band.left >= kUnlimited && band.right == 0) return "causal";
  return fmt::format("window: {} to the left, {} to the right of the diagonal", side(band.left),
                     side(band.right));
}

}  // namespace

int64 count_visible_pairs(Band band, SegmentLengths lengths) {
  // Row i sees clamp(i + d + right + 1) - clamp(i + d - left) keys, each clamped to [0, key].
  const int64 diagonal = lengths.key - lengths.query;
  return clamped_sum(diagonal + band.right + 1, lengths.query, lengths.key) -
         clamped_sum(diagonal - band.left, lengths.query, lengths.key);
}

ForwardPlan plan_forward(ForwardShape shape) {
  ForwardPlan plan;
  plan.segments.reserve(shape.segments.size());
  std::map<std::pair<int64, int64>, TileCounts> counted;  // batches repeat few lengths
  for (const SegmentLengths& lengths : shape.segments) {
    const auto [entry, is_new] = counted.try_emplace({lengths.query, lengths.key});
    if (is_new) entry->second = count_tiles(shape, lengths);
    plan.segments.push_back(entry->second);
    accumulate(plan.total, entry->second);
  }
  plan.flops = multiply(multiply(plan.total.visible_pairs, shape.num_heads),
                        multiply(2, add(shape.head_dim, shape.head_dim_v)));
  plan.shape = std::move(shape);
  return plan;
}

std::string ForwardPlan::text() const {
  constexpr std::size_t kLines = 12;

  // One line for each pair of lengths, those with the most work first.
  struct Line {
    SegmentLengths lengths;
    int64 segments = 0;
    TileCounts counts;
  };
  std::map<std::pair<int64, int64>, Line> by_lengths;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    Line& line = by_lengths[{shape.segments[i].query, shape.segments[i].key}];
    line.lengths = shape.segments[i];
    line.segments += 1;
    accumulate(line.counts, segments[i]);
  }
  std::vector<Line> lines;
  for (const auto& [lengths, line] : by_lengths) lines.push_back(line);
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return a.counts.visible_pairs > b.counts.visible_pairs;
  });

  std::string result;
  const auto out = std::back_inserter(result);
  fmt::format_to(out, "{} segments, {} heads ({} of keys), head dims {} and {}, {}\n",
                 segments.size(), shape.num_heads, shape.num_heads_k, shape.head_dim,
                 shape.head_dim_v, band_text(shape.band));
  fmt::format_to(out, "tiles of {} queries x {} keys, counted for one head\n\n", shape.tile_rows,
                 shape.tile_keys);
  constexpr const char* kRow = "{:>9} {:>9} {:>9} {:>12} {:>11} {:>11} {:>11} {:>18}\n";
  fmt::format_to(out, fmt::runtime(kRow), "segments", "seqlen q", "seqlen k", "query tiles", "full",
                 "masked", "skipped", "visible pairs");
  for (std::size_t i = 0; i < std::min(lines.size(), kLines); ++i) {
    const Line& line = lines[i];
    fmt::format_to(out, fmt::runtime(kRow), line.segments, line.lengths.query, line.lengths.key,
                   line.counts.query_tiles, line.counts.full, line.counts.masked,
                   line.counts.skipped, line.counts.visible_pairs);
  }
  if (lines.size() > kLines) {
    fmt::format_to(out, "{:>9} more pairs of lengths\n", lines.size() - kLines);
  }
  fmt::format_to(out, fmt::runtime(kRow), segments.size(), "all", "", total.query_tiles, total.full,
                 total.masked, total.skipped, total.visible_pairs);
  fmt::format_to(out, "\n{:.6g} GFLOP for all heads, exactly {}\n",
                 static_cast<double>(flops) * 1e-9, flops);
  return result;
}

}  // namespace parapet::plan
