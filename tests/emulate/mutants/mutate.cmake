# Makes one mutant's copy of the kernels: those in core/ and mma/, in a namespace of its own, so that
# all mutants fit into one program. What the host shares with kernels stays what it is.
#
#   cmake -D NAME=<mutant> -D SOURCE_DIR=<src> -D OUTPUT_DIR=<dir> -P mutate.cmake

function(mutant name header text replacement report)
  if(NOT name STREQUAL NAME)
    return()
  endif()
  file(GLOB headers RELATIVE ${SOURCE_DIR}/kernels ${SOURCE_DIR}/kernels/core/*.h
       ${SOURCE_DIR}/kernels/mma/*.h)
  list(REMOVE_ITEM headers core/mods.h core/params.h mma/traits.h)
  foreach(path IN LISTS headers)
    file(READ ${SOURCE_DIR}/kernels/${path} content)
    if(path STREQUAL header)
      string(FIND "${content}" "${text}" first)
      string(FIND "${content}" "${text}" last REVERSE)
      if(first EQUAL -1 OR NOT first EQUAL last)
        message(FATAL_ERROR "mutant ${name}: expected its text exactly once in src/kernels/${path}:\n"
                            "${text}")
      endif()
      string(REPLACE "${text}" "${replacement}" content "${content}")
    endif()
    string(REPLACE "namespace parapet::kernels {" "namespace parapet::kernels::${name} {" content
                   "${content}")
    file(WRITE ${OUTPUT_DIR}/kernels/${path} "${content}")
  endforeach()
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/list.cmake)
