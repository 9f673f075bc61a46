# Writes the device sources into a C++ file as text, for cuda::embedded_sources().
#
# Included by a CMakeLists.txt it offers
#   parapet_embed_kernels(<target> <output.cpp>)
# and the build runs this same file as a script:
#   cmake -D SOURCE_DIR=<src> -D "FILES=<path below src>;..." -D OUTPUT=<file> -P EmbedKernels.cmake

function(parapet_embed_kernels target output)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src
       ${PROJECT_SOURCE_DIR}/src/kernels/*.h ${PROJECT_SOURCE_DIR}/src/plan/*.h)
  list(SORT files)
  list(TRANSFORM files PREPEND ${PROJECT_SOURCE_DIR}/src/ OUTPUT_VARIABLE paths)
  set(script ${PROJECT_SOURCE_DIR}/cmake/EmbedKernels.cmake)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D SOURCE_DIR=${PROJECT_SOURCE_DIR}/src -D "FILES=${files}" -D
            OUTPUT=${output} -P ${script}
    DEPENDS ${script} ${paths}
    COMMENT "Embedding the kernel sources"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

set(entries "")
set(hashes "")
foreach(path IN LISTS FILES)
  file(READ ${SOURCE_DIR}/${path} text)
  if(text MATCHES "\\)embedded\"")
    message(FATAL_ERROR "${path}: contains )embedded\", which ends the literal that it is put into")
  endif()
  string(APPEND entries "    {\"${path}\", R\"embedded(${text})embedded\"},\n")
  string(SHA256 hash "${text}")
  string(APPEND hashes "${path} ${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")

file(
  WRITE ${OUTPUT}
  "// Made by cmake/EmbedKernels.cmake from src/kernels and src/plan.
#include \"cuda/sources.h\"

namespace parapet::cuda {
namespace {

constexpr SourceFile kSources[] = {
${entries}};

}  // namespace

std::span<const SourceFile> embedded_sources() { return kSources; }

const char* embedded_sources_hash() { return \"${hash}\"; }

}  // namespace parapet::cuda
")
