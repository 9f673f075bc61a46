# The C++ package: headers, libparapet, the parapet program, and what find_package(parapet) needs.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/parapet)
install(TARGETS parapet EXPORT parapetTargets)
install(DIRECTORY include/parapet ${PROJECT_BINARY_DIR}/include/parapet
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT parapetTargets NAMESPACE parapet:: DESTINATION ${package_dir})
if(PARAPET_BUILD_CLI)
  install(TARGETS parapet_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(SKBUILD)
  include(cmake/Wheel.cmake)
endif()

configure_package_config_file(cmake/parapetConfig.cmake.in ${PROJECT_BINARY_DIR}/parapetConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/parapetConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/parapetConfig.cmake
              ${PROJECT_BINARY_DIR}/parapetConfigVersion.cmake DESTINATION ${package_dir})
