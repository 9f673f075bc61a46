#include "kernels/core/work_list.h"
#include "kernels/mma/forward.h"

// Only compiled: one kernel of each kind.

namespace parapet::kernels {

constexpr ForwardConfig with_shape(ForwardConfig config) {
  config.shape = forward_shape(config);
  return config;
}

constexpr ForwardConfig kPlain = with_shape({});
constexpr ForwardConfig kPipelined = with_shape({.head_dim = 64, .head_dim_v = 64});
constexpr ForwardConfig kEverything = with_shape({.element = Element::kFloat16,
                                                  .head_dim = 72,
                                                  .head_dim_v = 200,
                                                  .left_edge = true,
                                                  .right_edge = true,
                                                  .softcap = true,
                                                  .packed_heads = true,
                                                  .aligned = false});

struct Slope {
  static constexpr bool kIdentity = false;
  float operator()(float score, const ScorePosition& at) const {
    return score + static_cast<float>(at.key - at.query);
  }
};

template void forward_mma<kPlain>(const ForwardParams&, const IdentityMod&);
template void forward_mma<kPipelined>(const ForwardParams&, const IdentityMod&);
template void forward_mma<kEverything>(const ForwardParams&, const IdentityMod&);
template void forward_mma<kPlain>(const ForwardParams&, const Slope&);

}  // namespace parapet::kernels
