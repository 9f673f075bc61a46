#include "emulate/emulated_call.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/kernel_unit.h"
#include "emulate/host_kernel.h"
#include "emulate/launch.h"
#include "kernels/core/work_list.h"

namespace parapet::testing {
namespace {

using emulate::Window;
using kernels::WorkItem;
using plan::int64;

// The call as the host hands it to the kernels, with its workspace.
class Emulation {
 public:
  Emulation(const api::Problem& problem, const EmulatedRun& run)
      : run_(run), plan_(cuda::plan_launch(problem, run.shared_bytes_per_sm, run.multiprocessors)) {
    if (!plan_.uses_work_list()) return;
    workspace_ = std::make_unique<std::byte[]>(static_cast<std::size_t>(plan_.workspace_bytes()));
    plan_.set_workspace(workspace_.get());
    plan_.params.status = &status_;
  }

  kernels::Status run() {
    if (plan_.uses_work_list()) make_work_list();
    attend();
    return status_;
  }

 private:
  const ForwardParams& params() const { return plan_.params; }

  void make_work_list() const {
    const HostKernel kernel = run_.kernels ? run_.kernels->work_list : run_work_list;
    emulate::launch({.threads = kernels::kWorkListThreads,
                     .shared_bytes = kernels::kWorkListSharedBytes,
                     .seed = run_.seed,
                     .windows = [&](int64) { return work_list_windows(); }},
                    [&] { kernel(params()); });
  }

  void attend() const {
    const HostKernel kernel = run_.kernels ? run_.kernels->forward : find_host_kernel(plan_.config);
    emulate::launch({.blocks = plan_.blocks * run_.grid_factor,
                     .threads = kernels::forward_threads(plan_.config),
                     .shared_bytes = kernels::forward_shared_bytes(plan_.config),
                     .seed = run_.seed,
                     .windows = [&](int64 block) { return block_windows(block); }},
                    [&] { kernel(params()); });
  }

  std::vector<Window> work_list_windows() const {
    const ForwardParams& p = params();
    const int64 ints = sizeof(int) * int64{p.batch};
    const int64 starts = ints + int64{sizeof(int)};
    std::vector<Window> windows{
        {"work_items", p.work_items, plan_.work_list_capacity * int64{sizeof(WorkItem)}},
        {"work_count", p.work_count, sizeof(int)},
        {"status", p.status, sizeof(*p.status)}};
    for (Window& window : windows) window.writable = true;
    if (p.cu_seqlens_q != nullptr) windows.push_back({"cu_seqlens_q", p.cu_seqlens_q, starts});
    if (p.cu_seqlens_k != nullptr) windows.push_back({"cu_seqlens_k", p.cu_seqlens_k, starts});
    if (p.seqused_q != nullptr) windows.push_back({"seqused_q", p.seqused_q, ints});
    if (p.seqused_k != nullptr) windows.push_back({"seqused_k", p.seqused_k, ints});
    return windows;
  }

  int slots() const {
    return plan_.config.packed_heads ? params().num_heads_k : params().num_heads;
  }
  int units_of(const WorkItem& item) const {
    return static_cast<int>(
        plan::ceil_div(int64{item.query_rows} * params().heads_per_tile, params().unit_rows));
  }

  // The segment that unit `index` of all heads' units belongs to; none beyond the last.
  std::optional<WorkItem> item_of(int index) const {
    if (plan_.uses_work_list()) {
      const int unit = index / slots();
      if (unit >= *params().work_count) return std::nullopt;
      return params().work_items[unit];
    }
    WorkItem item{};
    item.query_rows = item.query_used = params().rows_q;
    item.key_rows = params().rows_k;
    const int units = units_of(item) * slots();
    if (index >= units * params().batch) return std::nullopt;
    item.segment = index / units;
    item.first_unit = item.segment * units_of(item);
    return item;
  }

  // Of all units that a block works on.
  std::vector<Window> block_windows(int64 block) const {
    const ForwardParams& p = params();
    std::vector<Window> windows;
    if (plan_.uses_work_list()) windows.push_back({"work_count", p.work_count, sizeof(int)});
    const int64 sink_bytes = p.sink_type == kernels::kSinkFloat32 ? 4 : 2;
    if (p.sink != nullptr)
      windows.push_back({"sink", p.sink, sink_bytes, p.num_heads, p.sink_stride * sink_bytes});
    const int blocks = static_cast<int>(plan_.blocks * run_.grid_factor);
    for (int round = 0;; ++round) {
      const int index = kernels::unit_of_round(round, static_cast<int>(block), blocks);
      const std::optional<WorkItem> item = item_of(index);
      if (!item) return windows;
      if (plan_.uses_work_list())
        windows.push_back({"work item", p.work_items + index / slots(), sizeof(WorkItem)});
      const int in_segment = index - item->first_unit * slots();
      const int slot = in_segment / units_of(*item);
      const auto [first_row, short_row] =
          kernels::rows_of_unit(in_segment % units_of(*item), item->query_rows * p.heads_per_tile,
                                {kernels::forward_query_tile(plan_.config), p.heads_per_tile,
                                 kernels::pairs_tiles(plan_.config)});
      add_tile(windows, *item, slot, first_row);
      if (short_row >= 0) add_tile(windows, *item, slot, short_row);
      add_keys(windows, *item, slot);
    }
  }

  static Window rows_of(const char* name, const void* data, int64 element_bytes, int64 columns,
                        int64 offset, int64 stride, int64 rows) {
    return {name, static_cast<const std::byte*>(data) + offset * element_bytes,
            columns * element_bytes, plan::max(rows, int64{0}), stride * element_bytes};
  }

  // The queries of a tile, and what it writes.
  void add_tile(std::vector<Window>& windows, const WorkItem& item, int slot, int first_row) const {
    const ForwardParams& p = params();
    const int64 first = first_row / p.heads_per_tile;
    const int64 end = plan::ceil_div(int64{first_row} + kernels::forward_query_tile(plan_.config),
                                     p.heads_per_tile);
    const int64 row = item.query_begin + first;
    // Whatever the list says, no row outside the tensors.
    const auto at_most = [&](int rows) {
      return plan::min(plan::min(end, int64{rows}) - first, p.rows_q - row);
    };
    const int64 used = at_most(item.query_used), owned = at_most(item.query_rows);
    for (int64 i = 0; i < p.heads_per_tile; ++i) {
      const int64 head = slot * int64{p.heads_per_tile} + i;
      const auto offset = [&](int64 batch_stride, int64 row_stride, int64 head_stride) {
        return item.segment * batch_stride + row * row_stride + head * head_stride;
      };
      windows.push_back(rows_of("q", p.q, 2, plan_.config.head_dim,
                                offset(p.q_batch_stride, p.q_row_stride, p.q_head_stride),
                                p.q_row_stride, used));
      windows.push_back(rows_of("out", p.out, 2, plan_.config.head_dim_v,
                                offset(p.out_batch_stride, p.out_row_stride, p.out_head_stride),
                                p.out_row_stride, owned));
      windows.back().writable = true;
      windows.push_back(rows_of("lse", p.lse, 4, 1,
                                offset(p.lse_batch_stride, p.lse_row_stride, p.lse_head_stride),
                                p.lse_row_stride, owned));
      windows.back().writable = true;
    }
  }

  void add_keys(std::vector<Window>& windows, const WorkItem& item, int slot) const {
    const ForwardParams& p = params();
    const int64 head = plan_.config.packed_heads ? slot : slot / (p.num_heads / p.num_heads_k);
    const int64 rows = plan::min(int64{item.key_rows}, int64{p.rows_k} - item.key_begin);
    windows.push_back(rows_of(
        "k", p.k, 2, plan_.config.head_dim,
        item.segment * p.k_batch_stride + item.key_begin * p.k_row_stride + head * p.k_head_stride,
        p.k_row_stride, rows));
    windows.push_back(rows_of(
        "v", p.v, 2, plan_.config.head_dim_v,
        item.segment * p.v_batch_stride + item.key_begin * p.v_row_stride + head * p.v_head_stride,
        p.v_row_stride, rows));
  }

  EmulatedRun run_;
  cuda::LaunchPlan plan_;
  std::unique_ptr<std::byte[]> workspace_;
  alignas(16) mutable kernels::Status status_{};
};

struct Entry {
  ForwardConfig config;
  HostKernel kernel;
};

std::vector<Entry>& host_kernels() {
  static std::vector<Entry> all;
  return all;
}

}  // namespace

void run_work_list(const ForwardParams& params) {
  kernels::make_work_list(params);
}

void add_host_kernel(const ForwardConfig& config, HostKernel kernel) {
  host_kernels().push_back({config, kernel});
}

HostKernel find_host_kernel(const ForwardConfig& config) {
  const auto& all = host_kernels();
  const auto found =
      std::ranges::find_if(all, [&](const Entry& entry) { return entry.config == config; });
  if (found == all.end())
    throw std::out_of_range("tests/emulate/kernels lacks " + cuda::kernel_name(config));
  return found->kernel;
}

kernels::Status run_emulated(const HostCall& call, const EmulatedRun& run) {
  return Emulation(call.problem(), run).run();
}

}  // namespace parapet::testing
