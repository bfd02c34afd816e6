// SPDX-License-Identifier: Apache-2.0
// How a context comes to be: by what the environment says, the rails that this machine has, and the
// records that the ranks publish.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "context/record.h"
#include "context/roster.h"
#include "context/settings.h"
#include "context/setup.h"

namespace nezha {

// One rank's steps. All throw InvalidArgument, IoError or TimeoutError, and none is under the lock.
class Joining {
 public:
  // Both outlive it. It completes the setup.
  Joining(Setup& setup, Roster& roster) : setup_(setup), roster_(roster) {}

  // Opens the devices, and agrees with rank 0 on the settings and the context's id. After that
  // other ranks may be let in.
  void prepare();
  // Once connections are taken: the other ranks may come.
  void publish();

 private:
  void find_rails();
  void find_streams();
  void take_switch_rail();
  void open_devices();
  // Reads what rank 0 has published, and takes over its settings.
  void follow_rank0(AgreedSettings& settings, Nanos deadline);
  void agree(const Record& rank0, AgreedSettings& settings) const;
  void check_slices(const Record& rank0) const;

  Setup& setup_;
  Roster& roster_;
};

// Throws if the status is an error: IoError if this process or machine has run out of something,
// and else InvalidArgument.
void refuse_unless(const Setup& setup, const absl::Status& status);

}  // namespace nezha
