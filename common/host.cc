// SPDX-License-Identifier: Apache-2.0
#include "common/host.h"

#include <unistd.h>

#include <array>

#include "absl/strings/str_cat.h"

namespace nezha {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string process_name() { return absl::StrCat("pid ", getpid(), " on host ", host_name()); }

}  // namespace nezha
