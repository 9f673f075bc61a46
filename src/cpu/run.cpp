#include "cpu/run.h"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "cpu/workspace.h"
#include "plan/cpu_schedule.h"

// Work comes from one queue, from which all threads take items in order. Shared units come first:
//
//   pack(0), pack(1), work(0), pack(2), work(1), ...
//
// so that a unit is packed by the time it is needed. An item waits only for items before it in the
// queue, which running threads have already taken; so every wait ends, however many threads there
// are, and there is no barrier. Unshared units follow, one item each.

namespace parapet::cpu {
namespace {

using plan::ceil_div;
using plan::CpuPath;
using plan::CpuSegment;
using plan::CpuSharing;
using plan::CpuUnit;

// Waits without holding the core for long: another thread of ours may need it.
template <class Ready>
void wait_until(const Ready& ready) {
  for (int spins = 0; !ready(); ++spins) {
    if (spins > 256) sched_yield();
  }
}

// The threads of an OpenMP pool do not follow a process into its forked child, where some OpenMP
// libraries would wait for them for ever. There the parallel part starts from a new thread, which
// has a new pool.
const pid_t loaded_by = getpid();

template <class Function>
void with_openmp_pool(const Function& function) {
  if (getpid() == loaded_by) return function();
  std::thread(function).join();
}

// More threads than processors gain nothing, and OpenMP ends the process when it can't start one.
int max_threads() {
  constexpr int kAlwaysAllowed = 16;  // whatever the machine, a division into so many can be tried
  return std::max(omp_get_num_procs(), kAlwaysAllowed);
}

// A shared unit and how far it is.
struct SharedUnit {
  int64 first_item = 0;  // of packing the unit after it; its own work follows
  int64 packs = 0;
  int64 work = 0;
  std::atomic<int64> packed = 0;
  std::atomic<int64> worked = 0;
  std::atomic<bool> complete = false;
};

class Run {
 public:
  Run(const api::Problem& problem, const std::vector<plan::Segment>& segments,
      const Kernels& kernels);
  void run();

 private:
  void plan_shared_units();
  void plan_memory();

  void run_thread(float* scratch);
  void run_shared_item(int64 index, int64 item, float* scratch);
  void pack(int64 index, int64 part);
  void run_block(int64 index, int64 block, float* scratch);
  void run_chunk(int64 index, int64 chunk, float* scratch);
  void run_unshared(const CpuUnit& unit, float* scratch);

  Head head_of(const CpuUnit& unit) const {
    return {problem_, segments_[unit.segment], unit.segment, unit.head_begin};
  }
  const CpuSegment& plan_of(const CpuUnit& unit) const { return plans_[unit.segment]; }
  Range panels_of(const CpuUnit& unit) const {
    return {0, ceil_div(plan_of(unit).rows, kernels_.panel_rows)};
  }
  // The sums of all rows of a unit over one chunk.
  int64 sums_floats(const CpuUnit& unit) const {
    return (unit.head_end - unit.head_begin) * plan_of(unit).rows * RowSums::stride(problem_);
  }

  float* slot(int64 index) const { return slots_memory_ + index % slots_ * slot_floats_; }
  void wait_for_slot(int64 index) {
    if (index < slots_) return;
    wait_until([&] { return shared_[index - slots_].complete.load(std::memory_order_acquire); });
  }

  const api::Problem& problem_;
  const std::vector<plan::Segment>& segments_;
  const Kernels& kernels_;
  std::vector<CpuSegment> plans_;
  plan::CpuSchedule schedule_;

  // Of the first units of the schedule. Each needs a slot of memory while it is in progress; the
  // slots form a ring.
  std::vector<SharedUnit> shared_;
  int64 shared_items_ = 0;
  int64 slots_ = 0;
  int64 slot_floats_ = 0;
  float* slots_memory_ = nullptr;
  int64 scratch_floats_ = 0;  // of a thread

  std::atomic<int64> next_item_ = 0;
};

Run::Run(const api::Problem& problem, const std::vector<plan::Segment>& segments,
         const Kernels& kernels)
    : problem_(problem), segments_(segments), kernels_(kernels) {
  const plan::CpuCall call{.num_heads_k = problem.num_heads_k,
                           .group = problem.num_heads / problem.num_heads_k,
                           .head_dim = problem.head_dim,
                           .head_dim_v = problem.head_dim_v,
                           .band = problem.band,
                           .num_splits = problem.num_splits};
  plans_.reserve(segments.size());
  for (const plan::Segment& segment : segments) {
    plans_.push_back(plan_cpu_segment(call, segment.query.length, segment.key.length));
  }
  const int threads = problem.num_threads > 0 ? problem.num_threads : omp_get_max_threads();
  schedule_ = schedule_cpu(call, plans_, std::min(threads, max_threads()));
  shared_ = std::vector<SharedUnit>(static_cast<std::size_t>(schedule_.shared));
  if (!shared_.empty()) plan_shared_units();
  plan_memory();
}

void Run::plan_shared_units() {
  int64 fewest_items = 0;
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    const CpuUnit& unit = schedule_.units[i];
    const CpuSegment& segment = plan_of(unit);
    if (unit.sharing == CpuSharing::kBlocks) {
      shared_[i].packs = ceil_div(segment.keys.size(), plan::kCpuPackKeys);
      shared_[i].work = plan::CpuBlocks(panels_of(unit).end, schedule_.threads).size();
      slot_floats_ = plan::max(slot_floats_, Packed::floats(problem_, segment.keys.size()));
    } else {
      shared_[i].work = segment.chunks();
      slot_floats_ = plan::max(slot_floats_, segment.chunks() * sums_floats(unit));
    }
    fewest_items = i == 0 ? shared_[i].work : plan::min(fewest_items, shared_[i].work);
  }
  slots_ = plan::cpu_slots(schedule_.shared, fewest_items, schedule_.threads, 4 * slot_floats_);

  shared_items_ = shared_[0].packs;
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    shared_[i].first_item = shared_items_;
    shared_items_ += shared_[i].work;
    if (i + 1 < shared_.size()) shared_items_ += shared_[i + 1].packs;
  }
}

void Run::plan_memory() {
  for (const CpuUnit& unit : schedule_.units) {
    const CpuSegment& segment = plan_of(unit);
    int64 floats = 0;
    if (segment.path == CpuPath::kFewRows) {
      floats = few_rows_scratch_floats(problem_, segment.rows, unit.head_end - unit.head_begin);
    } else {
      floats = panels_scratch_floats(problem_);
      if (unit.sharing != CpuSharing::kBlocks) {
        const int64 keys = plan::min(segment.keys.size(), segment.chunk_keys);
        floats += Packed::floats(problem_, keys);
      }
    }
    scratch_floats_ = plan::max(scratch_floats_, floats);
  }
}

void Run::run() {
  const Workspace workspace(
      static_cast<std::size_t>(slots_ * slot_floats_ + schedule_.threads * scratch_floats_));
  slots_memory_ = workspace.data();
  float* const scratch = slots_memory_ + slots_ * slot_floats_;
  if (schedule_.threads == 1) return run_thread(scratch);
  with_openmp_pool([&] {
#pragma omp parallel num_threads(schedule_.threads)
    run_thread(scratch + omp_get_thread_num() * scratch_floats_);
  });
}

void Run::run_thread(float* scratch) {
  const int64 items = shared_items_ + static_cast<int64>(schedule_.units.size()) - schedule_.shared;
  int64 index = 0;  // of the shared unit that the item belongs to
  for (int64 item = next_item_++; item < items; item = next_item_++) {
    if (item >= shared_items_) {
      run_unshared(schedule_.units[schedule_.shared + item - shared_items_], scratch);
      continue;
    }
    while (index + 1 < schedule_.shared && item >= shared_[index + 1].first_item) ++index;
    run_shared_item(index, item, scratch);
  }
}

void Run::run_shared_item(int64 index, int64 item, float* scratch) {
  const int64 offset = item - shared_[index].first_item;
  if (offset < 0) return pack(0, item);
  const int64 packs = index + 1 < schedule_.shared ? shared_[index + 1].packs : 0;
  if (offset < packs) return pack(index + 1, offset);

  if (schedule_.units[index].sharing == CpuSharing::kBlocks) {
    run_block(index, offset - packs, scratch);
  } else {
    run_chunk(index, offset - packs, scratch);
  }
}

void Run::pack(int64 index, int64 part) {
  wait_for_slot(index);
  const CpuUnit& unit = schedule_.units[index];
  const Range keys = plan_of(unit).keys;
  const int64 begin = keys.begin + part * plan::kCpuPackKeys;
  kernels_.pack(head_of(unit), Packed(problem_, keys, slot(index)),
                {begin, plan::min(begin + plan::kCpuPackKeys, keys.end)});
  shared_[index].packed.fetch_add(1, std::memory_order_release);
}

void Run::run_block(int64 index, int64 block, float* scratch) {
  SharedUnit& shared = shared_[index];
  wait_until([&] { return shared.packed.load(std::memory_order_acquire) == shared.packs; });
  const CpuUnit& unit = schedule_.units[index];
  const CpuSegment& segment = plan_of(unit);
  const plan::CpuBlocks blocks(panels_of(unit).end, schedule_.threads);
  kernels_.run_panels(
      head_of(unit), Packed(problem_, segment.keys, slot(index)),
      {.panels = blocks.block(block), .keys = segment.keys, .chunk_keys = segment.chunk_keys},
      scratch);
  if (shared.worked.fetch_add(1, std::memory_order_acq_rel) + 1 == shared.work) {
    shared.complete.store(true, std::memory_order_release);
  }
}

void Run::run_chunk(int64 index, int64 chunk, float* scratch) {
  wait_for_slot(index);
  const CpuUnit& unit = schedule_.units[index];
  const CpuSegment& segment = plan_of(unit);
  const Head head = head_of(unit);
  const int64 chunk_floats = sums_floats(unit);
  const Range keys = segment.chunk(chunk);
  float* const partial = slot(index) + chunk * chunk_floats;
  if (segment.path == CpuPath::kFewRows) {
    kernels_.run_few_rows(
        head, {.heads = unit.head_end - unit.head_begin, .keys = keys, .partial = partial},
        scratch);
  } else {
    const Packed packed(problem_, keys, scratch + panels_scratch_floats(problem_));
    kernels_.pack(head, packed, keys);
    kernels_.run_panels(head, packed,
                        {.panels = panels_of(unit),
                         .keys = keys,
                         .chunk_keys = segment.chunk_keys,
                         .partial = partial},
                        scratch);
  }

  // Whoever finishes last merges the chunks, in their order.
  SharedUnit& shared = shared_[index];
  if (shared.worked.fetch_add(1, std::memory_order_acq_rel) + 1 < shared.work) return;
  const int64 head_floats = segment.rows * RowSums::stride(problem_);
  for (int64 i = 0; i < unit.head_end - unit.head_begin; ++i) {
    kernels_.merge(head.neighbour(i), segment.chunks(), chunk_floats,
                   slot(index) + i * head_floats);
  }
  shared.complete.store(true, std::memory_order_release);
}

void Run::run_unshared(const CpuUnit& unit, float* scratch) {
  const CpuSegment& segment = plan_of(unit);
  const Head head = head_of(unit);
  if (segment.path == CpuPath::kFewRows) {
    kernels_.run_few_rows(head, {.heads = unit.head_end - unit.head_begin, .keys = segment.keys},
                          scratch);
    return;
  }
  const Packed packed(problem_, segment.keys, scratch + panels_scratch_floats(problem_));
  for (int64 i = 0; i < unit.head_end - unit.head_begin; ++i) {
    kernels_.pack(head.neighbour(i), packed, segment.keys);
    kernels_.run_panels(
        head.neighbour(i), packed,
        {.panels = panels_of(unit), .keys = segment.keys, .chunk_keys = segment.chunk_keys},
        scratch);
  }
}

}  // namespace

void run_segments(const api::Problem& problem, const std::vector<plan::Segment>& segments,
                  const Kernels& kernels) {
  Run(problem, segments, kernels).run();
}

}  // namespace parapet::cpu
