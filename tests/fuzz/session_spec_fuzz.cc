// SPDX-License-Identifier: Apache-2.0
// Arbitrary text as a session's file: an accepted session is one that a switch can serve.
#include <cstdlib>

#include "flare_offload/switchd/session_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nezha::flare;
  const auto spec = parse_session({reinterpret_cast<const char*>(data), size});
  if (!spec.ok()) return 0;
  if (!check(spec->table).ok() || spec->children.size() != spec->table.children.size() ||
      spec->table.is_root == spec->parent.has_value() ||
      (spec->group && !spec->group->is_multicast())) {
    std::abort();
  }
  return 0;
}
