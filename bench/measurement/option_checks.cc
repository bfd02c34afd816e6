// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/option_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/measurement/shape.h"
#include "bench/measurement/shares.h"
#include "bench/meeting/option_values.h"
#include "common/shares.h"

namespace nezha::bench {
namespace {

void check_replay(const Options& o) {
  const auto refuse = [](bool is_given, const std::string& option) {
    if (is_given) throw UsageError("--" + option + " is not for replay");
  };
  refuse(!o.elements.empty(), "elements");
  refuse(o.barrier, "barrier");
  refuse(o.start_up, "start-up");
  refuse(o.threads > 1, "threads");
  refuse(!o.trace.empty(), "trace");
  if (o.format == Format::kCsv) throw UsageError("replay is for --format table and json");
}

}  // namespace

void check_for_collective(const Options& o, const Dialect& dialect) {
  if (!o.replay.empty()) check_replay(o);
  const CollectiveKind& kind = kind_of(o.collective);
  const bool has_algorithms = o.collective == "allreduce" || kind.has_blocks();
  if (!has_algorithms && !o.algorithm.empty() && o.algorithm != dialect.algorithms.front()) {
    throw UsageError("--algorithm is not for " + o.collective);
  }
  if (o.reproducible && (!kind.reduces || kind.is_rooted)) {
    throw UsageError("--reproducible is not for " + o.collective);
  }
  if (!kind.reduces && !o.operation.empty()) {
    throw UsageError("--operation is not for " + o.collective + ", which combines nothing");
  }
  if (kind.is_shift && o.in_place) {
    throw UsageError("--in-place is not for " + o.collective +
                     ", which sends what it has while it receives");
  }
  const bool is_barrier = o.collective == "barrier";
  if (is_barrier && !o.elements.empty()) throw UsageError("a barrier has no --elements");
  if (is_barrier && !o.type.empty()) {
    throw UsageError("a barrier has no elements of any --type");
  }
  if (o.collective != "allreduce" && o.start_up) {
    throw UsageError("--start-up is for allreduce only");
  }
}

void check_together(const Options& o, const Dialect& dialect) {
  check_rendezvous(o);
  if (o.rails.empty() && dialect.list_rails == nullptr) {
    throw UsageError("--" + dialect.rails_option + " is needed");
  }
  if (!o.shares.empty() && !o.plan.empty() && o.plan != "slice") {
    throw UsageError(shares_without_slices("--share", o.plan));
  }
  if (!o.shares.empty() && !fit(o.shares, o.rails)) {
    throw UsageError(shares_do_not_fit("--share", o.shares.size(), slices_of(o.rails)));
  }
  const size_t rates = o.line_rates.size();
  if (rates > 1 && rates != o.rails.size() && !has_auto(o.rails)) {
    throw UsageError(absl::StrCat("--line-rate: ", rates, " numbers for ", o.rails.size(),
                                  o.rails.size() == 1 ? " rail" : " rails",
                                  "; give one for all rails together, or one for each of them"));
  }
  const auto& reproducible = dialect.reproducible_algorithms;
  if (o.reproducible && !o.algorithm.empty() && !is_one_of(o.algorithm, reproducible)) {
    throw UsageError("--reproducible is not for --algorithm " + o.algorithm + ", but for " +
                     absl::StrJoin(reproducible, ", "));
  }
  if (o.rails_report && o.format == Format::kCsv) {
    throw UsageError("--rails-report is for --format table and json");
  }
}

}  // namespace nezha::bench
