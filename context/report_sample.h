// SPDX-License-Identifier: Apache-2.0
// Chooses the readings that a rank reports to the coordinator. A report is expensive compared with
// a short operation. So once a class has run by its allocation for a while, only a sample of its
// short operations is reported. All ranks choose the same operations, except for a few after a
// change.
#pragma once

#include <cstdint>

#include "common/hash_map.h"
#include "control/size_class.h"
#include "control/timer.h"

namespace nezha {

class ReportSample {
 public:
  // After a change of a class's allocation, at least this many of its operations are all reported.
  // An experiment ends within them (control/experiment.cc) if their times can be used.
  static constexpr int kAllAtFirst = 192;

  // The class runs by the allocation `number` from now on. `is_known`: its times were reported
  // before.
  void on_change(SizeClass size_class, uint32_t number, bool is_known);
  // Counts the operation. Returns whether its reading is reported.
  bool takes(const Reading& reading);
  // Returns whether the latest operation of the class may have ended the coordinator's window, so
  // that its reading should not wait for others.
  bool is_awaited(SizeClass size_class) const;

 private:
  struct Class {
    uint32_t number = 0;   // the allocation's
    int count = 0;         // operations that ran by the allocation, up to kAllAtFirst + 1
    bool took_all = true;  // whether all readings by the previous allocation were reported
  };

  HashMap<SizeClass, Class> classes_;
};

}  // namespace nezha
