// SPDX-License-Identifier: Apache-2.0
/// A context: a group of ranks and the rails that join them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nezha/export.h"

namespace gloo::rendezvous {
class Store;
}

namespace nezha {

/// How one operation is spread over the rails.
enum class Plan {
  /// One algorithm over channels; its segments go over all rails, by learned rates. In allreduces
  /// of 4 KiB to below 64 KiB messages of up to 16 KiB are not cut, but take the rails by turns, of
  /// those that are about two thirds as fast as the fastest, or more. Shorter allreduces go by the
  /// fastest.
  kStripe,
  /// An independent allreduce per rail, each on its own slice of the message (the Nezha paper,
  /// section IV). The slices are cut by `ContextOptions::shares`, or, if those are not given, as
  /// the load balancer learns to: equal parts at first.
  kSlice,
  /// Each allreduce of 4 KiB to 8 MiB as what is best for messages of its size: stripes, slices,
  /// or one rail alone. The load balancer tries them while the program runs. Others as stripes:
  /// shorter ones end before a second rail could help, longer ones adapt while they run (but beside
  /// a switch's rail they are planned, too); and so go those that run beside others from the first
  /// on, of which nothing is learned. The default.
  kAuto,
};

/// How the load balancer divides the allreduces of a size class (sizes from one power of two to the
/// next) among rails, from how long earlier ones took. Rank 0 decides, and all ranks change at the
/// same operation.
enum class BalancePolicy {
  /// Each rail's start-up time and time per byte are learned for each set of rails, and those that
  /// finish a message first finish it together. Looks at what it does not use for at most 1% of the
  /// time, in the long run. For 4 to 128 KiB it tries two algorithms (Algorithm::kAuto), and whole
  /// messages by turns of the rails up to 64 KiB. The default.
  kModel,
  /// The Nezha paper's (section IV-C): one rail below a threshold that it searches for (cold
  /// start), above it equal parts, then parts by measured times, then steps of 1% (hot start).
  /// It knows slices only: Plan::kAuto is Plan::kSlice with it, once it is under way.
  kPaper,
  /// Nothing is learned: Plan::kAuto is Plan::kStripe, Plan::kSlice has the given or equal parts.
  kNone,
  /// For tests: other parts every few operations, at random.
  kShuffle,
};

/// What a caller that waits for an operation does while there is nothing to do for it. Either is
/// right with any number of cores; ranks may differ.
enum class Polling {
  /// It polls for NEZHA_POLL microseconds before it sleeps, and begins anew whenever something
  /// comes: to be woken takes longer than a small message does. It sleeps while so much of a large
  /// operation is still to come that none of it is urgent. The default.
  kLatencyFirst,
  /// It does so in operations of up to 16 KiB (and barriers) alone. In larger ones it sleeps at
  /// once, and in a long ring leaves what comes alone for twice as long: other threads and
  /// processes get the CPU time.
  kCpuFirst,
};

/// What Context::create() wants to know.
///
/// What is given here goes before the environment (nezha/environment.h); what neither gives has the
/// default that is told there. `plan`, `shares` and `policy`, and the environment's
/// NEZHA_ALGORITHM, are the same on all ranks: a rank that is given none of its own takes rank 0's,
/// and a rank that is given another one fails to join. Its error names the variable or option, both
/// values and both ranks, and so do the errors of the other ranks, at their first operation with it
/// or sooner.
struct ContextOptions {
  /// A rank or a size that the program does not give: the launcher's, of the environment
  /// (nezha/launch.h says which variables, and which come first).
  static constexpr int kFromEnvironment = -1;

  /// This process's rank, 0 <= rank < size.
  int rank = kFromEnvironment;
  /// How many ranks the context has, at least 1.
  int size = kFromEnvironment;
  /// This rank's devices, as URIs: `tcp:eth0`, `tcp:eth1?rail=blue&family=6`. Two devices on two
  /// ranks are on the same rail if they have the same rail name, which is the interface's name
  /// unless `rail=` gives another. A rank may lack a rail that others have, as long as each pair
  /// that exchanges data has one in common. At most 16. Empty: not given (NEZHA_RAILS, or
  /// {"auto"}).
  ///
  /// Of several addresses of an interface one is taken that can be used: IPv4 before IPv6 before
  /// link-local IPv6 (`family=` names the family), and of these one that stays before one that
  /// expires or is deprecated. `tcp:eth0?address=10.0.0.5` names one (`address=fd00::5`, without
  /// brackets); InvalidArgument says which the interface has if it is none of them. IPv6 addresses
  /// that the kernel is still checking for duplicates are waited for, for five seconds at most.
  /// While the context lives, a rail follows its interface. If that is made anew (a driver that is
  /// reloaded), it listens again at the same address and port. If its address is taken away and
  /// another one of the family is there, the rail moves to that, unless `address=` names one; it
  /// moves back when the first one is there again. Ranks know each other's first addresses. So a
  /// rank that has moved connects to the others, but two ranks that have both moved have no link on
  /// that rail until one of them is back. Without any such address the rail is down.
  ///
  /// `streams=2` makes two connections to each peer (1 to 8), where one cannot fill the network. If
  /// it is not given there are as many as the NIC's rate wants and there are cores for.
  /// Each is a rail of its own in all that is told and configured of rails: `eth0`, `eth0+2`.
  ///
  /// `cpus=` names a rail's cores, such as `tcp:eth0?cpus=0-3,8`: a thread of the rail's own runs
  /// on these and no others (the Nezha paper's interface for CPU resources, section V-C3). They may
  /// be ones that the calling thread itself may not use, but InvalidArgument is thrown if one does
  /// not exist or is kept from the process; it names those that are not. Other rails have a thread
  /// where there are cores for one, or as NEZHA_RAIL_THREADS says, for messages of 256 KiB and
  /// more. The threads live as long as the process has any context.
  ///
  /// `rdma:mlx5_0` is a port of an RDMA device (`rdma:mlx5_0:2`: its second one), and `rdma:auto`
  /// stands for each that is active. `?gid=3`: the index of the port's address, where that of the
  /// port's network interface is not wanted. `?via=eth0`: the interface over which connections are
  /// made, where the port has none. `?address=` and `?rail=`: as for tcp. docs/rdma.md has more.
  ///
  /// One rail more may be `flare:eth0@10.0.0.6:7000`: an aggregation switch adds up what the ranks
  /// send through the interface; a nezha-manager at that address says which. NEZHA_FLARE_SECRET
  /// names the file with its secret. All ranks must have such a rail, or none. Named alone it
  /// carries all allreduces that a switch can do, and `tcp:eth0` whatever else there is; beside
  /// others, what the load balancer gives it, which takes the plan auto or slice, and no shares. A
  /// switch finishes nothing before all ranks have sent their part of it: any collective, a
  /// broadcast's root too, may return only when all have called it. Sums of floating-point numbers
  /// depend on the order in which the parts arrive, so their bits may differ from run to run;
  /// operations that are to be reproducible (AllreduceOptions::setReproducible) are the hosts'.
  /// `?reproducible=1`: switches add up in one order whichever part comes first, so that what they
  /// carry has the same bits in each run over the same switches, for more of their memory and time.
  /// `?address=10.0.0.5`: as for tcp. `?rail=blue`: the name of the rail on which the ranks reach
  /// each other by that interface where no other rail is named, for hosts whose interfaces are
  /// called differently; the switch's own is flare.
  /// `?window=512`: the most blocks that each operation may have on their way, of which the manager
  /// may give fewer; how many have follows the path. `?streams=4`: the operations that it carries
  /// at a time.
  /// `?stagger=32`: ranks begin with other blocks than each other in groups of so many, a power of
  /// two up to 64 (Flare's staggered sending); it helps no switch that does all of a block on one
  /// core, as nezha-switch does, and costs the ranks some CPU time. But for address, window and
  /// stagger all ranks must name the same.
  ///
  /// {"auto"} stands for the devices that nezha finds on this host: nezha/interfaces.h says which,
  /// and the log (NEZHA_LOG=info) why. {"auto", "!eth0", "!ib*"} leaves out the interfaces whose
  /// names match these patterns (fnmatch(3)). Two such devices on two ranks are on the same rail if
  /// they are on one subnet, or, where that is left over on both (routed networks, in which each
  /// host has a subnet of its own), if their interfaces have the same name. Ranks that name their
  /// rails and ranks that leave it to nezha share only those of the same name.
  std::vector<std::string> rails;
  /// The ports at which this rank is reached, such as "20000-20100", for firewalls: each tcp rail
  /// listens at the first one that is free at its address (TCP), and a flare rail receives at one
  /// of these ports (UDP). Each process on a host needs one. IoError if none is free.
  /// A connection is made to such a port of either rank, from one that the kernel chooses
  /// (net.ipv4.ip_local_port_range). Devices that the process has open already stay where they are.
  /// Each rank may have its own. Empty: not given (NEZHA_PORTS, or any port).
  std::string ports;
  /// The default deadline of an operation, for the whole of it, and the deadline of creation: more
  /// than 0, and a year if it is longer. Not given: NEZHA_TIMEOUT, or 30 s. Each rank may have its
  /// own.
  std::optional<std::chrono::milliseconds> timeout;
  /// Not given: NEZHA_PLAN; else Plan::kSlice if rank 0 is given shares, and Plan::kAuto otherwise.
  std::optional<Plan> plan;
  /// Plan::kSlice only: the part of each message that each rail carries, in the order of `rails`,
  /// of which a flare rail has none; any positive scale below 1e12 (`{1000, 400}`). A rail with 0
  /// is a spare: it carries messages when those with more have failed. At least one is positive.
  /// Empty: not given (NEZHA_SHARES, or equal parts).
  std::vector<double> shares;
  /// Not given: NEZHA_POLICY; else BalancePolicy::kNone if rank 0 is given shares, which stay then,
  /// and BalancePolicy::kModel otherwise. Shares beside another one than kNone are
  /// InvalidArgument. Plan::kStripe leaves it nothing to decide. It decides
  /// about two to eight rails that all ranks have; with kModel, and four ranks or more, about
  /// algorithms too, of up to 256 ranks that have one rail as well.
  std::optional<BalancePolicy> policy;
  /// Not given: NEZHA_POLLING, or Polling::kLatencyFirst. Each rank may have its own.
  std::optional<Polling> polling;
  /// Rank 0 only, elsewhere without effect: the file of the data length table. What an earlier run
  /// left there is where this one starts, if the rails and the plan are the same (else it is left
  /// alone, with a warning); the table is written to it when the context is destroyed. A file that
  /// is there and is no such table is InvalidArgument, and so is a new one's folder that is not
  /// there or may not be written to. Empty: not given (NEZHA_TABLE, or none).
  std::string table;
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
  /// Links to other ranks that died on this rail.
  uint64_t failures = 0;
  /// Links that were made again after one to the same rank had died.
  uint64_t reconnections = 0;
  /// To which rank, and why, the last link died; empty: none has.
  std::string last_failure;
  /// The learned rate of the rail's links, bytes per second; 0 while nothing is known.
  double rate = 0;
  /// The ranks that have the rail and that this process exchanges messages with, but has no link to
  /// on it now: the link has died, or there has been none for two seconds since it was first
  /// wanted. Their messages go by the other rails. Ranks that have left are not counted.
  uint64_t down_peers = 0;
  /// For how many seconds the one of them that has been without a link for longest has been so.
  double down_seconds = 0;
  /// Which rank that one is, and what went wrong last, such as "rank 1 of 4 (node1, pid 77):
  /// connecting to 10.0.0.2:4711: Connection refused". Empty if `down_peers` is 0.
  std::string last_error;
  /// The ranks to which the rail has a link that loses many packets: some 3% of those that this
  /// process sends. Such a link carries nothing but small test messages, unless no other rail leads
  /// to the same rank without such losses.
  uint64_t lossy_peers = 0;
};

/// How the messages of one size class are divided, and what is known of it.
struct SizeClassStats {
  /// The class: messages of `least_bytes` to less than twice as many.
  uint64_t least_bytes = 0;
  /// One entry per lane of BalanceStats: its part of a message, 0 to 1; they add up to 1.
  std::vector<double> shares;
  /// By which algorithm the hosts sum them, such as "halving-doubling", if it is not the one that
  /// Algorithm::kAuto has by size and rank count: it was faster, or is being tried. Else empty.
  std::string algorithm;
  /// How often shares or algorithm have changed, counted from 1.
  uint32_t number = 0;

  // Known at rank 0 only, empty or 0 elsewhere:

  /// "searching" (which lanes are to carry it), "cold" (all on one lane), "hot" (several lanes; how
  /// much each is to carry is being found) or "converged" (several, which finish together).
  std::string state;
  /// The shares are only being looked at, for a few operations: it goes back to what the state is
  /// of unless these turn out to be better.
  bool is_trying = false;
  /// What each lane took in the last window that was no probe's, in microseconds; 0 for one that
  /// took no part.
  std::vector<double> lane_us;
  /// Windows so far; one is up to ten operations.
  uint64_t windows = 0;
  /// Of how many bytes that window's messages were, in the mean.
  uint64_t bytes = 0;
  /// How it came to be so, for people: a line for each of the latest changes, such as "2026-03-01
  /// 12:00:00.250, after 5 windows: eth0 71.4%, eth1 28.6%: rebalance", in local time. The reasons:
  /// "start" (the first division), "search" (compares sets of lanes), "rebalance" (lets the lanes
  /// finish together), "drift" (the lanes take longer or shorter than they used to), "probe" (looks
  /// at what is not in use), "return" (a probe or a move was not worth it), "lanes" (a rail was
  /// lost or came back) and "way" (another algorithm, or whole messages by turns, was faster).
  std::string history;
};

/// What the load balancer does (the data length table of the Nezha paper, section IV-B).
struct BalanceStats {
  /// What carries parts of a message: rails by name, and "stripes", the whole message over all
  /// rails. Empty until the balancer is under way, which takes an allreduce of 4 KiB (to 128 KiB,
  /// with one rail).
  std::vector<std::string> lanes;
  /// The size classes that have occurred, the smallest first.
  std::vector<SizeClassStats> classes;
};

class ContextImpl;

/// A group of ranks. Thread-safe: several threads may run operations on one context at once, each
/// with its own tag. Several contexts of one process share its devices, links and connections.
///
/// A child of fork() has no part in its parent's contexts and handles, whose operations go on in
/// the parent: it may destroy them, which does nothing, and ask for `rank`, `size` and `timeout`.
/// All else throws InvalidArgument. It may make contexts of its own. (Children that are made by
/// clone() without fork()'s handlers must not use them at all.)
class NEZHA_EXPORT Context {
 public:
  /// Joins the group. Collective: every rank of 0 .. size-1 calls it with the same store (and
  /// prefix). Connections are made on first use.
  ///
  /// The store is used during this call, and afterwards when a rank is first spoken to; the context
  /// shares it, and keeps it alive. Each context needs keys of its own in it ("rank0" and so on,
  /// and "refusal"): give each another prefix (gloo::rendezvous::PrefixStore). A context calls its
  /// store from any thread that uses the context and from one of its own, but one call at a time.
  /// So a store that several contexts, or a context and the program, use at the same time must be
  /// thread-safe: RedisStore and Gloo's HashStore are, its FileStore is not, so give each context
  /// another one of the same directory. A store of your own must heed the timeout of `wait`. Gloo's
  /// FileStore counts whole seconds: with it this call and the destructor may end up to two seconds
  /// late, and so may the half second below.
  ///
  /// A rank that fails in this call leaves the reason in the store, unless it is a timeout: ranks
  /// that are waiting for another one in the store find it within half a second, and fail with it.
  /// For them to find it the store is kept alive after such an error, with up to 7 others (not what
  /// a PrefixStore refers to: that must outlive the context, and the other ranks' waiting). So a
  /// call that fails, whatever for, uses up its keys: the next one takes another prefix on every
  /// rank.
  ///
  /// Throws InvalidArgument on bad options (no store, an unknown interface, a rank out of range, no
  /// rank given and none in the environment, a timeout of 0 or less, a NEZHA_ variable that is
  /// unknown or has a value that it may not have) and if another rank of the group is in this
  /// process, TimeoutError if rank 0 does not appear within `options.timeout`, and IoError if this
  /// rank's options disagree with rank 0's, if another process has published itself as this rank,
  /// if another rank has failed to join, if the store fails, or if the process or machine has no
  /// descriptor, thread or memory left to join with (it says which limit to raise).
  static std::shared_ptr<Context> create(std::shared_ptr<::gloo::rendezvous::Store> store,
                                         const ContextOptions& options);

  /// The color of a rank that is to be in no new context.
  static constexpr int kNoColor = -1;

  /// Splits the group, as MPI_Comm_split does (MPI 4.0, section 7.4.2): the ranks of one `color`
  /// form a new context, in the order of their keys, and of their ranks here where keys are equal.
  /// A negative color takes part and gets a null pointer. The new context has this one's options,
  /// but for rank and size, its devices and its connections: two processes have one of each,
  /// however many contexts they share. Either may be destroyed first, and if one breaks the other
  /// does not. Errors of the new context name a process that is gone, or has left, by its rank in
  /// the context that `create` made, with that one's size ("rank 3 of 4").
  ///
  /// Collective: every rank calls it, and calls it in the same order as its other splits and
  /// duplicates of this context, by one thread at a time. Operations may run on this context
  /// meanwhile. It takes the time of two small allreduces and returns when all ranks have formed
  /// their contexts.
  ///
  /// Throws IoError or TimeoutError, as an allreduce of this context does, whose timeout is the
  /// deadline.
  std::shared_ptr<Context> split(int color, int key);

  /// A context of the same ranks, whose operations match none of this one's: for a library that is
  /// handed a context and must not meet its caller's tags (MPI_Comm_dup, section 7.4.2 there). As
  /// `split` of one color.
  std::shared_ptr<Context> dup();

  /// Leaves the group. Data that peers still need is handed over first, which takes as long as
  /// an acknowledgement does and one second at most; of a context that has failed they need
  /// nothing. A process that calls `exit`, or returns from `main`, leaves all contexts in this way.
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

  /// How the load balancer divides messages of each size now.
  BalanceStats balance() const;

  /// For nezha's own entry points. Throws InvalidArgument in a child of fork().
  ContextImpl& impl() const;

 private:
  friend class ContextImpl;

  explicit Context(std::unique_ptr<ContextImpl> impl);
  std::unique_ptr<ContextImpl> impl_;
};

}  // namespace nezha
