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
      : run_(run), plan_(cuda::plan_launch(problem, run.shared_bytes_per_sm)) {
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

  int64 slots() const {
    return plan_.config.packed_heads ? params().num_heads_k : params().num_heads;
  }
  int64 tiles_of(const WorkItem& item) const {
    return plan::ceil_div(int64{item.query_rows} * params().heads_per_tile, params().query_tile);
  }

  // The segment of a block; none for blocks beyond the last tile.
  std::optional<WorkItem> item_of(int64 block) const {
    if (plan_.uses_work_list()) {
      const int64 tile = block / slots();
      if (tile >= *params().work_count) return std::nullopt;
      return params().work_items[tile];
    }
    WorkItem item{};
    item.query_rows = item.query_used = params().rows_q;
    item.key_rows = params().rows_k;
    const int64 blocks = tiles_of(item) * slots();
    if (block >= blocks * params().batch) return std::nullopt;
    item.segment = static_cast<int>(block / blocks);
    item.first_tile = static_cast<int>(item.segment * tiles_of(item));
    return item;
  }

  std::vector<Window> block_windows(int64 block) const {
    const ForwardParams& p = params();
    const ForwardConfig& config = plan_.config;
    std::vector<Window> windows;
    if (plan_.uses_work_list()) windows.push_back({"work_count", p.work_count, sizeof(int)});
    const std::optional<WorkItem> item = item_of(block);
    if (!item) return windows;
    if (plan_.uses_work_list())
      windows.push_back({"work item", p.work_items + block / slots(), sizeof(WorkItem)});
    const int64 sink_bytes = p.sink_type == kernels::kSinkFloat32 ? 4 : 2;
    if (p.sink != nullptr)
      windows.push_back({"sink", p.sink, sink_bytes, p.num_heads, p.sink_stride * sink_bytes});

    const int64 group = config.right_edge
                            ? kernels::slots_per_group(slots(), p.num_heads_k, item->key_rows,
                                                       2 * (config.head_dim + config.head_dim_v))
                            : 1;
    const kernels::TilePlace place =
        kernels::place_tile(block - item->first_tile * slots(), tiles_of(*item), slots(), group);
    const int64 first = place.tile * p.query_tile / p.heads_per_tile;
    const int64 end = plan::ceil_div((place.tile + 1) * p.query_tile, p.heads_per_tile);
    const int64 row = item->query_begin + first;
    // Whatever the list says, no row outside the tensors.
    const int64 used = plan::min(plan::min(end, int64{item->query_used}) - first, p.rows_q - row);
    const int64 owned = plan::min(plan::min(end, int64{item->query_rows}) - first, p.rows_q - row);
    const int64 keys = plan::min(int64{item->key_rows}, int64{p.rows_k} - item->key_begin);
    const auto rows_of = [&](const char* name, const void* data, int64 element_bytes, int64 columns,
                             int64 offset, int64 stride, int64 rows) {
      return Window{name, static_cast<const std::byte*>(data) + offset * element_bytes,
                    columns * element_bytes, plan::max(rows, int64{0}), stride * element_bytes};
    };
    for (int64 i = 0; i < p.heads_per_tile; ++i) {
      const int64 head = place.slot * p.heads_per_tile + i;
      windows.push_back(
          rows_of("q", p.q, 2, config.head_dim,
                  item->segment * p.q_batch_stride + row * p.q_row_stride + head * p.q_head_stride,
                  p.q_row_stride, used));
      windows.push_back(rows_of(
          "out", p.out, 2, config.head_dim_v,
          item->segment * p.out_batch_stride + row * p.out_row_stride + head * p.out_head_stride,
          p.out_row_stride, owned));
      windows.back().writable = true;
      windows.push_back(rows_of(
          "lse", p.lse, 4, 1,
          item->segment * p.lse_batch_stride + row * p.lse_row_stride + head * p.lse_head_stride,
          p.lse_row_stride, owned));
      windows.back().writable = true;
    }
    const int64 key_head =
        config.packed_heads ? place.slot : place.slot / (p.num_heads / p.num_heads_k);
    windows.push_back(rows_of("k", p.k, 2, config.head_dim,
                              item->segment * p.k_batch_stride + item->key_begin * p.k_row_stride +
                                  key_head * p.k_head_stride,
                              p.k_row_stride, keys));
    windows.push_back(rows_of("v", p.v, 2, config.head_dim_v,
                              item->segment * p.v_batch_stride + item->key_begin * p.v_row_stride +
                                  key_head * p.v_head_stride,
                              p.v_row_stride, keys));
    return windows;
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
