#pragma once

#include "kernels/core/mods.h"
#include "kernels/core/online_softmax.h"
#include "kernels/core/params.h"

namespace parapet::kernels {

// From q k to an exponent in powers of two, relative to minus `neg_reference`: scale, cap, mod.
// What `position()` returns, a ScorePosition, is asked for only where there is a mod.
template <bool kSoftcap, class Mod, class Position>
DEVICE float exponent(const ForwardParams& params, const Mod& mod, float score, float neg_reference,
                      const Position& position) {
  if constexpr (Mod::kIdentity && !kSoftcap)
    return arch::multiply_add(score, params.score_scale, neg_reference);
  float x = score * params.score_scale;
  if constexpr (kSoftcap) x = soft_cap(x, params.softcap_scale);
  if constexpr (!Mod::kIdentity) x = mod(x * kLn2, position()) * kLog2E;
  return x + neg_reference;
}

}  // namespace parapet::kernels
