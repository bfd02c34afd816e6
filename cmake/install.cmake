# SPDX-License-Identifier: Apache-2.0
# Installing: the library and its headers, a CMake package, a pkg-config file; and taking it back.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nezha)
install(TARGETS nezha EXPORT nezha)
install(TARGETS nezha_gloo)  # to be preloaded: nothing links it
# The project that takes the place of Horovod's third_party/gloo, with all that it is compiled of.
set(horovod_dir ${CMAKE_INSTALL_DATADIR}/nezha/horovod)
install(DIRECTORY interop/horovod/ DESTINATION ${horovod_dir})
install(DIRECTORY interop/takeover DESTINATION ${horovod_dir}/interop)
install(DIRECTORY include/nezha DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
install(EXPORT nezha NAMESPACE nezha:: FILE nezha-targets.cmake DESTINATION ${package_dir})

configure_package_config_file(cmake/nezha-config.cmake.in nezha-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break what the one before it promised.
write_basic_package_version_file(nezha-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nezha-config.cmake
              ${PROJECT_BINARY_DIR}/nezha-config-version.cmake DESTINATION ${package_dir})

# The prefix is relative to the file, as `cmake --install --prefix` may choose another one.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/nezha.pc.in nezha.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/nezha.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(PROJECT_IS_TOP_LEVEL)
  configure_file(cmake/uninstall.cmake.in uninstall.cmake @ONLY)
  add_custom_target(uninstall
    COMMAND ${CMAKE_COMMAND} -P ${PROJECT_BINARY_DIR}/uninstall.cmake
    COMMENT "Removing what was last installed from this build")
endif()
