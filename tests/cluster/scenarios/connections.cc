// SPDX-License-Identifier: Apache-2.0
#include "cluster/scenarios/connections.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace nezha::scenarios {

size_t connections() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the descriptor of the listing itself
    const std::string target = std::filesystem::read_symlink(entry.path(), gone);
    if (target.rfind("socket:[", 0) == 0) own.insert(target.substr(8, target.size() - 9));
  }
  size_t count = 0;
  std::ifstream table("/proc/self/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    const bool established = fields.size() > 9 && fields[3] == "01";
    if (established && own.contains(fields[9])) ++count;
  }
  return count;
}

}  // namespace nezha::scenarios
