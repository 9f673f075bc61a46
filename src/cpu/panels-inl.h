// Many rows. Everything is transposed, so that a vector lane is a row: a tile of scores is
// S^T = K Q^T, [key][row], and the output O^T = V^T P^T, [dim][row]. Both products are then the
// same sum of outer products; maxima and sums of rows need no work across lanes; and P^T comes out
// of the first product in the layout in which the second one reads it.

#include <hwy/highway.h>

#if defined(PARAPET_CPU_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PARAPET_CPU_PANELS_INL_H_
#undef PARAPET_CPU_PANELS_INL_H_
#else
#define PARAPET_CPU_PANELS_INL_H_
#endif

#include "cpu/packing-inl.h"
#include "cpu/rows-inl.h"
#include "cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

// Panels end with the last row, and the first one may begin before row 0: under a causal mask the
// lanes that are wasted are then the ones with the fewest keys. They repeat row 0 and are not
// written; whole columns of them are not even computed.
template <class T>
void start_panel(const Head& head, int64 index, Panel& panel) {
  const int64 panels = plan::ceil_div(head.rows(), kWidth);
  const int64 first_row = head.rows() - (panels - index) * kWidth;
  panel.first_lane = plan::max(int64{0}, -first_row);
  panel.first_row = plan::max(int64{0}, first_row);
  panel.first_column = panel.first_lane / kLanes;

  const api::Problem& problem = head.problem;
  const T* q[kWidth];
  Row row = head.row(panel.first_row);
  for (int64 lane = panel.first_column * kLanes; lane < kWidth; ++lane) {
    if (lane > panel.first_lane) row = head.next(row);
    panel.visible[lane] = head.visible(row);
    q[lane] = head.q<T>(row);
    fetch_row(q[lane], static_cast<std::size_t>(problem.head_dim) * sizeof(T));
    fetch_row(head.out<T>(row), static_cast<std::size_t>(problem.head_dim_v) * sizeof(T));
  }
  for (int64 j = 0; j < kColumns; ++j) {
    if (j < panel.first_column) continue;
    const Range first = panel.visible[j * kLanes], last = panel.visible[(j + 1) * kLanes - 1];
    panel.seen_by_any[j] = {first.begin, last.end};
    panel.seen_by_all[j] = {last.begin, first.end};
  }
  panel.keys = {panel.seen_by_any[panel.first_column].begin, panel.seen_by_any[kColumns - 1].end};
  const VF sign = hn::Set(df, Scores(problem).sign);
  for (int64 lane = panel.first_column * kLanes; lane < kWidth; lane += kBlock) {
    interleave_rows(q + lane, problem.head_dim, sign, kWidth, panel.q + lane);
  }
}

inline void reset_sums(const Head& head, Panel& panel) {
  for (int64 lane = 0; lane < kWidth; lane += kLanes) {
    hn::Store(hn::Set(df, kMinusInfinity), df, panel.reference + lane);
    hn::Store(hn::Zero(df), df, panel.sum + lane);
  }
  const int64 floats = plan::round_up(head.problem.head_dim_v, kGroup) * kWidth;
  for (int64 i = 0; i < floats; i += kLanes) hn::Store(hn::Zero(df), df, panel.out + i);
}

// The sums of a panel's rows, transposed; returns where its first row lies.
HWY_NOINLINE RowSums collect_rows(const Panel& panel, int64 dim_v, const RowSums& rows) {
  for (int64 lane = panel.first_column * kLanes; lane < kWidth; lane += kLanes) {
    for (int64 d = 0; d < dim_v; d += kBlock) {
      VF block[kBlock];
      for (int64 i = 0; i < kBlock; ++i) {
        block[i] = hn::Load(df, panel.out + (d + i) * kWidth + lane);
      }
      transpose_blocks(block);
      for (int64 i = 0; i < kBlock; ++i) {
        store_blocks(df, block[i], rows.values(lane + i) + d, kBlock * rows.row_stride,
                     kLanes / kBlock);
      }
    }
    for (int64 i = lane; i < lane + kLanes; ++i) {
      rows.reference(i) = panel.reference[i];
      rows.sum(i) = panel.sum[i];
    }
  }
  return rows.from(panel.first_lane);
}

// Scratch: queries and outputs of a block's panels, a tile of scores, the rows of a panel, and the
// rows of a block.
struct PanelsScratch {
  PanelsScratch(const api::Problem& problem, float* memory) {
    const int64 q_floats = plan::round_up(problem.head_dim, kMaxGroup) * kWidth;
    const int64 out_floats = plan::round_up(problem.head_dim_v, kMaxGroup) * kWidth;
    for (Panel& panel : panels) {
      panel.q = memory;
      panel.out = panel.q + q_floats;
      memory = panel.out + out_floats;
    }
    scores = memory;
    rows = {scores + kTileKeys * kWidth, RowSums::stride(problem)};
    block_rows = {rows.memory + kWidth * rows.row_stride, rows.row_stride};
  }

  Panel panels[plan::kCpuBlockPanels];
  float* scores;
  RowSums rows;
  RowSums block_rows;
};

// A block of panels against some keys, one tile after the other, so that a tile is read from memory
// once for all panels.
inline void run_block(const Head& head, const Packed& packed, Range keys, int64 panels,
                      PanelsScratch& scratch) {
  for (int64 i = 0; i < panels; ++i) reset_sums(head, scratch.panels[i]);
  for (int64 tile = keys.begin; tile < keys.end; tile += kTileKeys) {
    const PackedTile operands(head.problem, packed, tile);
    for (int64 i = 0; i < panels; ++i) {
      run_tile(head.problem, operands, scratch.panels[i], scratch.scores);
    }
  }
}

template <class T>
void run_panels(const Head& head, const Packed& packed, const PanelsTask& task, float* memory) {
  const int64 dim_v = head.problem.head_dim_v;
  PanelsScratch scratch(head.problem, memory);
  for (int64 first = task.panels.begin; first < task.panels.end; first += plan::kCpuBlockPanels) {
    const int64 panels = plan::min(plan::kCpuBlockPanels, task.panels.end - first);
    for (int64 i = 0; i < panels; ++i) start_panel<T>(head, first + i, scratch.panels[i]);
    for (int64 begin = task.keys.begin; begin < task.keys.end || begin == task.keys.begin;
         begin += task.chunk_keys) {
      const Range chunk{begin, plan::min(begin + task.chunk_keys, task.keys.end)};
      run_block(head, packed, chunk, panels, scratch);
      for (int64 i = 0; i < panels; ++i) {
        const Panel& panel = scratch.panels[i];
        const int64 count = kWidth - panel.first_lane;
        RowSums rows = collect_rows(panel, dim_v, scratch.rows);
        if (task.partial) {
          copy_rows(rows, count, RowSums{task.partial, rows.row_stride}.from(panel.first_row));
          continue;
        }
        if (task.keys.size() > task.chunk_keys) {
          const RowSums sums = scratch.block_rows.from(i * kWidth);
          if (begin == task.keys.begin) {
            copy_rows(rows, count, sums);
          } else {
            add_chunk(rows, count, dim_v, sums);
          }
          rows = sums;
        }
        if (chunk.end == task.keys.end) {
          write_rows<T>(head, head.row(panel.first_row), rows, count);
        }
      }
    }
  }
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PARAPET_CPU_PANELS_INL_H_
