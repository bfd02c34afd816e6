// SPDX-License-Identifier: Apache-2.0
#include "bench/programs/list_rails.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nezha/interfaces.h"

namespace nezha::bench {
namespace {

using Row = std::array<std::string, 9>;

std::string number_or_dash(int number, int least) {
  return number < least ? "-" : std::to_string(number);
}

std::string text_or_dash(const std::string& text) { return text.empty() ? "-" : text; }

Row row_of(const NetworkInterface& interface) {
  return {interface.name,
          text_or_dash(interface.kind),
          text_or_dash(absl::StrJoin(interface.addresses, ",")),
          number_or_dash(interface.speed, 1),
          std::to_string(interface.mtu),
          text_or_dash(interface.pci),
          number_or_dash(interface.numa_node, 0),
          text_or_dash(interface.uri),
          (interface.uri.empty() ? "left out: " : "taken: ") + interface.reason};
}

Row row_of(const RailDevice& device) {
  return {device.name,
          device.kind,
          text_or_dash(device.address),
          number_or_dash(device.speed, 1),
          number_or_dash(device.mtu, 1),
          text_or_dash(device.pci),
          number_or_dash(device.numa_node, 0),
          text_or_dash(device.uri),
          (device.uri.empty() ? "cannot be used: " : "not taken by auto; by its name it ") +
              device.reason};
}

}  // namespace

void list_rails() {
  std::vector<Row> rows{
      {"interface", "kind", "addresses", "Mbit/s", "MTU", "PCI", "NUMA", "rail", "why"}};
  for (const NetworkInterface& interface : networkInterfaces()) rows.push_back(row_of(interface));
  for (const RailDevice& device : railDevices()) rows.push_back(row_of(device));
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      absl::StrAppend(&line, row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    }
    std::printf("%s%s\n", line.c_str(), row.back().c_str());
  }
}

}  // namespace nezha::bench
