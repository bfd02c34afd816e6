// SPDX-License-Identifier: Apache-2.0
#include "common/launch.h"

#include <string>
#include <utility>

#include "nezha/errors.h"

namespace nezha {

LaunchEnvironment launchEnvironment() {
  auto found = read_launch_environment();
  if (!found.ok()) throw InvalidArgument("nezha: " + std::string(found.status().message()));
  return *std::move(found);
}

}  // namespace nezha
