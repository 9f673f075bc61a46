#include "kernels/mma/traits.h"

#include <gtest/gtest.h>

namespace parapet::kernels {
namespace {

TEST(Traits, HeadDimsAreMultiplesOfEight) {
  for (int head_dim = -8; head_dim < 300; ++head_dim)
    EXPECT_EQ(supports_head_dim(head_dim), head_dim >= 8 && head_dim <= 256 && head_dim % 8 == 0);
}

TEST(Traits, EveryShapeFitsEveryGpu) {
  for (int head_dim = 8; head_dim <= kMaxHeadDim; head_dim += kHeadDimStep)
    for (int head_dim_v = 8; head_dim_v <= kMaxHeadDim; head_dim_v += kHeadDimStep)
      for (int options = 0; options < 8; ++options)
        for (const plan::int64 keys : {1, 2000, 1 << 20})
          for (const int shared : {100 * 1024, 164 * 1024, 228 * 1024}) {
            ForwardConfig config{.head_dim = head_dim, .head_dim_v = head_dim_v};
            config.left_edge = (options & 1) != 0;
            config.packed_heads = (options & 2) != 0;
            config.aligned = (options & 4) != 0;
            config.shape = forward_shape(config, {keys, shared});
            const ForwardShape& shape = config.shape;
            EXPECT_LE(shape.blocks_per_sm * (forward_shared_bytes(config) + kReservedSharedBytes),
                      shared);
            EXPECT_LE(shape.blocks_per_sm * forward_threads(config), 256);  // registers
            EXPECT_EQ(shape.key_tile % shape.chunk, 0);
            EXPECT_GE(shape.stages - stages_ahead(config), 2);
            EXPECT_LE(shape.late_pairs, shape.row_tiles * shape.chunk / 4);
          }
}

TEST(Traits, TheWorkListHoldsAllTiles) {
  EXPECT_EQ(work_list_capacity(3, 100, false, 1, 64), 6);
  EXPECT_EQ(work_list_capacity(3, 100, false, 4, 64), 21);
  EXPECT_EQ(work_list_capacity(0, 0, true, 1, 64), 2);
  EXPECT_GE(work_list_capacity(1 << 20, kMaxHeadDim * 4'000'000LL, true, 1, 64), 1 << 20);
}

TEST(Traits, HeadsArePackedForShortSegmentsOnly) {
  EXPECT_TRUE(packing_heads_pays(8, 2, 1, 64));
  EXPECT_FALSE(packing_heads_pays(8, 8, 1, 64));
  EXPECT_FALSE(packing_heads_pays(8, 2, 33, 64));
}

}  // namespace
}  // namespace parapet::kernels
