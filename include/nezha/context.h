/// A context: a group of ranks and the rails that join them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nezha/export.h"

namespace gloo::rendezvous {
class Store;
}

namespace nezha {

/// How one operation is spread over the rails.
enum class Plan {
  /// One algorithm over channels; its segments go over all rails, by learned rates. The default.
  kStripe,
  /// An independent allreduce per rail, each on its own slice of the message (the Nezha paper,
  /// section IV). The slices are cut by `ContextOptions::shares`.
  kSlice,
};

/// What Context::create() wants to know.
struct ContextOptions {
  /// A rank or a size that the program does not give: the launcher's, of the environment
  /// (nezha/launch.h says which variables, and which come first).
  static constexpr int kFromEnvironment = -1;

  /// This process's rank, 0 <= rank < size. What is given here goes before the environment.
  int rank = kFromEnvironment;
  /// How many ranks the context has, at least 1.
  int size = kFromEnvironment;
  /// This rank's devices, as URIs: `tcp:eth0`, `tcp:eth1?rail=blue&family=6`. Two devices on two
  /// ranks are on the same rail if they have the same rail name, which is the interface's name
  /// unless `rail=` gives another. A rank may lack a rail that others have, as long as each pair
  /// that exchanges data has one in common. At least one, at most 16.
  ///
  /// {"auto"} stands for the devices that nezha finds on this host: nezha/interfaces.h says which,
  /// and the log (NEZHA_LOG=info) why. Two such devices on two ranks are on the same rail if they
  /// are on one subnet, or, where that is left over on both (routed networks, in which each host
  /// has a subnet of its own), if their interfaces have the same name. Ranks that name their rails
  /// and ranks that leave it to nezha share only those of the same name.
  std::vector<std::string> rails;
  /// The default deadline of an operation, for the whole of it, and the deadline of creation.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// Must be the same on every rank.
  Plan plan = Plan::kStripe;
  /// Plan::kSlice only: the part of each message that each rail carries, in the order of `rails`;
  /// any positive scale (`{1000, 400}`). Empty: equal parts. Must be the same on every rank.
  std::vector<double> shares;
};

/// What one rail of a context's process has carried so far.
struct RailStats {
  /// The rail's name.
  std::string name;
  /// Payload bytes written to the rail since its device was opened; resent ones count again.
  uint64_t bytes_sent = 0;
  /// Payload bytes read from it.
  uint64_t bytes_received = 0;
  /// Segments that were sent again by other rails because a link on this one had died.
  uint64_t segments_resent = 0;
  /// Links that died on this rail.
  uint64_t failures = 0;
  /// The learned rate of the rail's links, bytes per second; 0 while nothing is known.
  double rate = 0;
};

class ContextImpl;

/// A group of ranks. Thread-safe: several threads may run operations on one context at once, each
/// with its own tag. Several contexts of one process share its devices, links and connections.
class NEZHA_EXPORT Context {
 public:
  /// Joins the group. Collective: every rank of 0 .. size-1 calls it with the same store (and
  /// prefix). The store is used during this call only, and afterwards when a rank is first spoken
  /// to: it is shared and kept alive as long as the context. Connections are made on first use.
  ///
  /// Throws InvalidArgument on bad options (an unknown interface, a rank out of range, no rank
  /// given and none in the environment),
  /// TimeoutError if rank 0 does not appear within `options.timeout`, and IoError if this rank's
  /// options disagree with rank 0's.
  static std::shared_ptr<Context> create(std::shared_ptr<::gloo::rendezvous::Store> store,
                                         const ContextOptions& options);

  /// Leaves the group. Data that peers still need is handed over first, which takes as long as
  /// an acknowledgement does and one second at most.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// This process's rank, whoever gave it: 0 <= rank() < size().
  int rank() const;
  /// How many ranks there are.
  int size() const;
  /// `ContextOptions::timeout`.
  std::chrono::milliseconds timeout() const;

  /// One entry per rail of this rank, in the order of `ContextOptions::rails`. Counters belong to
  /// the process: contexts that share a device share them.
  std::vector<RailStats> rails() const;

  /// For nezha's own entry points.
  ContextImpl& impl() const { return *impl_; }

 private:
  explicit Context(std::unique_ptr<ContextImpl> impl);
  std::unique_ptr<ContextImpl> impl_;
};

}  // namespace nezha
