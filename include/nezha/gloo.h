// SPDX-License-Identifier: Apache-2.0
/// nezha beneath Gloo: a device that drives all networks, for programs that use Gloo's own contexts
/// and algorithms.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <string>
#include <vector>

#include "nezha/context.h"
#include "nezha/export.h"

namespace nezha {

/// What a Gloo device is made of.
struct GlooDeviceOptions {
  /// The rails, as in ContextOptions::rails. Empty: NEZHA_RAILS, or, without it, all that is found.
  /// Rails of switches are left out: Gloo's algorithms add up by themselves, and by any function.
  std::vector<std::string> rails;
};

/// Returns a device for gloo::rendezvous::Context::connectFullMesh and all else that takes one
/// (PyTorch's ProcessGroupGloo::Options::devices, say). All ranks of a context need one of nezha's.
///
/// Each message between two ranks goes over all rails by stripes, as a message of nezha's own does,
/// and survives the death of any rail but the last. Everything of Gloo's runs over it: new and old
/// algorithms, unbound and bound buffers, receives from any of several ranks, ContextFactory, its
/// stores and its exceptions. Any number of contexts may share it, and several ranks may live in
/// one process. Thread-safe, as the contexts are.
///
/// As with Gloo's own device a send on an unbound buffer is complete only once its receiver has
/// asked for it, the transfers of two ranks and a slot end in the order in which they were begun,
/// and a context is of no use any more after a timeout. Beyond that, a context is of no use any
/// more on any rank once one of its ranks has died: every wait there throws gloo::IoException
/// within a second or so. Differences: connectFullMesh begins to connect and does not wait, so that
/// a peer that cannot be reached is an error of the first operation; a slot must be below
/// 2^64 - 2^32; `setSync` does nothing, as whoever waits drives in any case (NEZHA_POLL).
///
/// Does not throw. What is wrong with the rails is thrown when a context is connected:
/// InvalidArgument, which is a gloo::InvalidOperationException, on a rail that is not there or a
/// NEZHA_ variable that makes no sense, and IoError, which is a gloo::IoException, if the process
/// has no descriptor, thread or memory left.
NEZHA_EXPORT std::shared_ptr<::gloo::transport::Device> glooDevice(
    const GlooDeviceOptions& options = {});

/// Returns nezha's own context of the ranks of a connected Gloo context, over the same rails and
/// connections: nezha::allreduce and all else runs on it, beside what Gloo does. Its operations
/// match none of Gloo's. Every rank has it, without a word between them, and it lives as long as
/// anybody holds it. It has the options of the NEZHA_ variables, and the device's rails.
///
/// The two share failure: if one breaks, as by a timeout, so does the other. Null if the Gloo
/// context is not over a device of nezha's, has one rank only, or has closed its connections.
/// Throws gloo::EnforceNotMet if it was never connected. Thread-safe.
NEZHA_EXPORT std::shared_ptr<Context> glooContext(::gloo::Context& context);

}  // namespace nezha
