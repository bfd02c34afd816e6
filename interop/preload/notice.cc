// SPDX-License-Identifier: Apache-2.0
// A program whose Gloo is linked into it never calls this library, and says so nowhere: so the
// library does when the process ends.
#include "interop/preload/notice.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "common/log.h"

namespace nezha::preload {
namespace {

std::atomic<bool> is_used{false};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The names of the libraries that a loaded object was linked to.
std::vector<std::string_view> needed_by(const dl_phdr_info& object) {
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    if (header.p_type != PT_DYNAMIC) continue;
    dynamic = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + header.p_vaddr);
  }
  const char* names = nullptr;
  std::vector<std::string_view> needed;
  for (const ElfW(Dyn)* entry = dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  }
  for (const ElfW(Dyn)* entry = dynamic; names != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED) needed.emplace_back(names + entry->d_un.d_val);
  }
  return needed;
}

// Whether the object is a PyTorch that has no use for libgloo.so.
int has_its_own_gloo(dl_phdr_info* object, size_t /*size*/, void* /*data*/) {
  if (!contains(object->dlpi_name, "libtorch_cpu.so")) return 0;
  const std::vector<std::string_view> needed = needed_by(*object);
  const bool needs_gloo = std::any_of(needed.begin(), needed.end(), [](std::string_view name) {
    return contains(name, "libgloo.so");
  });
  return needs_gloo ? 0 : 1;
}

__attribute__((destructor)) void tell_if_unused() {
  const char* rails = std::getenv("NEZHA_RAILS");
  if (is_used || rails == nullptr || *rails == '\0') return;
  if (dl_iterate_phdr(&has_its_own_gloo, nullptr) != 0) {
    log().warn(
        "libnezha_gloo.so was preloaded in vain: a Gloo of its own is linked into this process's "
        "PyTorch, as into the wheels of PyPI, and uses one network; take a PyTorch that is linked "
        "to libgloo.so, such as Debian's python3-torch");
  } else {
    log().info(
        "libnezha_gloo.so was preloaded, and this process has made no device through libgloo.so: "
        "it does not use Gloo, or its Gloo is linked into it");
  }
}

}  // namespace

void note_use() { is_used = true; }

}  // namespace nezha::preload
