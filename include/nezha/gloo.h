// SPDX-License-Identifier: Apache-2.0
/// nezha beneath Gloo: a Gloo device that uses all networks, for programs that use Gloo's own
/// contexts and algorithms.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <string>
#include <vector>

#include "nezha/context.h"
#include "nezha/export.h"

namespace nezha {

/// The options of glooDevice().
struct GlooDeviceOptions {
  /// The rails, as in ContextOptions::rails. If the list is empty, the rails are those of
  /// NEZHA_RAILS or, without it, all that nezha finds. Rails of switches are left out, because
  /// Gloo's algorithms add up by themselves, and with any function.
  std::vector<std::string> rails;
};

/// Returns a device for gloo::rendezvous::Context::connectFullMesh and everything else that takes a
/// device (such as PyTorch's ProcessGroupGloo::Options::devices). All ranks of a context need a
/// device of nezha's.
///
/// Each message between two ranks goes over all rails by stripes, as one of nezha's own messages
/// does, and survives the death of any rail but the last. Everything in Gloo runs over it: new and
/// old algorithms, unbound and bound buffers, receives from any of several ranks, ContextFactory,
/// its stores and its exceptions. Any number of contexts may share the device, and several ranks
/// may live in one process. Thread-safe, as the contexts are.
///
/// As with Gloo's own device, a send on an unbound buffer is complete only once its receiver has
/// asked for it, the transfers of two ranks and a slot end in the order in which they were begun,
/// and a context cannot be used any more after a timeout. With nezha's device a context also cannot
/// be used any more on any rank once one of its ranks has died: every wait on it throws
/// gloo::IoException within a second or so.
///
/// Other differences: connectFullMesh begins to connect and does not wait, so a peer that cannot be
/// reached is an error of the first operation. A slot must be below 2^64 - 2^32. `setSync` has no
/// effect, because a thread that waits drives the connections in any case (NEZHA_POLL).
///
/// Does not throw. Errors in the rails are thrown when a context is connected: InvalidArgument,
/// which is a gloo::InvalidOperationException, for a rail that does not exist or a NEZHA_ variable
/// with a wrong name or value, and IoError, which is a gloo::IoException, if the process has no
/// descriptor, thread or memory left.
NEZHA_EXPORT std::shared_ptr<::gloo::transport::Device> glooDevice(
    const GlooDeviceOptions& options = {});

/// Returns nezha's own context of the ranks of a connected Gloo context, over the same rails and
/// connections. nezha::allreduce and everything else runs on it, beside what Gloo does. Its
/// operations match none of Gloo's. Every rank has this context without any communication between
/// them, and it lives as long as anybody holds it. It has the options of the NEZHA_ variables, and
/// the device's rails.
///
/// The two contexts share failures: if one breaks, for example by a timeout, so does the other.
/// Returns null if the Gloo context is not over a device of nezha's, has only one rank, or has
/// closed its connections. Throws gloo::EnforceNotMet if it was never connected. Thread-safe.
NEZHA_EXPORT std::shared_ptr<Context> glooContext(::gloo::Context& context);

}  // namespace nezha
