#pragma once

#include "kernels/arch/platform.h"

// The hook for score and mask functions: a functor that the softmax calls for each score. A
// generated unit passes its own, with the tensors and scalars it reads as members.

namespace parapet::kernels {

// Rows and keys count from their segment's first.
struct ScorePosition {
  int batch;
  int head;
  int query;
  int key;
  int seqlen_q;
  int seqlen_k;
};

// A mod has kIdentity = false and `DEVICE float operator()(float score, const ScorePosition&)
// const`, on scaled and capped scores before masks; -infinity hides the key from the query.
struct IdentityMod {
  static constexpr bool kIdentity = true;
  DEVICE float operator()(float score, const ScorePosition&) const { return score; }
};

}  // namespace parapet::kernels
