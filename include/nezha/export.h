// SPDX-License-Identifier: Apache-2.0
/// Symbol visibility: whatever is not marked NEZHA_EXPORT is hidden in libnezha.so.
#pragma once

/// Marks the names that programs may use. It is for the library's own headers.
#define NEZHA_EXPORT __attribute__((visibility("default")))
