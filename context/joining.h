// SPDX-License-Identifier: Apache-2.0
// How a rank joins its context: it reads the environment, finds this machine's rails, and exchanges
// records with the other ranks.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "context/record.h"
#include "context/roster.h"
#include "context/settings.h"
#include "context/setup.h"

namespace nezha {

// One rank's steps. All throw InvalidArgument, IoError or TimeoutError, and are called without the
// lock.
class Joining {
 public:
  // Completes the setup. Both arguments must outlive this.
  Joining(Setup& setup, Roster& roster) : setup_(setup), roster_(roster) {}

  // Opens the devices, and agrees with rank 0 on the settings and the context's id. After that,
  // connections of other ranks may be accepted.
  void prepare();
  // Publishes this rank's record, by which other ranks connect. Connections must be accepted by
  // then.
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

// Throws if the status is an error: IoError if this process or machine has run out of a resource,
// otherwise InvalidArgument.
void refuse_unless(const Setup& setup, const absl::Status& status);

}  // namespace nezha
