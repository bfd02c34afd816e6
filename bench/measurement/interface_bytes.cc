// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/interface_bytes.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace nezha::bench {
namespace {

double bytes_sent(const std::string& name) {
  std::ifstream table("/proc/net/dev");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word != name + ":") continue;
    double number = 0;
    for (int column = 0; column < 9; ++column) words >> number;  // eight about receiving
    return number;
  }
  throw std::runtime_error("there is no interface '" + name + "'");
}

}  // namespace

std::vector<RailBytes> interface_bytes_sent(const std::vector<std::string>& interfaces) {
  std::vector<RailBytes> all;
  all.reserve(interfaces.size());
  for (const auto& name : interfaces) all.push_back({name, bytes_sent(name)});
  return all;
}

}  // namespace nezha::bench
