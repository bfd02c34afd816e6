// SPDX-License-Identifier: Apache-2.0
// The word that a rank which cannot join leaves in the store, for those that wait for it there.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace gloo::rendezvous {
class Store;
}

namespace nezha {

// `rank`: negative of a rank that does not know its own. The first one counts. Not thread-safe, as
// the store is not. Errors are ignored: the other ranks learn by their deadline then. Keeps the
// store alive, as a RedisStore takes its keys with it.
void leave_refusal(const std::shared_ptr<::gloo::rendezvous::Store>& store, int rank,
                   absl::string_view why);

// What was left, in words; nothing if nothing was. Likewise.
std::optional<std::string> find_refusal(::gloo::rendezvous::Store& store);

}  // namespace nezha
