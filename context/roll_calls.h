// SPDX-License-Identifier: Apache-2.0
// What the ranks of a context tell each other of the operations that take long: attendance.h says
// how it travels.
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

// All of it under the lock.
class RollCalls {
 public:
  // `fail` is called where ranks call different operations by one name. What is referred to
  // outlives the roll calls.
  RollCalls(const Setup& setup, const Roster& roster, std::function<void(const absl::Status&)> fail)
      : setup_(setup), roster_(roster), fail_(std::move(fail)) {}

  // This rank enters the operation. Returns its ordinal among those of its tag.
  uint64_t enter(const Request& request) {
    return attendance_.enter(request.operation.tag, request.signature);
  }
  // It has entered it, and the operation has its ordinal. Fails if a rank is known to call another
  // operation by that name.
  void on_entered(const Request& request);
  bool has_entered(const OperationId& operation) const {
    return attendance_.has_entered(operation.tag, operation.ordinal);
  }

  // The operation takes long: the other ranks may call another operation by its tag.
  void tell_of(const Request& request) { tell(request, wire::RollCallKind::kEntered); }
  // It is about to time out.
  void ask_who_is_absent(const Request& request) {
    tell(request, wire::RollCallKind::kWhoIsAbsent);
  }
  // What a rank tells, which may be this one.
  void hear(const wire::RollCall& call);

  // What is known of the ranks that keep an operation waiting, for errors. "" if nothing is.
  std::string absent(const OperationId& operation) const {
    return attendance_.absent(operation.tag, operation.ordinal);
  }
  // The ranks that it waits for in vain, the `awaited` ones among them.
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
