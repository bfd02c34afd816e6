// SPDX-License-Identifier: Apache-2.0
// How a process says goodbye to its peers when it ends, and how an endpoint ends while the process
// goes on.
#pragma once

#include <memory>

#include "transport/endpoint.h"

namespace nezha {

// If the endpoint still exists when the process calls exit or returns from main, the process says
// goodbye to its peers: it leaves all contexts that it did not destroy. Thread-safe.
void say_goodbye_at_exit(const std::shared_ptr<Endpoint>& endpoint);

// Releases the endpoint in a thread, because the destructor waits until peers have acknowledged
// what they need. If there is no memory or no thread for that, this call releases it and waits
// itself. A process that exits waits for such threads, for a limited time. Thread-safe.
void end_in_background(std::shared_ptr<Endpoint> endpoint) noexcept;

}  // namespace nezha
