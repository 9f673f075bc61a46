#include "emulate/host_kernel.h"

namespace parapet::testing {
namespace {

const AddHostKernels<usual({.head_dim = 64, .head_dim_v = 64}),
                     usual({.head_dim = 64, .head_dim_v = 64, .right_edge = true}),
                     usual({.element = kernels::Element::kFloat16,
                            .head_dim = 64,
                            .head_dim_v = 64,
                            .left_edge = true,
                            .right_edge = true,
                            .softcap = true}),
                     for_short({.head_dim = 64, .head_dim_v = 64}),
                     for_short({.head_dim = 64, .head_dim_v = 64, .right_edge = true})>
    kKernels;

}  // namespace
}  // namespace parapet::testing
