// SPDX-License-Identifier: Apache-2.0
// Measures a rail between two ranks by the library's own links, for kinds of rails whose data does
// not go by TCP: nothing else shows whether it gets through.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "check/measurement.h"

namespace gloo::rendezvous {
class Store;
}

namespace nezha::check {

// The call is collective: both ranks of a pair call it, each with its own URI and its place, 0 or
// 1, and with a store that nothing else uses. Sets the round trip and the rates of the path from
// rank 0 to rank 1 at rank 0, or its error. A rank waits at most for `patience` for the other one
// at a time.
void measure_links(const std::shared_ptr<::gloo::rendezvous::Store>& store, const std::string& uri,
                   const std::string& ports, int place, std::chrono::milliseconds patience,
                   Path& path);
constexpr std::chrono::milliseconds kLinksPatience{5000};

}  // namespace nezha::check
