#include "plan/cpu_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "plan/forward_plan.h"

namespace parapet::plan {
namespace {

// Up to so many rows, panels alone are too few to keep the threads of a large machine busy, and
// long keys are split.
constexpr int64 kSplitRows = 384;
constexpr int64 kFewRowsChunk = 512;
constexpr int64 kPanelsChunk = 1024;
// The most keys that a thread packs for itself alone.
constexpr int64 kOwnKeys = 2048;

// Costs are in multiply-adds, of which a core does some 50 in a nanosecond.
constexpr double kThreadCost = 1e6;  // below this another thread costs more than it brings
constexpr double kUnitCost = 2e5;    // below this taking a unit from the queue would show
constexpr double kShareCost = 4e6;   // below this sharing a unit costs more than it brings
// Units that are a smaller part than this of a thread's share need not be shared to end together.
constexpr double kSmallPart = 1.0 / 12;

// In flight at most, unless two slots alone are larger.
constexpr int64 kSlotBytes = int64{1} << 30;

int64 default_chunk(const CpuSegment& segment) {
  if (segment.path == CpuPath::kFewRows) return kFewRowsChunk;
  if (segment.rows <= kSplitRows) return kPanelsChunk;
  return round_up(max(segment.keys.size(), int64{1}), kCpuTileKeys);
}

double cost_of(const CpuCall& call, const CpuSegment& segment, double visible_pairs) {
  const double dims = static_cast<double>(call.head_dim + call.head_dim_v);
  const double rows = static_cast<double>(segment.rows);
  const double keys = static_cast<double>(segment.keys.size());
  // Reading and packing a key takes as long as a few rows of arithmetic on it, and so does a row.
  constexpr double kMemoryRows = 8.0;
  return dims * (visible_pairs + kMemoryRows * (keys + rows));
}

CpuSharing sharing_of(const CpuSegment& segment, double total, int threads) {
  if (segment.path == CpuPath::kFewRows || segment.rows <= kSplitRows) {
    // Chunks longer than a thread packs for itself come from few, explicit splits.
    const bool fits = segment.path == CpuPath::kFewRows || segment.chunk_keys <= kOwnKeys;
    if (segment.chunks() > 1) return fits ? CpuSharing::kChunks : CpuSharing::kBlocks;
  }
  if (segment.path == CpuPath::kFewRows) return CpuSharing::kNone;
  const bool fits = segment.chunks() == 1 && segment.keys.size() <= kOwnKeys;
  const bool small =
      threads == 1 || segment.cost < kShareCost || segment.cost < kSmallPart * total / threads;
  return fits && small ? CpuSharing::kNone : CpuSharing::kBlocks;
}

// How many key heads make a unit.
int64 heads_of_unit(const CpuCall& call, const CpuSegment& segment, CpuSharing sharing,
                    double total, int threads) {
  const bool few_rows = segment.path == CpuPath::kFewRows;
  if (sharing != CpuSharing::kNone && !few_rows) return 1;
  // The rows of a key's heads are neighbours in memory, so reading them in place is fastest for all
  // heads together; but there must be work for every thread.
  const double wanted = few_rows ? max(kUnitCost, total / (8.0 * threads)) : kUnitCost;
  const double item = segment.cost / static_cast<double>(segment.chunks());
  const int64 most = few_rows ? min(call.num_heads_k, kCpuFewRowsHeads) : call.num_heads_k;
  if (item * static_cast<double>(most) <= wanted) return most;
  return max(int64{1}, static_cast<int64>(wanted / item));
}

const char* name_of(CpuSharing sharing) {
  switch (sharing) {
    case CpuSharing::kNone:
      return "one thread";
    case CpuSharing::kChunks:
      return "chunks of keys";
    case CpuSharing::kBlocks:
      return "blocks of panels";
  }
  return "";
}

}  // namespace

CpuSegment plan_cpu_segment(const CpuCall& call, int64 seqlen_q, int64 seqlen_k) {
  CpuSegment segment;
  segment.rows = seqlen_q * call.group;
  segment.path = segment.rows <= kCpuFewRows ? CpuPath::kFewRows : CpuPath::kPanels;
  if (seqlen_q > 0) {
    const Range first = visible_keys(call.band, 0, seqlen_q, seqlen_k);
    const Range last = visible_keys(call.band, seqlen_q - 1, seqlen_q, seqlen_k);
    segment.keys = {first.begin, max(first.begin, last.end)};
  }
  segment.chunk_keys = default_chunk(segment);
  if (call.num_splits > 1) {
    const int64 part = ceil_div(segment.keys.size(), int64{call.num_splits});
    segment.chunk_keys = round_up(max(part, int64{1}), kCpuTileKeys);
  }
  const double pairs = static_cast<double>(count_visible_pairs(call.band, {seqlen_q, seqlen_k})) *
                       static_cast<double>(call.group);
  segment.cost = cost_of(call, segment, pairs);
  return segment;
}

CpuBlocks::CpuBlocks(int64 panels_, int threads) : panels(panels_) {
  wide = max(int64{0}, panels - 4 * int64{threads}) / kCpuBlockPanels;
  narrow = panels - wide * kCpuBlockPanels;
}

Range CpuBlocks::block(int64 index) const {
  if (index < wide) {
    const int64 end = panels - index * kCpuBlockPanels;
    return {end - kCpuBlockPanels, end};
  }
  const int64 end = panels - wide * kCpuBlockPanels - (index - wide);
  return {end - 1, end};
}

CpuSchedule schedule_cpu(const CpuCall& call, const std::vector<CpuSegment>& segments,
                         int max_threads) {
  double total = 0.0;
  for (const CpuSegment& segment : segments) {
    if (segment.rows > 0) total += segment.cost * static_cast<double>(call.num_heads_k);
  }
  CpuSchedule schedule;
  schedule.threads =
      static_cast<int>(clamp(total / kThreadCost, 1.0, static_cast<double>(max_threads)));

  for (std::size_t i = 0; i < segments.size(); ++i) {
    const CpuSegment& segment = segments[i];
    if (segment.rows == 0) continue;
    const CpuSharing sharing = sharing_of(segment, total, schedule.threads);
    const int64 heads = heads_of_unit(call, segment, sharing, total, schedule.threads);
    for (int64 head = 0; head < call.num_heads_k; head += heads) {
      schedule.units.push_back(
          {static_cast<int64>(i), head, min(head + heads, call.num_heads_k), sharing});
    }
  }

  // Shared units first. Among them the longest first, so that the end of the call is left to short
  // ones; only units that are long enough to matter are sorted, since there may be very many.
  const auto cost = [&](const CpuUnit& unit) { return segments[unit.segment].cost; };
  const auto unshared =
      std::stable_partition(schedule.units.begin(), schedule.units.end(),
                            [](const CpuUnit& unit) { return unit.sharing != CpuSharing::kNone; });
  schedule.shared = unshared - schedule.units.begin();
  const double long_cost = kSmallPart * total / schedule.threads / 4;
  for (const auto& [begin, end] :
       {std::pair{schedule.units.begin(), unshared}, std::pair{unshared, schedule.units.end()}}) {
    const auto short_ones = std::stable_partition(
        begin, end, [&](const CpuUnit& unit) { return cost(unit) >= long_cost; });
    std::stable_sort(begin, short_ones,
                     [&](const CpuUnit& a, const CpuUnit& b) { return cost(a) > cost(b); });
  }
  return schedule;
}

std::string CpuSchedule::text() const {
  std::string lines =
      fmt::format("{} threads, {} units, {} of them shared\n", threads, units.size(), shared);
  for (std::size_t i = 0; i < units.size();) {
    const CpuUnit& unit = units[i];
    std::size_t next = i + 1;
    while (next < units.size() && units[next].segment == unit.segment) ++next;
    lines += fmt::format("segment {}: {} units of {} key heads, by {}\n", unit.segment, next - i,
                         unit.head_end - unit.head_begin, name_of(unit.sharing));
    i = next;
  }
  return lines;
}

int64 cpu_slots(int64 units, int64 items_of_smallest_unit, int threads, int64 slot_bytes) {
  const int64 wanted = 2 + ceil_div(int64{threads}, max(int64{1}, items_of_smallest_unit));
  const int64 affordable = kSlotBytes / max(int64{1}, slot_bytes);
  return min(units, max(int64{2}, min(wanted, affordable)));
}

}  // namespace parapet::plan
