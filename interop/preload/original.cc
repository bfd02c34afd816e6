// SPDX-License-Identifier: Apache-2.0
#include "interop/preload/original.h"

#include <dlfcn.h>
#include <gloo/common/error.h>

#include <string>

namespace nezha::preload {

void* find_original(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found != nullptr) return found;
  throw ::gloo::InvalidOperationException(
      std::string("nezha: the libgloo of this process has no function ") + name +
      ", which libnezha_gloo.so stands in front of; it needs the libgloo that it was built with");
}

}  // namespace nezha::preload
