#include "emulate/host_kernel.h"

namespace parapet::testing {
namespace {

const AddHostKernels<usual({.element = kernels::Element::kFloat16,
                            .head_dim = 128,
                            .head_dim_v = 64,
                            .left_edge = true,
                            .right_edge = true,
                            .softcap = true,
                            .aligned = false}),
                     usual({.head_dim = 192, .head_dim_v = 128, .right_edge = true}),
                     usual({.head_dim = 256, .head_dim_v = 256, .right_edge = true})>
    kKernels;

}  // namespace
}  // namespace parapet::testing
