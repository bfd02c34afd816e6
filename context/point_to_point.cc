// SPDX-License-Identifier: Apache-2.0
#include "context/point_to_point.h"

#include <utility>

namespace nezha {

void PointToPoint::begin(const std::shared_ptr<RunningOperation>& operation) {
  running_.push_back(operation);
  operation->begin(/*ordinal=*/0);
}

void PointToPoint::launch(RunningOperation& operation, const Group& group) {
  const Request& request = operation.request();
  Assignment assignment;
  assignment.slices.push_back({{request.operation, {}, 0, group.rails}, request.exchange.get()});
  operation.start(group, std::move(assignment));
}

// Returns the ranks that do not answer or cannot be reached. If there are none, the error names the
// ranks that the operation waits for.
std::vector<int> PointToPoint::missing(const RunningOperation& operation) const {
  std::vector<int> ranks = context_.missing(operation);
  if (!ranks.empty()) return ranks;
  const Exchange& exchange = *operation.request().exchange;
  if (exchange.source() >= 0) return {exchange.source()};
  return exchange.others();
}

void PointToPoint::on_operation_over(RunningOperation& operation) {
  std::erase_if(running_, [&](const auto& running) { return running.get() == &operation; });
}

}  // namespace nezha
