// SPDX-License-Identifier: Apache-2.0
#include "interop/takeover/original.h"

#include <dlfcn.h>
#include <gloo/common/error.h>

#include <string>

namespace nezha::takeover {

void* find_original(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found != nullptr) return found;
  throw ::gloo::InvalidOperationException(
      std::string("nezha: the libgloo of this process has no function ") + name +
      ", which nezha calls for operations that it does not carry out itself; use the libgloo that "
      "nezha was built with");
}

}  // namespace nezha::takeover
