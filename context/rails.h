// The registry of rail kinds, and the URIs that name devices.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transport/endpoint.h"

namespace nezha {

// kind:interface?key=value&key=value, such as tcp:eth1?rail=blue&family=6.
struct RailUri {
  std::string kind;
  std::string interface;
  std::map<std::string, std::string> options;

  static absl::StatusOr<RailUri> parse(absl::string_view text);
};

// What opens the device that the URI `text` names. Unknown kinds and options are errors that name
// the known ones.
absl::StatusOr<Endpoint::DeviceFactory> device_factory(absl::string_view text);

}  // namespace nezha
