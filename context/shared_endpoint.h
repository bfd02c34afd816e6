// The endpoint of a process.
#pragma once

#include <memory>

#include "transport/endpoint.h"

namespace nezha {

// All contexts of the process share one, so that they share devices and connections: made when none
// has it. Throws IoError if it cannot be made.
std::shared_ptr<Endpoint> shared_endpoint();

}  // namespace nezha
