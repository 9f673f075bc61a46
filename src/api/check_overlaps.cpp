#include "api/arguments.h"
#include "api/checks.h"
#include "api/overlap.h"
#include "api/refuse.h"

namespace parapet::api {

void check_overlaps(const ForwardTensors& tensors) {
  const Arguments arguments(tensors);
  for (const Argument& written : arguments) {
    if (!written.written) continue;
    if (overlaps_itself(*written.view)) {
      refuse("{}: expected a place of its own for each element, found shape {} with strides {}",
             written.name, shape_text(*written.view), strides_text(*written.view));
    }
    for (const Argument& other : arguments) {
      if (&other != &written && overlap(*written.view, *other.view)) {
        refuse("{}: expected memory of its own, found elements that are also {}'s", written.name,
               other.name);
      }
    }
  }
}

}  // namespace parapet::api
