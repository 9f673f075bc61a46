#include "emulate/host_kernel.h"

namespace parapet::testing {
namespace {

const AddHostKernels<shaped({.head_dim = 64, .head_dim_v = 64}, kSmall, kMany),
                     shaped({.head_dim = 64, .head_dim_v = 64}, kRoomy, kMany),
                     shaped({.head_dim = 64, .head_dim_v = 64}, kSmall, kFew),
                     shaped({.head_dim = 64, .head_dim_v = 64, .right_edge = true}, kSmall, kMany),
                     shaped({.head_dim = 64, .head_dim_v = 64, .right_edge = true}, kRoomy, kFew),
                     shaped({.element = kernels::Element::kFloat16,
                             .head_dim = 64,
                             .head_dim_v = 64,
                             .left_edge = true,
                             .right_edge = true,
                             .softcap = true},
                            kSmall, kFew)>
    kKernels;

}  // namespace
}  // namespace parapet::testing
