#pragma once

#include <string>
#include <vector>

#include "plan/band.h"

// How the CPU backend divides a call into work.
//
// What a segment's own lengths decide (CpuSegment) fixes the order of every sum, so it must not
// know anything else: not the number of threads, not the rest of the batch. What the whole call
// decides (CpuSchedule) is only who computes what and when.

namespace parapet::plan {

// Keys of a tile: its weights and a panel of queries or outputs stay in the first-level cache.
inline constexpr int64 kCpuTileKeys = 128;
// Panels of query rows that one thread takes at a time, so that it reads a tile of keys from the
// second-level cache once for all of them.
inline constexpr int64 kCpuBlockPanels = 4;
// Keys of a packing item, a multiple of the tile.
inline constexpr int64 kCpuPackKeys = 256;
// Up to so many rows, packing keys and values would cost more than it saves.
inline constexpr int64 kCpuFewRows = 8;
// The most key heads of a few-rows unit: its queries and outputs have to stay in the cache.
inline constexpr int64 kCpuFewRowsHeads = 32;

// A row is a query of one of the query heads that share a key head: query * group + head in group.
enum class CpuPath {
  kFewRows,  // keys and values are read in place, once for all rows of a key head: decoding
  kPanels,   // keys and values are packed first, then panels of rows run over them
};

struct CpuCall {
  int64 num_heads_k = 1;
  int64 group = 1;  // query heads of a key head
  int64 head_dim = 0;
  int64 head_dim_v = 0;
  Band band = {};
  int num_splits = 1;
};

struct CpuSegment {
  // Keys are cut into chunks whose results are merged in order; a chunk is a whole number of tiles.
  int64 chunks() const { return max(int64{1}, ceil_div(keys.size(), chunk_keys)); }
  Range chunk(int64 index) const {
    const int64 begin = keys.begin + index * chunk_keys;
    return {begin, min(begin + chunk_keys, keys.end)};
  }

  CpuPath path = CpuPath::kPanels;
  int64 rows = 0;
  Range keys = {};  // from the first to the last one that any row sees
  int64 chunk_keys = kCpuTileKeys;
  double cost = 0.0;  // of one key head: multiply-adds, or as many as take the same time
};

CpuSegment plan_cpu_segment(const CpuCall& call, int64 seqlen_q, int64 seqlen_k);

// Who computes a unit.
enum class CpuSharing {
  kNone,    // one thread
  kChunks,  // a chunk of keys a thread; the last one to finish merges them
  kBlocks,  // keys and values are packed once, by all threads; then a block of panels a thread
};

// Some key heads of a segment.
struct CpuUnit {
  int64 segment = 0;
  int64 head_begin = 0;
  int64 head_end = 0;
  CpuSharing sharing = CpuSharing::kNone;
};

// A unit's panels in blocks. Many narrow ones at the end let the threads finish together. Blocks
// are numbered from the last row backwards, because under a causal mask the last rows have most to
// do.
struct CpuBlocks {
  CpuBlocks(int64 panels, int threads);
  int64 size() const { return wide + narrow; }
  Range block(int64 index) const;  // of panels

  int64 panels;
  int64 wide;    // of kCpuBlockPanels
  int64 narrow;  // of one panel
};

struct CpuSchedule {
  int threads = 1;
  std::vector<CpuUnit> units;  // in the order in which they start
  int64 shared = 0;            // the first so many are shared, the others are not

  // One line a unit, equal neighbours counted together.
  std::string text() const;
};

CpuSchedule schedule_cpu(const CpuCall& call, const std::vector<CpuSegment>& segments,
                         int max_threads);

// How many shared units can be in progress at the same time. Each has a slot of memory, a ring of
// them serves all units: packing runs one unit ahead, and while the last items of a unit are being
// computed, the other threads are already working on the units after it. At least two, because a
// unit is packed before the one ahead of it is computed.
int64 cpu_slots(int64 units, int64 items_of_smallest_unit, int threads, int64 slot_bytes);

}  // namespace parapet::plan
