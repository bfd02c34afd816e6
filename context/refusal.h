// SPDX-License-Identifier: Apache-2.0
// A refusal: what a rank that cannot join leaves in the store for the ranks that wait for it there.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace gloo::rendezvous {
class Store;
}

namespace nezha {

// Leaves a refusal. `rank` is negative if the rank does not know its number. The first refusal in a
// store counts. Not thread-safe, because the store is not. Errors are ignored; the other ranks then
// run into their deadline. Keeps the store alive, because a RedisStore removes its keys when it is
// destroyed.
void leave_refusal(const std::shared_ptr<::gloo::rendezvous::Store>& store, int rank,
                   absl::string_view why);

// Returns the text of the refusal in the store, if there is one. Not thread-safe; errors count as
// no refusal.
std::optional<std::string> find_refusal(::gloo::rendezvous::Store& store);

}  // namespace nezha
