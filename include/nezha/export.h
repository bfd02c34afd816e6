/// Symbol visibility: what is not marked NEZHA_EXPORT is hidden in libnezha.so.
#pragma once

#define NEZHA_EXPORT __attribute__((visibility("default")))
