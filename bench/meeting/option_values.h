// SPDX-License-Identifier: Apache-2.0
// Makes the values of options from their texts. All functions throw BadValue.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/meeting/command_line.h"

namespace nezha::bench {

template <typename T>
T to_number(const std::string& text, T least, T most = std::numeric_limits<T>::max()) {
  T number{};
  if (absl::SimpleAtoi(text, &number) && number >= least && number <= most) return number;
  std::string wanted = absl::StrCat("a whole number of at least ", least);
  if (most != std::numeric_limits<T>::max()) absl::StrAppend(&wanted, " and at most ", most);
  throw BadValue("not " + wanted);
}

std::vector<double> to_numbers(const std::string& text, bool may_be_0);

// Returns counts such as 65536, 64K, 16m or 1Gi: K, M and G are multiples of 1024, in either case.
std::vector<size_t> to_counts(const std::string& text);

absl::Duration to_duration(const std::string& text);

// Splits names as in NEZHA_RAILS: no name begins with a digit, so tcp:eth0?cpus=0-3,8,tcp:eth1 has
// two.
std::vector<std::string> to_names(const std::string& text);

// Checks that the text is a range of ports, and returns it.
std::string to_ports(const std::string& text);

bool is_one_of(const std::string& text, const std::vector<std::string>& known);

// Checks that the text is a known name, and returns it.
std::string one_of(const std::string& text, const std::vector<std::string>& known);

}  // namespace nezha::bench
