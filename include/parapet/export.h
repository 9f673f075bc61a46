#pragma once

// The library is built with hidden visibility; what a program may link to carries this mark.
#define PARAPET_EXPORT __attribute__((visibility("default")))
