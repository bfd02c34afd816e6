// SPDX-License-Identifier: Apache-2.0
#include "context/settings.h"

#include <array>
#include <charconv>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/environment.h"
#include "common/port_range.h"
#include "common/shares.h"

namespace nezha {
namespace {

const std::map<absl::string_view, Plan>& plans() {
  static const auto& plans = *new std::map<absl::string_view, Plan>{
      {"stripe", Plan::kStripe}, {"slice", Plan::kSlice}, {"auto", Plan::kAuto}};
  return plans;
}

const std::map<absl::string_view, BalancePolicy>& policies() {
  static const auto& policies =
      *new std::map<absl::string_view, BalancePolicy>{{"model", BalancePolicy::kModel},
                                                      {"paper", BalancePolicy::kPaper},
                                                      {"none", BalancePolicy::kNone},
                                                      {"shuffle", BalancePolicy::kShuffle}};
  return policies;
}

template <typename Value>
std::string name_of(const std::map<absl::string_view, Value>& names, Value value) {
  for (const auto& [name, named] : names) {
    if (named == value) return std::string(name);
  }
  return absl::StrCat(static_cast<int>(value));  // has no name, and is refused later
}

const std::map<absl::string_view, Polling>& pollings() {
  static const auto& pollings = *new std::map<absl::string_view, Polling>{
      {"latency-first", Polling::kLatencyFirst}, {"cpu-first", Polling::kCpuFirst}};
  return pollings;
}

const std::map<absl::string_view, Algorithm>& algorithms() {
  static const auto& algorithms = *new std::map<absl::string_view, Algorithm>{
      {"auto", Algorithm::kAuto},
      {"ring", Algorithm::kRing},
      {"recursive-doubling", Algorithm::kRecursiveDoubling},
      {"halving-doubling", Algorithm::kHalvingDoubling},
      {"direct", Algorithm::kDirect},
      {"bcube", Algorithm::kBcube}};
  return algorithms;
}

// Writes the shortest text that is read back without loss, because all ranks must cut a message at
// the same place.
std::string to_text(const std::vector<double>& numbers) {
  return absl::StrJoin(numbers, ",", [](std::string* out, double number) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), number);
    out->append(text.data(), end.ptr);
  });
}

absl::Status bad(absl::string_view why) { return absl::InvalidArgumentError(why); }

}  // namespace

absl::Status complete_own_options(ContextOptions& options) {
  if (options.rails.empty()) options.rails = parse_list(environment("NEZHA_RAILS"));
  if (!PortRange::parse(options.ports)) {
    return bad(absl::StrCat("ContextOptions::ports is '", options.ports, "'; it may be ",
                            PortRange::kMayBe));
  }
  if (options.ports.empty()) options.ports = environment("NEZHA_PORTS");
  if (options.table.empty()) options.table = environment("NEZHA_TABLE");
  if (!options.timeout.has_value()) {
    const auto timeout = parse_duration(environment("NEZHA_TIMEOUT"));
    if (!timeout.ok()) return timeout.status();
    options.timeout = *timeout;
  }
  if (!options.polling.has_value()) options.polling = pollings().at(environment("NEZHA_POLLING"));
  if (options.timeout->count() > 0) return absl::OkStatus();
  return bad(absl::StrCat("the timeout is ", options.timeout->count(), " ms; give a positive one"));
}

std::string describe(const ContextOptions& options, Algorithm algorithm) {
  const absl::Duration timeout = absl::FromChrono(*options.timeout);
  return absl::StrCat(
      "plan ", name_of(plans(), *options.plan), ", ",
      options.shares.empty() ? "" : absl::StrCat("shares ", to_text(options.shares), ", "),
      "policy ", name_of(policies(), *options.policy), ", algorithm ",
      name_of(algorithms(), algorithm), ", timeout ", absl::FormatDuration(timeout));
}

AgreedSettings::AgreedSettings(const ContextOptions& options) {
  const auto from_environment = [](absl::string_view variable) -> Setting {
    const std::string value = environment_value(variable);
    return {std::string(variable), value, value.empty() ? "" : std::string(variable)};
  };
  plan_ = from_environment("NEZHA_PLAN");
  shares_ = from_environment("NEZHA_SHARES");
  if (const auto shares = parse_numbers(shares_.value); shares.ok()) {
    shares_.value = to_text(*shares);  // without blanks, in the form that other ranks compare
  }
  algorithm_ = from_environment("NEZHA_ALGORITHM");
  policy_ = from_environment("NEZHA_POLICY");
  if (options.plan.has_value()) {
    plan_.value = name_of(plans(), *options.plan);
    plan_.source = "ContextOptions::plan";
  }
  if (options.policy.has_value()) {
    policy_.value = name_of(policies(), *options.policy);
    policy_.source = "ContextOptions::policy";
  }
  if (!options.shares.empty()) {
    shares_.value = to_text(options.shares);
    shares_.source = "ContextOptions::shares";
  }
}

void AgreedSettings::complete(size_t rails) {
  if (!shares_.value.empty()) {
    if (plan_.value.empty()) plan_.value = "slice";
    if (policy_.value.empty()) policy_.value = "none";
  }
  for (Setting* setting : {&plan_, &policy_, &algorithm_}) {
    if (setting->value.empty()) setting->value = environment(setting->variable);
  }
  if (shares_.value.empty() && plan_.value == "slice") {
    shares_.value = to_text(std::vector<double>(rails, 1));
  }
}

std::string AgreedSettings::encode() const {
  return absl::StrCat("plan=", plan_.value, " shares=", shares_.value, " policy=", policy_.value,
                      " algorithm=", algorithm_.value);
}

absl::Status AgreedSettings::adopt(absl::string_view rank0, int rank) {
  std::map<absl::string_view, absl::string_view> theirs;
  for (const absl::string_view word : absl::StrSplit(rank0, ' ', absl::SkipEmpty())) {
    theirs.insert(absl::StrSplit(word, absl::MaxSplits('=', 1)));
  }
  const auto take = [&](absl::string_view key, Setting& setting) {
    const auto entry = theirs.find(key);
    if (entry == theirs.end()) {
      return bad(absl::StrCat("rank 0's settings, '", rank0.substr(0, 80), "', have no ", key));
    }
    const std::string value(entry->second);
    if (!value.empty()) {
      if (absl::Status status = check_value(setting.variable, value); !status.ok()) {
        return bad(absl::StrCat("at rank 0 ", status.message()));
      }
    }
    if (!setting.source.empty() && setting.value != value) {
      return absl::FailedPreconditionError(
          absl::StrCat("the ranks' settings differ: ", setting.source, " is '", setting.value,
                       "' at rank ", rank, " and '", value, "' at rank 0"));
    }
    setting.value = value;
    return absl::OkStatus();
  };
  absl::Status status = take("plan", plan_);
  status.Update(take("shares", shares_));
  status.Update(take("policy", policy_));
  status.Update(take("algorithm", algorithm_));
  return status;
}

absl::Status AgreedSettings::apply(ContextOptions& options, Algorithm& algorithm) const {
  const auto plan = plans().find(plan_.value);
  const auto policy = policies().find(policy_.value);
  const auto named = algorithms().find(algorithm_.value);
  if (plan == plans().end() || policy == policies().end() || named == algorithms().end()) {
    return bad(absl::StrCat("the settings '", encode(), "' make no sense"));
  }
  options.plan = plan->second;
  options.policy = policy->second;
  algorithm = named->second;
  const std::string given = shares_.source.empty() ? "rank 0's shares" : shares_.source;
  if (plan->second != Plan::kSlice) {
    if (shares_.value.empty()) return absl::OkStatus();
    return bad(shares_without_slices(given, plan_.value));
  }
  if (!shares_.source.empty() && !policy_.source.empty() &&
      policy->second != BalancePolicy::kNone) {
    return bad(absl::StrCat(given, " say what each rail carries, and ", policy_.source,
                            " that it is to be learned (", policy_.value, "); give one of them"));
  }
  const auto shares = parse_numbers(shares_.value);
  if (!shares.ok()) {
    return bad(absl::StrCat(given, " '", shares_.value,
                            "' make no sense: give a number from 0 to below 1e12 for each rail, "
                            "at least one of them positive"));
  }
  if (shares->size() != options.rails.size()) {
    return bad(shares_do_not_fit(given, shares->size(), options.rails.size()));
  }
  options.shares = *shares;
  return absl::OkStatus();
}

}  // namespace nezha
