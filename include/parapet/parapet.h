#pragma once

// The whole public interface.
#include "parapet/attention.h"
#include "parapet/error.h"
#include "parapet/info.h"
#include "parapet/tensor.h"
#include "parapet/version.h"
