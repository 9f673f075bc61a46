#include "emulate/host_kernel.h"

namespace parapet::testing {
namespace {

const AddHostKernels<shaped({.head_dim = 8, .head_dim_v = 8}, kSmall, kFew),
                     shaped({.element = kernels::Element::kFloat16,
                             .head_dim = 32,
                             .head_dim_v = 32,
                             .packed_heads = true},
                            kRoomy, kFew),
                     shaped({.element = kernels::Element::kFloat16,
                             .head_dim = 40,
                             .head_dim_v = 72,
                             .left_edge = true,
                             .right_edge = true},
                            kSmall, kFew)>
    kKernels;

}  // namespace
}  // namespace parapet::testing
