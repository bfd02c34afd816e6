// SPDX-License-Identifier: Apache-2.0
/// The version of nezha, at compile time and at run time (semantic versioning: https://semver.org).
#pragma once

#include "nezha/export.h"

/// The version of these headers, as numbers. Before 1.0 a minor version may break what the previous
/// one promised; the library's soname then changes.
#define NEZHA_VERSION_MAJOR 0
#define NEZHA_VERSION_MINOR 1  ///< See NEZHA_VERSION_MAJOR.
#define NEZHA_VERSION_PATCH 0  ///< See NEZHA_VERSION_MAJOR.
/// The version of these headers, as text.
#define NEZHA_VERSION "0.1.0"

namespace nezha {

/// Returns the version of the library that the process has loaded, such as "0.1.0". It may differ
/// from NEZHA_VERSION, which the program was compiled with. The text is static. Thread-safe, never
/// throws.
NEZHA_EXPORT const char* version() noexcept;

}  // namespace nezha
