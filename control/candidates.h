// SPDX-License-Identifier: Apache-2.0
// The ways in which messages of a class may go, and what each of them is predicted to take.
#pragma once

#include <optional>

#include "control/lane_model.h"
#include "control/policy.h"

namespace nezha {

class Candidates {
 public:
  // `model` belongs to one algorithm. Where there are stripes, messages of the class `whole_from`
  // and of larger ones are not cut into slices. All arguments must outlive this object.
  Candidates(const Policy& lanes, const LaneModel& model, const LaneRates& rates,
             SizeClass whole_from)
      : lanes_(lanes), model_(model), rates_(rates), whole_from_(whole_from) {}

  // Returns whether messages of the class may go over `set`.
  bool suits(SizeClass size_class, LaneSet set) const;
  // Returns the division over lanes of `among` that is predicted to take the least time; nullopt if
  // nothing is known of them.
  std::optional<Split> best(SizeClass size_class, double bytes, LaneSet among) const;
  // Returns a division that must be measured before sets can be compared. Returns nullopt if no
  // unmeasured one might be better than those that were measured.
  std::optional<Allocation> unmeasured(SizeClass size_class, double bytes) const;
  // Returns the division by which to try `set` in place of `home`; nullopt if it is not worth a
  // try.
  std::optional<Split> trial_of(SizeClass size_class, double bytes, LaneSet set,
                                const Split& home) const;

 private:
  Allocation first_division() const;
  std::optional<double> rate(int lane) const;
  double alone(SizeClass size_class, double bytes, int lane) const;

  const Policy& lanes_;
  const LaneModel& model_;
  const LaneRates& rates_;
  SizeClass whole_from_;
};

}  // namespace nezha
