// SPDX-License-Identifier: Apache-2.0
// A program whose Gloo is linked into it never calls this library, and says so nowhere: so the
// library does when the process ends.
#include "interop/preload/notice.h"

#include <link.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "common/log.h"

namespace nezha::preload {
namespace {

std::atomic<bool> is_used{false};

int is_torch(dl_phdr_info* object, size_t /*size*/, void* /*data*/) {
  const std::string_view name(object->dlpi_name);
  return name.find("libtorch_cpu.so") != std::string_view::npos ? 1 : 0;
}

__attribute__((destructor)) void tell_if_unused() {
  const char* rails = std::getenv("NEZHA_RAILS");
  if (is_used || rails == nullptr || *rails == '\0') return;
  if (dl_iterate_phdr(&is_torch, nullptr) != 0) {
    log().warn(
        "libnezha_gloo.so was preloaded, and this process's PyTorch has made no Gloo device "
        "through "
        "libgloo.so: if it has used Gloo, its Gloo is linked into it, as in the wheels of PyPI, "
        "and "
        "has used one network; Debian's python3-torch works");
  } else {
    log().info(
        "libnezha_gloo.so was preloaded, and this process has made no device through libgloo.so: "
        "it does not use Gloo, or its Gloo is linked into it");
  }
}

}  // namespace

void note_use() { is_used = true; }

}  // namespace nezha::preload
