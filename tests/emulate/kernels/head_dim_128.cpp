#include "emulate/host_kernel.h"

namespace parapet::testing {
namespace {

const AddHostKernels<shaped({.head_dim = 96, .head_dim_v = 96, .left_edge = true}, kRoomy, kFew),
                     shaped({}, kRoomy, kFew), shaped({}, kSmall, kFew),
                     shaped({.right_edge = true}, kRoomy, kMany),
                     shaped({.right_edge = true}, kRoomy, kFew),
                     shaped({.right_edge = true, .packed_heads = true}, kRoomy, kFew)>
    kKernels;

}  // namespace
}  // namespace parapet::testing
