# Libraries come from the system where they are new enough, else from their own repositories.
include(FetchContent)

# parapet_dependency(<package> <target> <version> <debian package> <git repository> <tag>)
function(parapet_dependency package target version debian repository tag)
  find_package(${package} ${version} QUIET)
  if(${package}_FOUND AND TARGET ${target})
    return()
  endif()
  message(STATUS "${package} >= ${version} is not installed (Debian and Ubuntu: apt install ${debian}); "
                 "fetching ${tag} from ${repository}")
  set(BUILD_SHARED_LIBS OFF)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  FetchContent_Declare(${package} GIT_REPOSITORY ${repository} GIT_TAG ${tag} GIT_SHALLOW ON)
  FetchContent_MakeAvailable(${package})
endfunction()

set(HWY_ENABLE_TESTS OFF CACHE BOOL "" FORCE)
set(HWY_ENABLE_EXAMPLES OFF CACHE BOOL "" FORCE)
set(HWY_ENABLE_INSTALL OFF CACHE BOOL "" FORCE)
