// SPDX-License-Identifier: Apache-2.0
// The endpoint of a process.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/endpoint.h"

namespace nezha {

// Returns the endpoint that all contexts of the process share, so that they share devices and
// connections. Makes one if there is none. Returns ResourceExhausted if the process has no
// descriptor or thread left for it.
absl::StatusOr<std::shared_ptr<Endpoint>> shared_endpoint();

}  // namespace nezha
