#include "emulate/host_kernel.h"

namespace parapet::testing {
namespace {

const AddHostKernels<usual({.head_dim = 96, .head_dim_v = 96, .left_edge = true}), usual({}),
                     usual({.right_edge = true}), usual({.right_edge = true, .packed_heads = true}),
                     for_short({.right_edge = true})>
    kKernels;

}  // namespace
}  // namespace parapet::testing
