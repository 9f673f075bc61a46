#include "emulate/host_kernel.h"

namespace parapet::testing {
namespace {

const AddHostKernels<
    shaped({.element = kernels::Element::kFloat16,
            .head_dim = 128,
            .head_dim_v = 64,
            .left_edge = true,
            .right_edge = true,
            .softcap = true,
            .aligned = false},
           kSmall, kFew),
    shaped({.head_dim = 192, .head_dim_v = 128, .right_edge = true}, kSmall, kFew),
    shaped({.head_dim = 256, .head_dim_v = 256, .right_edge = true}, kSmall, kFew),
    shaped({.element = kernels::Element::kFloat16, .head_dim = 256, .head_dim_v = 256}, kRoomy,
           kFew)>
    kKernels;

}  // namespace
}  // namespace parapet::testing
