// SPDX-License-Identifier: Apache-2.0
#include "context/starter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/out_of_memory.h"
#include "common/shortage.h"
#include "context/record.h"

namespace nezha {

bool WaitingOrder::lets_pass(const RunningOperation& operation) const {
  const Exchange* exchange = operation.request().exchange.get();
  if (exchange == nullptr) return is_empty_;
  const Exchange::Terms& terms = exchange->terms();
  return std::none_of(terms.peers.begin(), terms.peers.end(), [&](int peer) {
    return exchanges_.contains({terms.is_send, terms.tag, peer});
  });
}

void WaitingOrder::add(const RunningOperation& operation) {
  is_empty_ = false;
  const Exchange* exchange = operation.request().exchange.get();
  if (exchange == nullptr) return;
  const Exchange::Terms& terms = exchange->terms();
  for (const int peer : terms.peers) exchanges_.emplace(terms.is_send, terms.tag, peer);
}

void Starter::add(const std::shared_ptr<RunningOperation>& operation) {
  waiting_.push_back(operation);
  order_.add(*operation);
  wake();
}

bool Starter::holds(const OperationId& operation) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const auto& waiting) { return waiting->id() == operation; });
}

void Starter::want_set_up() {
  wants_set_up_ = true;
  wake();
}

void Starter::wake() {
  if (is_running_ || is_closing_) return;
  is_running_ = true;
  if (thread_.joinable()) thread_.join();  // it has ended
  auto thread = start_thread([this] { run(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
    return;
  }
  is_running_ = false;
  const absl::Status why = absl::ResourceExhaustedError(
      absl::StrCat("connecting to other ranks: ", thread.status().message()));
  if (waiting_.empty()) {
    setup_.log->warn("load balancing does not start: {}", std::string(why.message()));
  } else {
    owner_.on_failed(why);
  }
}

void Starter::join() {
  if (thread_.joinable()) thread_.join();
}

// Asks the store for the peers of one operation after the other. Each question may take long.
void Starter::run() {
  for (bool has_work = true; has_work;) {
    absl::Status status;
    try {
      has_work = do_next(status);
    } catch (...) {
      status = caught_status();
    }
    if (status.ok()) continue;
    Progress::Guard guard(setup_.progress());
    owner_.on_failed(status);
    setup_.progress().run_deferred();
  }
}

// Returns false if there is nothing left to do. An error in `status` fails the context.
bool Starter::do_next(absl::Status& status) {
  std::shared_ptr<RunningOperation> operation;
  std::vector<int> peers;
  bool wants_set_up = false;
  {
    Progress::Guard guard(setup_.progress());
    start_those_with_known_peers();
    if (!waiting_.empty()) {  // the first one waits behind none, so it must lack a peer
      operation = waiting_.front();
      peers = owner_.unknown_peers(*operation);
    }
    setup_.progress().run_deferred();
    wants_set_up = operation == nullptr && std::exchange(wants_set_up_, false);
    if (is_closing_ || (operation == nullptr && !wants_set_up)) {
      is_running_ = false;
      return false;
    }
  }
  if (wants_set_up) {
    owner_.set_up();
  } else {
    status = resolve(*operation, peers);
  }
  return true;
}

void Starter::start_those_with_known_peers() {
  WaitingOrder order;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto operation = *at;
    const bool is_ready = order.lets_pass(*operation) && owner_.unknown_peers(*operation).empty();
    if (!operation->over() && !is_ready) {
      order.add(*operation);
      ++at;
      continue;
    }
    at = waiting_.erase(at);
    if (!operation->over()) owner_.launch(operation);
  }
  order_ = std::move(order);
}

absl::Status Starter::resolve(RunningOperation& operation, const std::vector<int>& peers) {
  for (const int peer : peers) {
    {
      Progress::Guard guard(setup_.progress());
      if (operation.over()) return absl::OkStatus();
      operation.waits_for(absl::StrCat("rank ", peer, " has not appeared in the store (key '",
                                       Record::key(setup_.listed(peer)), "')"),
                          {peer});
    }
    absl::Status status = roster_.resolve(peer, operation.request().deadline);
    if (status.ok()) status = roster_.confirm();
    if (!status.ok()) return status;
    Progress::Guard guard(setup_.progress());
    start_those_with_known_peers();
    setup_.progress().run_deferred();
  }
  return absl::OkStatus();
}

}  // namespace nezha
