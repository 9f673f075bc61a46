#include "parapet/error.h"

namespace parapet {

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(message), code_(code) {}

}  // namespace parapet
