// SPDX-License-Identifier: Apache-2.0
#include "cluster/gloo/rank.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>

#include <algorithm>

#include "cluster/gloo/device.h"

namespace nezha::gloo_cases {
namespace {

// Time for a rank that comes late, and for ranks that wait for one that has left the case.
constexpr std::chrono::seconds kPatience(30);
constexpr std::chrono::seconds kPatienceAtTheEnd(150);

}  // namespace

Rank::Rank(int number, const Options& all_options, gloo::rendezvous::Store& store)
    : rank(number),
      size(all_options.size),
      options(all_options),
      store_(store),
      device_(make_device(all_options)) {}

std::vector<int> Rank::others() const {
  std::vector<int> ranks;
  for (int other = 0; other < size; ++other) {
    if (other != rank) ranks.push_back(other);
  }
  return ranks;
}

std::shared_ptr<gloo::Context> Rank::context() {
  if (!context_) {
    context_ = connect();
    kept_.pop_back();
  }
  return context_;
}

std::shared_ptr<gloo::Context> Rank::connect(std::chrono::milliseconds timeout,
                                             std::shared_ptr<gloo::transport::Device>& device) {
  gloo::rendezvous::PrefixStore store("context" + std::to_string(++contexts_), store_);
  // For a rank that has not come yet, Gloo would take the store's empty answer as the name of its
  // host, so all ranks meet first.
  meet();
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->setTimeout(timeout);
  context->connectFullMesh(store, device);
  kept_.push_back(context);
  return context;
}

std::string Rank::meeting() { return "meeting" + std::to_string(++meetings_) + "/"; }

void Rank::await_all(const std::string& meeting, std::chrono::milliseconds patience) {
  std::vector<std::string> keys;
  for (int other = 0; other < size; ++other) keys.push_back(meeting + std::to_string(other));
  store_.wait(keys, patience);
}

void Rank::meet() {
  const std::string here = meeting();
  store_.set(here + std::to_string(rank), {'1'});
  await_all(here, kPatience);
}

std::string Rank::finish(const std::string& thrown) {
  // A rank that left the case early has been at fewer meetings than the others.
  meetings_ = (meetings_ / kMeetings + 1) * kMeetings;
  contexts_ = (contexts_ / kMeetings + 1) * kMeetings;
  tag_ = (tag_ / kTags + 1) * kTags;
  const std::string here = meeting();
  store_.set(here + std::to_string(rank), {thrown.empty() ? '1' : '0'});
  await_all(here, kPatienceAtTheEnd);
  for (int other = 0; other < size; ++other) {
    if (store_.get(here + std::to_string(other)).at(0) == '0') context_.reset();
  }
  // No rank uses anything of the case any more.
  kept_.clear();
  if (!thrown.empty()) note("failed: " + thrown);
  return notes_.empty() ? "ok" : std::exchange(notes_, "");
}

}  // namespace nezha::gloo_cases
