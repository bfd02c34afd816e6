// SPDX-License-Identifier: Apache-2.0
/// Symbol visibility: what is not marked NEZHA_EXPORT is hidden in libnezha.so.
#pragma once

/// Marks what programs may use, for the library's own headers.
#define NEZHA_EXPORT __attribute__((visibility("default")))
