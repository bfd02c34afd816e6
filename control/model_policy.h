// SPDX-License-Identifier: Apache-2.0
// The default policy. It learns how long lanes take, chooses the set of lanes that finishes a
// message first, and divides the message so that they finish together. Whether one lane is better
// than several follows from the same computation.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "control/candidates.h"
#include "control/experiment.h"
#include "control/lane_changes.h"
#include "control/lane_model.h"
#include "control/policy.h"

namespace nezha {

// A class begins with a *search*, whose windows are short. First the search measures sets that may
// be the best. Then it follows the model's predictions until nothing better is predicted, or until
// it has taken many windows. Then the class has settled, and its windows are longer:
//
// - If a lane takes longer than before, or a single lane shorter, another search begins.
// - If another division of the same lanes is better, the class takes it at once and searches again.
// - Everything else is tried by experiments (control/experiment.h): other lanes, another algorithm,
//   and more for a lane that finishes early. Such a lane may be faster than before, or only use
//   tokens that it has saved up in a bucket.
class ModelPolicy final : public Policy {
 public:
  // Returns the other algorithm that may be better for messages of a class; nullopt: there is none.
  using RivalOf = std::function<std::optional<Algorithm>(SizeClass)>;

  explicit ModelPolicy(int lanes, LaneSet alone = 0, LaneRates rates = nullptr,
                       RivalOf rival = nullptr, SizeClass whole_from = kSizeClasses)
      : Policy(lanes, alone),
        rates_(std::move(rates)),
        rival_(std::move(rival)),
        whole_from_(whole_from),
        models_(2, LaneModel(lanes)) {}

  Allocation open(SizeClass size_class) override;
  void resume(const Window& last, const Way& ran_by, ClassState state) override;
  bool may_use(SizeClass size_class, Algorithm algorithm) const override;
  std::optional<Decision> on_window(const Window& window, const Allocation& allocation) override;
  Allocation on_lanes(SizeClass size_class, const Allocation& current) override;
  std::optional<Allocation> on_silence(SizeClass size_class) override;
  ClassState state(SizeClass size_class) const override;
  int window_operations(SizeClass size_class) const override;

  // Returns the part of the operations' time that experiments have cost.
  double probing() const { return budget_.spent(); }

 private:
  struct Class {
    ClassState state = ClassState::kSearching;
    Algorithm algorithm = Algorithm::kAuto;  // the home's
    int searched = 0;                        // windows of this search
    bool is_explored = false;  // whether everything was measured that must be measured first
    bool after_drift = false;  // whether this search began because lanes had changed
    // The smallest LaneChange::ratio of early lanes when they were last given more.
    double earliest = 1;
    Rests rests;
    std::optional<Experiment> experiment;
  };

  std::optional<Decision> on_search(Class& known, const Window& window, const Allocation& ran_by,
                                    const Allocation& asked);
  std::optional<Decision> on_settled(Class& known, const Window& window, const Allocation& ran_by);
  std::optional<Decision> on_experiment(Class& known, const Window& window,
                                        const Allocation& ran_by);
  std::optional<Decision> more_for(Class& known, const Window& window, const Allocation& ran_by,
                                   const LaneChanges& early);
  std::optional<Decision> next_experiment(Class& known, const Window& window,
                                          const Allocation& ran_by);
  static Decision begin(Class& known, const Allocation& home, double home_time, Way candidate,
                        absl::string_view why);
  std::optional<Experiment> end_experiment(Class& known);
  Decision adopt(Class& known, const Window& window, const Allocation& ran_by);
  Decision lose(Class& known);
  std::optional<Split> improvement(const Class& known, const Window& window,
                                   const Split& current) const;
  void open_search(Class& known, bool after_drift);
  static void settle(Class& known, LaneSet set);

  std::vector<Algorithm> algorithms(SizeClass size_class) const;
  LaneModel& model(Algorithm algorithm) { return models_[algorithm == Algorithm::kAuto ? 0 : 1]; }
  const LaneModel& model(Algorithm algorithm) const {
    return models_[algorithm == Algorithm::kAuto ? 0 : 1];
  }
  Candidates candidates(Algorithm algorithm) const {
    return {*this, model(algorithm), rates_, whole_from_};
  }

  LaneRates rates_;
  RivalOf rival_;
  SizeClass whole_from_;
  std::vector<LaneModel> models_;  // the default algorithm's and its rival's
  std::map<SizeClass, Class> classes_;
  Budget budget_;
};

}  // namespace nezha
