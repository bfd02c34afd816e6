// SPDX-License-Identifier: Apache-2.0
// The library's version, and the one source of libnezha that is no folder's archive.
#include "nezha/version.h"

namespace nezha {
namespace {
// `strings libnezha.so | grep nezha-version` names the version of a copy.
[[gnu::used]] const char kVersion[] = "nezha-version " NEZHA_VERSION;
}  // namespace

const char* version() noexcept { return NEZHA_VERSION; }

}  // namespace nezha
