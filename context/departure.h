// SPDX-License-Identifier: Apache-2.0
// How a process parts from its peers when it ends, and how an endpoint ends while the process goes
// on.
#pragma once

#include <memory>

#include "transport/endpoint.h"

namespace nezha {

// A process that calls exit, or returns from main, while the endpoint is still there says goodbye
// to its peers: it has left all contexts that it did not destroy. Thread-safe.
void say_goodbye_at_exit(const std::shared_ptr<Endpoint>& endpoint);

// Destroys the endpoint, unless others have it too, by a thread: that takes as long as peers take
// to acknowledge what they need. Without memory or a thread it ends here and now. A process that
// exits waits for it, for a while. Thread-safe.
void end_in_background(std::shared_ptr<Endpoint> endpoint) noexcept;

}  // namespace nezha
