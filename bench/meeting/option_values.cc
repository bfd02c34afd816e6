// SPDX-License-Identifier: Apache-2.0
#include "bench/meeting/option_values.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/port_range.h"

namespace nezha::bench {
namespace {

size_t to_count(absl::string_view text) {
  constexpr size_t kMost = size_t{1} << 40;
  absl::string_view digits = text;
  const bool has_i = absl::ConsumeSuffix(&digits, "i");
  const auto letter = digits.empty() ? '\0' : absl::ascii_toupper(digits.back());
  size_t unit = 1;
  if (letter == 'K') unit = size_t{1} << 10;
  if (letter == 'M') unit = size_t{1} << 20;
  if (letter == 'G') unit = size_t{1} << 30;
  if (unit > 1) digits.remove_suffix(1);
  size_t number = 0;
  const bool has_unit = unit > 1 || !has_i;
  if (has_unit && absl::SimpleAtoi(digits, &number) && number > 0 && number <= kMost / unit) {
    return number * unit;
  }
  throw BadValue(absl::StrCat("'", text,
                              "' is not a whole number from 1 to 1024G, plain or with K, M or G (or"
                              " k, Ki and so on)"));
}

}  // namespace

std::vector<double> to_numbers(const std::string& text, bool may_be_0) {
  std::vector<double> numbers;
  for (const auto part : absl::StrSplit(text, ',')) {
    double number = 0;
    const bool is_number = absl::SimpleAtod(part, &number) && std::isfinite(number);
    if (!is_number || number < 0 || (number == 0 && !may_be_0)) {
      throw BadValue(absl::StrCat("'", part, "' is not a ",
                                  may_be_0 ? "number of 0 or more" : "positive number"));
    }
    numbers.push_back(std::abs(number));
  }
  return numbers;
}

std::vector<size_t> to_counts(const std::string& text) {
  std::vector<size_t> counts;
  for (const auto part : absl::StrSplit(text, ',')) counts.push_back(to_count(part));
  return counts;
}

absl::Duration to_duration(const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) throw BadValue("not a duration, such as 500ms or 2s");
  if (duration <= absl::ZeroDuration()) throw BadValue("a duration must be positive");
  if (duration > absl::Hours(24)) throw BadValue("a duration is at most a day, 24h");
  return duration;
}

std::vector<std::string> to_names(const std::string& text) {
  std::vector<std::string> names;
  for (const auto part : absl::StrSplit(text, ',')) {
    if (!names.empty() && !part.empty() && absl::ascii_isdigit(part.front())) {
      absl::StrAppend(&names.back(), ",", part);
    } else {
      names.emplace_back(part);
    }
  }
  if (is_one_of("", names)) throw BadValue("an empty name");
  return names;
}

std::string to_ports(const std::string& text) {
  if (text.empty() || !PortRange::parse(text)) {
    throw BadValue(std::string("not ") + PortRange::kMayBe);
  }
  return text;
}

bool is_one_of(const std::string& text, const std::vector<std::string>& known) {
  return std::find(known.begin(), known.end(), text) != known.end();
}

std::string one_of(const std::string& text, const std::vector<std::string>& known) {
  if (is_one_of(text, known)) return text;
  throw BadValue("unknown" + suggestion(text, known, "'", "'") + " (there are " +
                 absl::StrJoin(known, ", ") + ")");
}

}  // namespace nezha::bench
