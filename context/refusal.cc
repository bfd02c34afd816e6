// SPDX-License-Identifier: Apache-2.0
#include "context/refusal.h"

#include <gloo/rendezvous/store.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/host.h"
#include "common/log.h"

namespace nezha {
namespace {

using ::gloo::rendezvous::Store;

constexpr char kKey[] = "refusal";
constexpr size_t kMaxText = 800;  // bytes; fits an abort
constexpr size_t kMaxKept = 8;

void keep(const std::shared_ptr<Store>& store) {
  static std::mutex mutex;
  // The list is never destroyed, so the keys outlive the process.
  static auto& kept = *new std::deque<std::shared_ptr<Store>>;
  const std::lock_guard lock(mutex);
  if (kept.size() == kMaxKept) kept.pop_front();
  kept.push_back(store);
}

}  // namespace

void leave_refusal(const std::shared_ptr<Store>& store, int rank, absl::string_view why) {
  const std::string who =
      rank < 0 ? absl::StrCat("a rank (", process_name(), ")") : absl::StrCat("rank ", rank);
  const std::string text = absl::StrCat(who, " cannot join: ", why).substr(0, kMaxText);
  try {
    store->set(kKey, std::vector<char>(text.begin(), text.end()));
    keep(store);
  } catch (const std::exception& error) {
    // Another rank was first, or the store cannot be reached.
    log().debug("the store could not be told that {}: {}", text, error.what());
  }
}

std::optional<std::string> find_refusal(Store& store) {
  try {
    store.wait({kKey}, std::chrono::milliseconds(1));
    const std::vector<char> bytes = store.get(kKey);
    std::string text(bytes.begin(),
                     bytes.begin() + std::min<ptrdiff_t>(std::ssize(bytes), kMaxText));
    // The text ends up in logs and exceptions, so nothing in it may control a terminal.
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return text;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace nezha
