// SPDX-License-Identifier: Apache-2.0
// What the ranks of a context tell each other about operations that take long. attendance.h says
// how the messages are passed on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collectives/operation_id.h"
#include "context/attendance.h"
#include "context/request.h"
#include "context/roster.h"
#include "context/setup.h"
#include "transport/wire.h"

namespace nezha {

// All methods are called under the lock.
class RollCalls {
 public:
  // `fail` is called if ranks call different operations by one name. The setup and the roster must
  // outlive the roll calls.
  RollCalls(const Setup& setup, const Roster& roster, std::function<void(const absl::Status&)> fail)
      : setup_(setup), roster_(roster), fail_(std::move(fail)) {}

  // This rank enters the operation. Returns its ordinal among those of its tag.
  uint64_t enter(const Request& request) {
    return attendance_.enter(request.operation.tag, request.signature);
  }
  // This rank has entered the operation, which has its ordinal now. Calls `fail` if a rank is known
  // to call another operation by that name.
  void on_entered(const Request& request);
  bool has_entered(const OperationId& operation) const {
    return attendance_.has_entered(operation.tag, operation.ordinal);
  }

  // The operation takes long. Tells the other ranks what it is, in case they call another by its
  // tag.
  void tell_of(const Request& request) { tell(request, wire::RollCallKind::kEntered); }
  // The operation is about to time out.
  void ask_who_is_absent(const Request& request) {
    tell(request, wire::RollCallKind::kWhoIsAbsent);
  }
  // Handles what a rank tells, which may be this rank.
  void hear(const wire::RollCall& call);

  // Returns what is known of the ranks that keep an operation waiting, for errors; "" if nothing is
  // known.
  std::string absent(const OperationId& operation) const {
    return attendance_.absent(operation.tag, operation.ordinal);
  }
  // Returns the ranks that keep the operation from ending, including all of `awaited`.
  std::vector<int> missing(const OperationId& operation, const std::vector<int>& awaited) const;

 private:
  void check(const OperationId& operation);
  void tell(const Request& request, wire::RollCallKind kind);
  void tell_of_silence(const wire::RollCall& question);
  void deny_silence(const wire::RollCall& claim);

  const Setup& setup_;
  const Roster& roster_;
  std::function<void(const absl::Status&)> fail_;
  Attendance attendance_;
};

}  // namespace nezha
