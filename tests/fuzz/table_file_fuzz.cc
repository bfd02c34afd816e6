// SPDX-License-Identifier: Apache-2.0
// Arbitrary text as a saved data length table: an accepted table is written as it was read, and a
// run that starts from it, with either policy, sends what ranks accept.
#include <cstdlib>
#include <memory>

#include "control/control_message.h"
#include "control/load_balancer.h"
#include "control/model_policy.h"
#include "control/paper_policy.h"
#include "control/table_file.h"

namespace nezha {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void go_on(const DataLengthTable& table, std::unique_ptr<Policy> policy) {
  const int lanes = policy->lanes();
  LoadBalancer balancer(table.lanes, std::move(policy));
  const auto resumed = balancer.resume(table);
  if (!resumed.ok()) return;
  const auto accepted = [&](std::vector<AllocationChange> changes) {
    const control_message::Message commit = control_message::Commit{1, 0, std::move(changes), {}};
    return control_message::decode(control_message::encode(commit), lanes).ok();
  };
  require(accepted(*resumed));
  for (const AllocationChange& change : *resumed) {
    Window window{change.size_class, typical_bytes(change.size_class), change.number, {}, 10};
    for (const uint32_t part : change.allocation) {
      window.lanes.push_back({part == 0 ? 0 : kMillisecond, kMicrosecond});
    }
    const auto next = balancer.on_window(window);
    if (next) require(accepted({*next}));
  }
  require(parse_table(format_table(balancer.learned()), "saved again").ok());
}

}  // namespace
}  // namespace nezha

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nezha;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = parse_table(text, "input");
  if (!table.ok()) return 0;
  require(format_table(*table) == text);
  const auto lanes = static_cast<int>(table->lanes.size());
  go_on(*table, std::make_unique<ModelPolicy>(lanes));
  go_on(*table, std::make_unique<PaperPolicy>(lanes));
  return 0;
}
