// SPDX-License-Identifier: Apache-2.0
// A program that has its own Gloo linked into it never calls this library, and nothing tells the
// user. So the library logs that when the process ends.
#include "interop/preload/notice.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <string>
#include <string_view>

#include "common/log.h"
#include "interop/takeover/original.h"
#include "interop/takeover/rails.h"

namespace nezha::preload {
namespace {

std::atomic<bool> is_used{false};

// Stores the path of PyTorch's library if `object` is that.
int find_torch(dl_phdr_info* object, size_t /*size*/, void* found) {
  const std::string_view name(object->dlpi_name);
  if (name.find("libtorch_cpu.so") == std::string_view::npos) return 0;
  *static_cast<std::string*>(found) = name;
  return 1;
}

// Returns whether the process has a PyTorch that does not use libgloo.so: Gloo's functions cannot
// be found from its library.
bool is_torch_with_its_own_gloo() {
  std::string torch;
  if (dl_iterate_phdr(&find_torch, &torch) == 0) return false;
  void* const library = dlopen(torch.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr && dlsym(library, takeover::kCreateDevice) == nullptr;
}

__attribute__((destructor)) void tell_if_unused() {
  if (is_used || !takeover::environment_names_rails()) return;
  if (is_torch_with_its_own_gloo()) {
    log().warn(
        "libnezha_gloo.so was preloaded in vain: this process's PyTorch contains a Gloo of its "
        "own, as PyPI's wheels do, which uses one network; use a PyTorch that is linked to "
        "libgloo.so, such as Debian's python3-torch");
  } else {
    log().debug(
        "libnezha_gloo.so was preloaded, but this process has made no device through libgloo.so: "
        "it does not use Gloo, or it contains a Gloo of its own");
  }
}

}  // namespace

void note_use() { is_used = true; }

}  // namespace nezha::preload
