// Temporary, until the vectorised backend replaces it: the definition, a row at a time.
#include "cpu/forward.h"

namespace parapet::cpu {
std::string simd_target() { return "none"; }
}  // namespace parapet::cpu
