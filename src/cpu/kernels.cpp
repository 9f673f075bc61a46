#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/few_rows-inl.h"
#include "cpu/measure-inl.h"
#include "cpu/panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace parapet::cpu::HWY_NAMESPACE {

static_assert(kLanes <= kMaxLanes && kGroup <= kMaxGroup && kWidth <= kMaxPanelRows);

template <class Function>
void with_element(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kFloat16:
      return function(hwy::float16_t());
    case DType::kBFloat16:
      return function(hwy::bfloat16_t());
    default:
      return function(float());
  }
}

void pack_any(const Head& head, const Packed& packed, Range part) {
  with_element(head.problem.dtype,
               [&](auto element) { pack_keys_and_values<decltype(element)>(head, packed, part); });
}
void run_panels_any(const Head& head, const Packed& packed, const PanelsTask& task,
                    float* scratch) {
  with_element(head.problem.dtype,
               [&](auto element) { run_panels<decltype(element)>(head, packed, task, scratch); });
}
void run_few_rows_any(const Head& first_head, const FewRowsTask& task, float* scratch) {
  with_element(first_head.problem.dtype,
               [&](auto element) { run_few_rows<decltype(element)>(first_head, task, scratch); });
}
void merge_any(const Head& head, int64 chunks, int64 chunk_stride, float* partial) {
  with_element(head.problem.dtype, [&](auto element) {
    merge_rows<decltype(element)>(head, chunks, chunk_stride, partial);
  });
}

const Kernels* target_kernels() {
  static constexpr Kernels kKernels = {
      kWidth,     &pack_any,           &run_panels_any, &run_few_rows_any,
      &merge_any, &multiply_add_round, &read_round};
  return &kKernels;
}

}  // namespace parapet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace parapet::cpu {

HWY_EXPORT(target_kernels);

const Kernels& kernels() {
  return *HWY_DYNAMIC_DISPATCH(target_kernels)();
}

int64 compiled_targets() {
  return HWY_TARGETS;
}

}  // namespace parapet::cpu
#endif
