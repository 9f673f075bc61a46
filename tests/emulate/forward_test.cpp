#include "kernels/mma/forward.h"

#include <gtest/gtest.h>

#include <climits>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "emulate/emulated_call.h"

// The kernels against the oracle, every row compared and every instruction checked by the emulator,
// under several schedules.

namespace parapet::testing {
namespace {

using Lengths = std::vector<std::int32_t>;

constexpr std::uint64_t kSeeds = 2;

// ---- All options --------------------------------------------------------------------------------

struct EmulatedCase {
  const char* name;
  CallSpec spec;
  int shared_bytes_per_sm = kSmall;
};

void PrintTo(const EmulatedCase& c, std::ostream* out) {
  *out << c.spec.text();
}

ForwardOptions causal() {
  return {.causal = true};
}
ForwardOptions everything() {
  return {.softmax_scale = 0.4f, .causal = true, .window_left = 70, .softcap = 2.0f};
}

// Segments of a tile and a bit, of less, of none; more keys than queries, fewer, none.
const Lengths kQueries{141, 0, 20, 9};
const Lengths kKeys{160, 30, 0, 130};

std::vector<EmulatedCase> cases() {
  constexpr DType kFp16 = DType::kFloat16;
  const ForwardOptions window{.window_left = 20, .window_right = 30};
  return {
      {"Pipelined", {.heads = 1, .heads_k = 1, .q_lens = {70}, .k_lens = {300}, .extra_rows = 900}},
      {"PipelinedRoomy",
       {.heads = 1, .heads_k = 1, .q_lens = {70}, .k_lens = {300}, .extra_rows = 900},
       kRoomy},
      {"Plain", {.q_lens = kQueries, .k_lens = kKeys}},
      {"CausalManyKeys",
       {.heads = 1,
        .heads_k = 1,
        .q_lens = {270},
        .k_lens = {300},
        .extra_rows = 1900,
        .options = causal()}},
      {"Causal",
       {.heads = 2,
        .heads_k = 1,
        .q_lens = {141, 100, 20, 9},
        .k_lens = kKeys,
        .options = causal()},
       kRoomy},
      {"Everything",
       {.dtype = kFp16,
        .q_lens = kQueries,
        .k_lens = kKeys,
        .options = everything(),
        .sink = DType::kFloat32}},
      {"HeadDim8Dense",
       {.head_dim = 8, .head_dim_v = 8, .q_lens = {70, 70}, .k_lens = {200, 200}, .packed = false}},
      {"HeadDim32PackedHeads",
       {.dtype = kFp16,
        .head_dim = 32,
        .head_dim_v = 32,
        .heads = 6,
        .heads_k = 2,
        .q_lens = {1, 0, 40, 3},
        .k_lens = {300, 7, 41, 0},
        .sink = kFp16},
       kRoomy},
      {"HeadDim40x72Window",
       {.dtype = kFp16,
        .head_dim = 40,
        .head_dim_v = 72,
        .q_lens = kQueries,
        .k_lens = kKeys,
        .options = window}},
      {"HeadDim96Left",
       {.head_dim = 96,
        .head_dim_v = 96,
        .q_lens = kQueries,
        .k_lens = kKeys,
        .options = {.window_left = 10}},
       kRoomy},
      {"HeadDim128", {.head_dim = 128, .head_dim_v = 128, .q_lens = kQueries, .k_lens = kKeys}},
      {"HeadDim128Roomy",
       {.head_dim = 128, .head_dim_v = 128, .q_lens = kQueries, .k_lens = kKeys},
       kRoomy},
      {"HeadDim128CausalManyKeys",
       {.head_dim = 128,
        .head_dim_v = 128,
        .heads = 1,
        .heads_k = 1,
        .q_lens = {270},
        .k_lens = {300},
        .extra_rows = 1900,
        .options = causal(),
        .order = Order::kHeadsFirst},
       kRoomy},
      {"HeadDim128CausalUsed",
       {.head_dim = 128,
        .head_dim_v = 128,
        .q_lens = {140, 0, 33},
        .k_lens = {190, 100, 20},
        .packed = false,
        .options = causal(),
        .sink = DType::kBFloat16,
        .order = Order::kHeadsFirst},
       kRoomy},
      {"HeadDim128CausalPackedHeads",
       {.head_dim = 128,
        .head_dim_v = 128,
        .heads = 8,
        .heads_k = 1,
        .q_lens = {1, 17, 0, 3},
        .k_lens = {200, 17, 9, 33},
        .extra_rows = 50,
        .options = causal()},
       kRoomy},
      {"HeadDim128x64UnalignedEverything",
       {.dtype = kFp16,
        .head_dim = 128,
        .head_dim_v = 64,
        .q_lens = kQueries,
        .k_lens = kKeys,
        .options = everything(),
        .order = Order::kOddRows}},
      {"HeadDim192x128Reversed",
       {.head_dim = 192,
        .head_dim_v = 128,
        .q_lens = kQueries,
        .k_lens = kKeys,
        .options = causal(),
        .order = Order::kReversed}},
      {"HeadDim256Causal",
       {.head_dim = 256,
        .head_dim_v = 256,
        .q_lens = {130, 7},
        .k_lens = {150, 33},
        .options = causal()}},
      {"HeadDim256Roomy",
       {.dtype = kFp16,
        .head_dim = 256,
        .head_dim_v = 256,
        .q_lens = {130, 7},
        .k_lens = {150, 33}},
       kRoomy},
  };
}

class EmulatedForward : public ::testing::TestWithParam<EmulatedCase> {};

TEST_P(EmulatedForward, IsRightUnderAnySchedule) {
  const EmulatedCase& param = GetParam();
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const HostCall call(param.spec, seed);
    const kernels::Status status =
        run_emulated(call, {.seed = seed,
                            .shared_bytes_per_sm = param.shared_bytes_per_sm,
                            .multiprocessors = seed % 2 == 0 ? 1 : 1 << 20});
    EXPECT_EQ(status.array, kernels::kNoArray);
    expect_right(call, "seed " + std::to_string(seed));
  }
}

INSTANTIATE_TEST_SUITE_P(, EmulatedForward, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

// ---- Hostile lengths ----------------------------------------------------------------------------

CallSpec ragged() {
  return {.q_lens = {100, 30, 0, 70}, .k_lens = {50, 90, 20, 100}, .options = causal()};
}

struct Hostile {
  Lengths cu_seqlens_q;
  Lengths cu_seqlens_k;
  kernels::Status status;
};

TEST(EmulatedLengths, MayBeAnything) {
  const Lengths good_q{0, 100, 130, 130, 200}, good_k{0, 50, 140, 160, 260};
  const Hostile cases[] = {
      {{1, 100, 130, 130, 200}, good_k, {kernels::kCuSeqlensQ, 0, 1, 0}},
      {{0, 100, 50, 130, 200}, good_k, {kernels::kCuSeqlensQ, 2, 50, 0}},
      {{0, 100, 130, 130, 201}, good_k, {kernels::kCuSeqlensQ, 4, 201, 0}},
      {{INT_MIN, INT_MAX, INT_MIN, INT_MAX, -1}, good_k, {kernels::kCuSeqlensQ, 0, INT_MIN, 0}},
      {{200, 150, 100, 50, 0}, good_k, {kernels::kCuSeqlensQ, 0, 200, 0}},
      {good_q, {0, 50, 140, 160, 261}, {kernels::kCuSeqlensK, 4, 261, 0}},
      {good_q, {0, INT_MAX, INT_MIN, 7, 5}, {kernels::kCuSeqlensK, 1, INT_MAX, 0}},
      {good_q, {-5, 100, 90, 250, INT_MIN}, {kernels::kCuSeqlensK, 0, -5, 0}},
      {good_q, good_k, {kernels::kNoArray, 0, 0, 0}},
  };
  std::uint64_t seed = 0;
  for (const Hostile& hostile : cases) {
    HostCall call(ragged(), ++seed);
    call.cu_seqlens_q.emplace(Tensor::int32(hostile.cu_seqlens_q));
    call.cu_seqlens_k.emplace(Tensor::int32(hostile.cu_seqlens_k));
    const kernels::Status status = run_emulated(call, {.seed = seed});
    EXPECT_EQ(status.array, hostile.status.array) << seed;
    EXPECT_EQ(status.index, hostile.status.index) << seed;
    EXPECT_EQ(status.value, hostile.status.value) << seed;
    expect_right(call, "hostile lengths " + std::to_string(seed));
  }
}

TEST(EmulatedLengths, UsedOnesMayBeAnything) {
  HostCall call(
      {.q_lens = {50, 70, 40}, .k_lens = {100, 60, 9}, .packed = false, .options = causal()}, 1);
  call.seqused_q.emplace(Tensor::int32({70, 1000, -7}));
  call.seqused_k.emplace(Tensor::int32({INT_MAX, INT_MIN, 33}));
  const kernels::Status status = run_emulated(call, {});
  EXPECT_EQ(status.array, kernels::kSequsedQ);
  EXPECT_EQ(status.index, 1);
  EXPECT_EQ(status.value, 1000);
  expect_right(call, "hostile used lengths");
}

TEST(EmulatedLengths, RandomGarbage) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    HostCall call(ragged(), seed);
    // Mostly near what the tensors have, sometimes anything.
    const Tensor noise = Tensor::random(DType::kFloat32, {10}, seed);
    Lengths lengths[2];
    for (int i = 0; i < 10; ++i) {
      const double x = noise.get(i);
      lengths[i / 5].push_back(static_cast<std::int32_t>(x * (i % 3 == 0 ? 2e9 : 300)));
    }
    call.cu_seqlens_q.emplace(Tensor::int32(lengths[0]));
    call.cu_seqlens_k.emplace(Tensor::int32(lengths[1]));
    EXPECT_NE(run_emulated(call, {.seed = seed}).array, kernels::kNoArray);
    expect_right(call, "garbage " + std::to_string(seed));
  }
}

// ---- Grids and values ---------------------------------------------------------------------------

TEST(EmulatedGrid, MayHaveSeveralTimesTheTiles) {
  for (const bool packed : {true, false}) {
    CallSpec spec = ragged();
    spec.packed = packed;
    if (!packed) spec.q_lens = spec.k_lens = {130, 130};
    const HostCall call(spec, 1);
    run_emulated(call, {.grid_factor = 7});
    expect_right(call, packed ? "packed" : "dense");
  }
}

CallSpec hidden() {
  return {.q_lens = {40, 130}, .k_lens = {130, 60}, .packed = false, .options = causal()};
}

// What no query sees is NaN or infinite: it makes no difference.
void spoil_hidden_values(HostCall& call) {
  const std::int64_t columns = call.k.view().shape[2] * call.k.view().shape[3];
  const std::int64_t rows = call.k.view().shape[1];
  for (std::int64_t row = 60; row < rows; ++row) {
    for (std::int64_t i = 0; i < columns; ++i) {
      call.k.set((rows + row) * columns + i, std::numeric_limits<double>::quiet_NaN());
      call.v.set((rows + row) * columns + i, std::numeric_limits<double>::infinity());
    }
  }
  // The last key, which only the last query sees.
  call.v.set(rows * columns - 1, std::numeric_limits<double>::infinity());
}

TEST(EmulatedValues, HiddenOnesMayBeAnything) {
  HostCall call(hidden(), 1);
  spoil_hidden_values(call);
  run_emulated(call, {});
  expect_right(call, "hidden values");
}

// A causal mask, as a function of the position.
struct CausalMod {
  static constexpr bool kIdentity = false;
  float operator()(float score, const kernels::ScorePosition& at) const {
    return at.key - at.seqlen_k > at.query - at.seqlen_q ? -kernels::arch::kInfinity : score;
  }
};

void forward_with_mod(const ForwardParams& params) {
  kernels::forward_mma<shaped({.head_dim = 64, .head_dim_v = 64}, kSmall, kFew), CausalMod>(params);
}

TEST(EmulatedMod, SeesWhereItIs) {
  CallSpec spec = hidden();
  const ForwardOptions causal_options = std::exchange(spec.options, {});
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    HostCall call(spec, seed);
    spoil_hidden_values(call);
    run_emulated(call, {.seed = seed, .kernels = HostKernels{forward_with_mod, run_work_list}});
    call.options = causal_options;
    expect_right(call, "mod");
  }
}

}  // namespace
}  // namespace parapet::testing
