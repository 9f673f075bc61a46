# Compiles the common GPU kernels for PARAPET_PRECOMPILE_ARCHS with the build, to be installed beside
# the library, which looks for them there. Needs NVRTC; without one there are none, and calls compile
# what they need.
find_package(Python COMPONENTS Interpreter)  # one that pip installed is in its packages
find_file(
  PARAPET_NVRTC
  NAMES libnvrtc.so.13 libnvrtc.so.12
  PATHS ${Python_SITELIB}/nvidia/cu13/lib $ENV{CUDA_PATH}/lib64 /usr/local/cuda/lib64
  DOC "The NVRTC that compiles the kernels which come with the package")
set(kernels_dir ${PROJECT_BINARY_DIR}/parapet-kernels)

if(NOT PARAPET_NVRTC)
  message(NOTICE "parapet: NVRTC was not found (pip install nvidia-cuda-nvrtc, or a CUDA toolkit): "
                 "this build comes without compiled GPU kernels")
  add_custom_target(parapet_kernels ALL)
  return()
endif()

list(JOIN PARAPET_PRECOMPILE_ARCHS "," archs)
add_custom_command(
  OUTPUT ${kernels_dir}.stamp
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${kernels_dir}
  COMMAND ${CMAKE_COMMAND} -E env PARAPET_NVRTC=${PARAPET_NVRTC} $<TARGET_FILE:parapet_cli>
          precompile --arch ${archs} --out ${kernels_dir}
  COMMAND ${CMAKE_COMMAND} -E touch ${kernels_dir}.stamp
  DEPENDS parapet_cli
  COMMENT "Compiling GPU kernels for ${archs} with ${PARAPET_NVRTC}"
  VERBATIM)
add_custom_target(parapet_kernels ALL DEPENDS ${kernels_dir}.stamp)
