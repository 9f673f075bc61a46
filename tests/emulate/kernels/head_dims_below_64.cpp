#include "emulate/host_kernel.h"

namespace parapet::testing {
namespace {

const AddHostKernels<usual({.head_dim = 8, .head_dim_v = 8}),
                     usual({.element = kernels::Element::kFloat16,
                            .head_dim = 32,
                            .head_dim_v = 32,
                            .packed_heads = true}),
                     usual({.element = kernels::Element::kFloat16,
                            .head_dim = 40,
                            .head_dim_v = 72,
                            .left_edge = true,
                            .right_edge = true})>
    kKernels;

}  // namespace
}  // namespace parapet::testing
