# What the Python wheel holds besides the binding, which src/ffi installs: the program, the workloads
# that it knows, compiled GPU kernels, and shared libraries that a user's machine may not have. All lie
# in one directory, where they find each other.
install(TARGETS parapet_cli RUNTIME DESTINATION parapet COMPONENT python)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/cli/parapet.py DESTINATION ${SKBUILD_SCRIPTS_DIR}
        RENAME parapet COMPONENT python)
install(DIRECTORY workloads DESTINATION parapet COMPONENT python)
install(DIRECTORY ${PROJECT_BINARY_DIR}/parapet-kernels DESTINATION parapet COMPONENT python OPTIONAL)

set_target_properties(parapet_cli parapet_ffi PROPERTIES INSTALL_RPATH "$ORIGIN")
foreach(library hwy::hwy fmt::fmt)
  get_target_property(type ${library} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    install(FILES $<TARGET_FILE:${library}> DESTINATION parapet
            RENAME $<TARGET_SONAME_FILE_NAME:${library}> COMPONENT python)
  endif()
endforeach()
