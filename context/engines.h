// SPDX-License-Identifier: Apache-2.0
// The engines of a context that can be lost (control/recovery.h): all but the hosts engine.
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
  // The setup must outlive this.
  explicit Engines(const Setup& setup) : setup_(setup) {}

  // Adds an engine by a name that no rail has. All ranks must add the same engines in the same
  // order, before the context joins. The engine must outlive the context.
  void add(const std::string& name, Engine& engine) { engines_.emplace_back(name, &engine); }
  // Opens the switch's rail, if the context has one. Callers hold the lock. Throws if that fails.
  void open_switch(const Group& group, flare::FlareEngineOwner& owner);
  void close_switch() { flare_.reset(); }
  flare::FlareEngine* flare() const { return flare_.get(); }  // null: there is no such rail
  void add_stats(std::vector<RailStats>& stats) const;

  bool empty() const { return engines_.empty(); }
  int count() const { return static_cast<int>(engines_.size()); }
  std::vector<std::string> names() const;
  // Returns whether one of the engines can carry the operation.
  bool can_do(const Operation& operation);
  // Returns whether this engine can carry the operation. Logs once each reason why it cannot.
  bool can_do(const Engine& engine, const Operation& operation);

  // Sets the lane of the first engine. The lanes of engines follow those of rank 0's rails.
  void set_first_lane(int lane) { first_lane_ = lane; }
  int lane_of(const Engine& engine) const;
  Engine* of_lane(int lane) const;  // null: the hosts carry the lane

 private:
  const Setup& setup_;
  std::unique_ptr<flare::FlareEngine> flare_;
  std::vector<std::pair<std::string, Engine*>> engines_;  // in the order of their lanes
  int first_lane_ = 0;
  std::set<std::string> unsupported_;  // reasons that were logged why engines cannot do operations
};

}  // namespace nezha
