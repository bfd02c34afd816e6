// SPDX-License-Identifier: Apache-2.0
// The engines of a context beside the hosts': those that can be lost (control/recovery.h).
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/engine.h"
#include "context/roster.h"
#include "context/setup.h"
#include "flare_offload/engine/flare_engine.h"
#include "nezha/context.h"

namespace nezha {

class Engines {
 public:
  // The setup outlives it.
  explicit Engines(const Setup& setup) : setup_(setup) {}

  // By names that no rail has; the same, in the same order, on all ranks, before the context joins.
  // The engine outlives the context.
  void add(const std::string& name, Engine& engine) { engines_.emplace_back(name, &engine); }
  // Under the lock: the switch's rail, if the context has one. Throws if it cannot be.
  void open_switch(const Group& group, flare::FlareEngineOwner& owner);
  void close_switch() { flare_.reset(); }
  flare::FlareEngine* flare() const { return flare_.get(); }  // null: there is no such rail
  void add_stats(std::vector<RailStats>& stats) const;

  bool empty() const { return engines_.empty(); }
  int count() const { return static_cast<int>(engines_.size()); }
  std::vector<std::string> names() const;
  // Whether one of them can carry it.
  bool can_do(const Operation& operation);
  // Says once why it cannot.
  bool can_do(const Engine& engine, const Operation& operation);

  // The lanes of engines follow those of rank 0's rails, of which the first engine has this one.
  void set_first_lane(int lane) { first_lane_ = lane; }
  int lane_of(const Engine& engine) const;
  Engine* of_lane(int lane) const;  // null: the hosts'

 private:
  const Setup& setup_;
  std::unique_ptr<flare::FlareEngine> flare_;
  std::vector<std::pair<std::string, Engine*>> engines_;  // flare_ among them
  int first_lane_ = 0;
  std::set<std::string> unsupported_;  // why engines cannot do operations, as the log was told
};

}  // namespace nezha
