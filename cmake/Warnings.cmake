# The warnings that all of parapet's own code is compiled with.
add_library(parapet_warnings INTERFACE)
target_compile_options(
  parapet_warnings
  INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
            $<$<BOOL:${PARAPET_WARNINGS_AS_ERRORS}>:-Werror>)
