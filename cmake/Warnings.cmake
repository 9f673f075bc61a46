# The warnings that all of parapet's own code is compiled with. What GCC's optimiser suspects differs
# with every version of it and is often not so: no error, lest a new compiler refuse to build.
add_library(parapet_warnings INTERFACE)
target_compile_options(
  parapet_warnings
  INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
            $<$<BOOL:${PARAPET_WARNINGS_AS_ERRORS}>:-Werror>
            "$<$<CXX_COMPILER_ID:GNU>:-Wno-error=array-bounds;-Wno-error=maybe-uninitialized;-Wno-error=stringop-overflow>")
