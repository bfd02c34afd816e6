# SPDX-License-Identifier: Apache-2.0
# The warnings of nezha's own sources, all of them errors. Headers of other projects are system
# headers (imported targets are) and stay out of it.
add_compile_options(
  -Wall -Wextra -Wpedantic
  -Wcast-qual
  -Wconversion -Wno-sign-conversion
  -Wextra-semi
  -Wformat=2
  -Wmissing-declarations
  -Wnon-virtual-dtor
  -Wold-style-cast
  -Woverloaded-virtual
  -Wshadow
  -Wsuggest-override
  -Wundef
  -Wunused
  -Wvla)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(-Wduplicated-branches -Wduplicated-cond -Wlogical-op)
  if(CMAKE_UNITY_BUILD)  # takes the sources that are joined for headers
    add_compile_options(-Wno-subobject-linkage)
  endif()
elseif(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options(
    -Wcomma -Wimplicit-fallthrough -Wloop-analysis -Wthread-safety -Wunreachable-code
    # GoogleTest's INSTANTIATE_TEST_SUITE_P, and C++20 allows it
    -Wno-gnu-zero-variadic-macro-arguments)
endif()
if(NOT DEFINED CMAKE_COMPILE_WARNING_AS_ERROR)
  # With another compiler than those we test, -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF or cmake's
  # --compile-no-warning-as-error.
  set(CMAKE_COMPILE_WARNING_AS_ERROR ON)
endif()
