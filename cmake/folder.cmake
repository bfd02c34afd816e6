# SPDX-License-Identifier: Apache-2.0
# nezha_folder(NAME SOURCES patterns... LINK libraries...): the target nezha_NAME of the folder NAME.
# Includes are written from the repository's root. Until a folder has sources, it is headers only.
function(nezha_folder name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  file(GLOB sources CONFIGURE_DEPENDS ${arg_SOURCES})
  if(sources)
    add_library(nezha_${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(nezha_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(nezha_${name} ${scope} ${PROJECT_SOURCE_DIR}
                                                    ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(nezha_${name} ${scope} ${arg_LINK})
endfunction()
