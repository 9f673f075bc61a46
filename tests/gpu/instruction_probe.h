#pragma once

#include "kernels/arch/barrier.h"
#include "kernels/arch/math.h"
#include "kernels/arch/matrix.h"
#include "kernels/arch/memory.h"
#include "kernels/arch/thread.h"
#include "kernels/core/element.h"

// A kernel that tries every instruction of src/kernels/arch once and writes down what came out. The
// same text runs on the GPU and on the emulator. Sums are of small integers, exact in any order.

namespace parapet::testing {

using kernels::arch::u16;
using kernels::arch::u32;
using kernels::arch::u64;
namespace arch = kernels::arch;

inline constexpr int kProbeBlocks = 2;
inline constexpr int kProbeThreads = 64;
inline constexpr int kProbeSharedBytes = 8192;
inline constexpr int kProbeInputs = 64;   // floats that every thread takes from its own place on
inline constexpr int kProbeExact = 264;   // words of a thread that have to be equal
inline constexpr int kProbeFloats = 576;  // floats of a thread that have to be near

struct ProbeParams {
  const u32* inputs;  // kProbeInputs for each thread of a block; 16-byte aligned
  u32* exact;         // 16-byte aligned
  float* floats;
};

// Where a thread writes its results, one after another.
struct ProbeResults {
  u32* exact;
  float* floats;

  DEVICE void add(u32 x) { arch::store_global_u32(exact++, x); }
  DEVICE void add_float(float x) { arch::store_global_float(floats++, x); }
};

DEVICE float small_integer(u32 seed) {
  return static_cast<float>(static_cast<int>(seed * 2654435761u >> 28) - 8);
}

DEVICE void probe_global_memory(const ProbeParams& params, ProbeResults& results) {
  const u32 thread = arch::thread_index();
  const arch::Unit unit = arch::load_global_unit(params.inputs + thread * 4);
  const arch::HalfUnit half =
      arch::load_global_half_unit(params.inputs + thread * 2, thread % 4 != 0);
  arch::prefetch(params.inputs);
  arch::store_global_unit(results.exact, unit);
  arch::store_global_half_unit(results.exact + 4, half);
  arch::store_global_u16(results.exact + 6, static_cast<u16>(thread));
  arch::store_global_u16(reinterpret_cast<u16*>(results.exact + 6) + 1, 17);
  results.exact += 7;
  results.add(arch::load_global_u16(reinterpret_cast<const u16*>(params.inputs) + thread));
  results.add(__builtin_bit_cast(u32, arch::load_global_float(params.inputs + thread)));
}

DEVICE void probe_warp(ProbeResults& results, u32 lane) {
  results.add(arch::thread_index());
  results.add(arch::thread_index_again());
  results.add(arch::block_index());
  results.add(arch::block_count());
  results.add(arch::any_in_warp(false));
  results.add(arch::any_in_warp(lane == 5));
  results.add(static_cast<u32>(arch::uniform(-7)));
  for (u32 i = 1; i < 32; i *= 2) {
    results.add(static_cast<u32>(arch::shuffle_xor(static_cast<float>(lane), i)));
    results.add(arch::shuffle_xor(lane * 3, i));
    results.add(static_cast<u32>(arch::shuffle_up(static_cast<int>(lane), i)));
    results.add(arch::shuffle(lane, lane * 3 + i));
  }
}

// Atomics, copies and barriers too.
DEVICE void probe_shared_memory(const ProbeParams& params, ProbeResults& results) {
  const u32 thread = arch::thread_index();
  const u32 shared = arch::shared_memory();
  const u32 own = shared + 512 + thread * 16;
  const u32 sum_at = shared, least_at = shared + 8, loaded = shared + 16, met = shared + 24;
  if (thread == 0) {
    arch::store_shared(sum_at, 5);
    arch::store_shared_u64(least_at, ~u64{0});
    arch::barrier_init(loaded, kProbeThreads);
    arch::barrier_init(met, kProbeThreads);
  }
  arch::store_shared_unit(own, {{thread, thread + 1, thread + 2, thread + 3}});
  arch::sync_block();
  arch::add_shared(sum_at, thread);
  arch::min_shared(least_at, (u64{1} << 40) + (thread ^ 21));
  arch::barrier_arrive(met, false);
  results.add(arch::barrier_test(loaded, 1));
  const u32 other = shared + 512 + (thread ^ 9) * 16;
  results.add(arch::load_shared(other + 8));
  const arch::Unit unit = arch::load_shared_unit(other);
  for (const u32 word : unit.word) results.add(word);
  arch::barrier_arrive(met, true);
  arch::barrier_wait(met, 0);
  results.add(arch::load_shared(sum_at));
  const u64 least = arch::load_shared_u64(least_at);
  results.add(static_cast<u32>(least));
  results.add(static_cast<u32>(least >> 32));

  arch::copy_unit_async(own, params.inputs + thread * 4, thread % 3 != 0);
  arch::barrier_arrive_after_copies(loaded);
  arch::barrier_wait(loaded, 0);
  results.add(arch::barrier_test(loaded, 0));
  results.add(arch::load_shared(other + 4));
  arch::barrier_arrive(met, true);
  arch::barrier_wait(met, 1);
  arch::copy_unit_async(own, params.inputs + thread * 4, thread % 2 != 0);
  arch::wait_for_copies();
  arch::sync_block();
  results.add(arch::load_shared(other));
  arch::sync_block();
}

// ldmatrix: 64 rows of 8 elements, read in a crooked order.
DEVICE void probe_matrix_loads(ProbeResults& results, u32 lane) {
  const u32 shared = arch::shared_memory();
  for (u32 word = arch::thread_index(); word < 256; word += kProbeThreads)
    arch::store_shared(shared + word * 4, word * 2 + ((word * 2 + 1) << 16));
  arch::sync_block();
  u32 r[4];
  arch::load_matrices(r, shared + (lane * 5 + 3) % 64 * 16);
  for (const u32 x : r) results.add(x);
  arch::load_matrices_transposed(r, shared + (lane * 11 + 7) % 64 * 16);
  for (const u32 x : r) results.add(x);
}

struct ProbeOperands {
  float c[4];
  u32 a[4];
  u32 b[2];
};

template <kernels::Element kElement>
DEVICE ProbeOperands make_operands() {
  const u32 seed = arch::thread_index() * 100;
  const auto two_integers = [&](u32 i) {
    return kernels::pack<kElement>(small_integer(seed + i), small_integer(seed + i + 1));
  };
  ProbeOperands x;
  for (u32 i = 0; i < 4; ++i) x.a[i] = two_integers(2 * i);
  for (u32 i = 0; i < 2; ++i) x.b[i] = two_integers(2 * i + 10);
  for (u32 i = 0; i < 4; ++i) x.c[i] = small_integer(seed + i + 20);
  return x;
}

DEVICE void add_sums(ProbeResults& results, const ProbeOperands& x) {
  for (const float sum : x.c) results.add(__builtin_bit_cast(u32, sum + 0.0f));
}

DEVICE void probe_multiplication(ProbeResults& results) {
  ProbeOperands x = make_operands<kernels::Element::kBfloat16>();
  arch::multiply_bfloat16(x.c, x.a, x.b[0], x.b[1]);
  add_sums(results, x);
  arch::multiply_bfloat16_from_zero(x.c, x.a, x.b[0], x.b[1]);
  add_sums(results, x);
  x = make_operands<kernels::Element::kFloat16>();
  arch::multiply_float16(x.c, x.a, x.b[0], x.b[1]);
  add_sums(results, x);
  arch::multiply_float16_from_zero(x.c, x.a, x.b[0], x.b[1]);
  add_sums(results, x);
}

DEVICE void probe_arithmetic(const ProbeParams& params, ProbeResults& results) {
  const u32 thread = arch::thread_index();
  for (u32 i = 0; i < kProbeInputs; ++i) {
    const u32 at = thread * kProbeInputs + i;
    const u32 bits = arch::load_global_u32(params.inputs + at);
    const u32 next = arch::load_global_u32(params.inputs + (at ^ 1));
    const float x = __builtin_bit_cast(float, bits), y = __builtin_bit_cast(float, next);
    results.add(arch::pack_bfloat16(x, y));
    results.add(arch::pack_float16(x, y));
    // Where float16 has numbers, small ones included.
    const float near = __builtin_bit_cast(float, (bits & 0x8fffffff) | 0x30000000);
    results.add(arch::pack_float16(near, near * 0.001f));
    results.add_float(arch::from_float16(static_cast<u16>(bits)));
    results.add_float(arch::from_bfloat16(static_cast<u16>(bits)));
    results.add_float(arch::multiply_add(x, 0.75f, y));
    results.add_float(arch::max(x, y));
    results.add_float(arch::min(x, y));
    results.add_float(arch::exp2_approx(x));
    results.add_float(arch::exp2_approx(near * 4096.0f));
    results.add_float(arch::log2_approx(x));
    results.add_float(arch::reciprocal_approx(x));
  }
}

DEVICE void probe_instructions(const ProbeParams& params) {
  const u32 number = arch::block_index() * kProbeThreads + arch::thread_index();
  ProbeResults results{params.exact + number * kProbeExact, params.floats + number * kProbeFloats};
  const u32 lane = arch::thread_index() % 32;
  probe_global_memory(params, results);
  probe_warp(results, lane);
  probe_shared_memory(params, results);
  probe_matrix_loads(results, lane);
  probe_multiplication(results);
  probe_arithmetic(params, results);
}

}  // namespace parapet::testing
