// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/options.h"

#include <cstdio>

#include "absl/strings/str_join.h"
#include "bench/measurement/element_type.h"
#include "bench/measurement/help.h"
#include "bench/measurement/option_checks.h"
#include "bench/measurement/option_defaults.h"
#include "bench/measurement/option_table.h"
#include "bench/meeting/option_values.h"
#include "nezha/version.h"

namespace nezha::bench {
namespace {

std::string the_collective(const std::vector<std::string>& words, const Dialect& dialect) {
  const auto& known = dialect.collectives;
  const std::string there_are = " (there are " + absl::StrJoin(known, ", ") + ")";
  if (words.empty()) throw UsageError("which collective?" + there_are);
  if (words.size() > 1) throw UsageError("one collective at a time, not also '" + words[1] + "'");
  if (!is_one_of(words[0], known)) {
    throw UsageError("unknown collective '" + words[0] + "'" +
                     suggestion(words[0], known, "'", "'") + there_are);
  }
  return words[0];
}

// Takes the file of `replay FILE` from the words, and leaves the collective that it replays.
void take_replay(std::vector<std::string>& words, const Dialect& dialect, Options& o) {
  if (!dialect.replays || words.empty() || words[0] != "replay") return;
  if (words.size() < 2) throw UsageError("replay: which FILE?");
  if (words.size() > 2) throw UsageError("replay: one FILE at a time, not also '" + words[2] + "'");
  o.replay = words[1];
  words = {"allreduce"};
}

// Prints what the user asks for. Returns false if that is a measurement.
bool has_answered(const Asked& asked, const OptionTable& table, const Dialect& dialect) {
  if (asked.help) {
    print_help(table, dialect);
  } else if (asked.environment) {
    std::fputs(dialect.environment_help.c_str(), stdout);
  } else if (asked.version) {
    std::printf("%s %s\n", dialect.program.c_str(), NEZHA_VERSION);
  } else if (asked.rails) {
    dialect.list_rails();
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, const Dialect& dialect) {
  Options options;
  Asked asked;
  const OptionTable table = make_table(options, asked, dialect);
  std::vector<std::string> words = apply(table, argc, argv);
  if (has_answered(asked, table, dialect)) return std::nullopt;
  take_replay(words, dialect, options);
  options.collective = the_collective(words, dialect);
  check_for_collective(options, dialect);
  take_defaults(table, dialect, options);
  check_together(options, dialect);
  if (!options.replay.empty()) {
    options.steps = read_training_trace(options.replay, sizeOf(to_type(options.type)));
  }
  make_shared_path(options);
  return options;
}

}  // namespace nezha::bench
