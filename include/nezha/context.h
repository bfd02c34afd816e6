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
  /// One algorithm over channels. Its segments go over all rails in proportion to their learned
  /// rates. In allreduces of 4 KiB to below 64 KiB, messages of up to 16 KiB are not cut. They
  /// alternate between the rails whose rate is at least about two thirds of the fastest rail's.
  /// Shorter allreduces use the fastest rail.
  kStripe,
  /// An independent allreduce per rail, each on its own slice of the message (the Nezha paper,
  /// section IV). `ContextOptions::shares` sets the sizes of the slices. Without shares the load
  /// balancer learns them, and starts with equal parts.
  kSlice,
  /// Each allreduce of 4 KiB or more takes what is best for messages of its size: stripes, slices,
  /// or one rail alone. The load balancer tries them while the program runs. From 8 MiB on there
  /// are slices only beside a switch's rail, because stripes adapt while an operation runs. Shorter
  /// allreduces use the fastest rail, because they end before a second rail could help. Operations
  /// that run
  /// beside others from the first on also use stripes, because the balancer learns nothing from
  /// them. The default.
  kAuto,
};

/// How the load balancer divides the allreduces of a size class (sizes from one power of two to the
/// next) among the rails. It learns from how long earlier allreduces took. Rank 0 decides, and all
/// ranks change at the same operation.
enum class BalancePolicy {
  /// Learns the start-up time and the time per byte of each rail, for each set of rails. It divides
  /// a message so that all rails that carry it finish together, and uses the set of rails that
  /// finishes first. In the long run it spends at most 1% of the time on measuring what it does not
  /// use. For 4 to 128 KiB it also tries two algorithms (see Algorithm::kAuto). The default.
  kModel,
  /// The policy of the Nezha paper (section IV-C). Below a threshold that it searches for, one rail
  /// carries everything (cold start). Above the threshold the parts are equal at first, then follow
  /// measured times, then change in steps of 1% (hot start). It knows slices only: once it is under
  /// way, Plan::kAuto is Plan::kSlice.
  kPaper,
  /// Learns nothing: Plan::kAuto is Plan::kStripe, and Plan::kSlice has the given parts or equal
  /// ones.
  kNone,
  /// Changes the parts at random every few operations, for tests.
  kShuffle,
};

/// What a caller that waits for an operation does while it has nothing to do for the operation.
/// Both settings are correct with any number of cores, and ranks may differ.
enum class Polling {
  /// The caller polls for NEZHA_POLL microseconds before it sleeps, and starts again whenever
  /// something arrives, because waking a thread takes longer than a small message does. While so
  /// much of a large operation is still to come that none of it is urgent, the caller sleeps. The
  /// default.
  kLatencyFirst,
  /// The caller polls only in operations of up to 16 KiB (and barriers). In larger ones it sleeps
  /// at once, and in a long ring it lets arriving data accumulate for twice as long before it
  /// handles it. Other threads and processes get the CPU time.
  kCpuFirst,
};

/// The options of Context::create().
///
/// An option that is set here takes precedence over the environment (nezha/environment.h). If
/// neither sets it, the option has the default that is stated there. `plan`, `shares`, `policy` and
/// the environment's NEZHA_ALGORITHM must be the same on all ranks. A rank that sets none of its
/// own takes rank 0's. A rank that sets another one fails to join. Its error names the variable or
/// option, both values and both ranks. The errors of the other ranks do so, too, at their first
/// operation with that rank or sooner.
struct ContextOptions {
  /// The program does not set this rank or size. It is the one that the launcher has put into the
  /// environment (nezha/launch.h says which variables, and which come first).
  static constexpr int kFromEnvironment = -1;

  /// This process's rank, 0 <= rank < size.
  int rank = kFromEnvironment;
  /// How many ranks the context has, at least 1.
  int size = kFromEnvironment;
  /// This rank's devices, as URIs: `tcp:eth0`, `tcp:eth1?rail=blue&family=6`. Two devices on two
  /// ranks are on the same rail if they have the same rail name, which is the interface's name
  /// unless `rail=` gives another. A rank may lack a rail that others have, as long as each pair
  /// that exchanges data has one in common. There are at most 16 devices. An empty list counts as
  /// not given (NEZHA_RAILS, or {"auto"}).
  ///
  /// If an interface has several addresses, nezha takes one that can be used. It prefers IPv4 to
  /// IPv6 and IPv6 to link-local IPv6 (`family=` names the family). Within a family it prefers an
  /// address that stays to one that expires or is deprecated. `tcp:eth0?address=10.0.0.5` names one
  /// (`address=fd00::5`, without brackets). If the interface does not have that address,
  /// InvalidArgument says which ones it has. nezha waits for IPv6 addresses that the kernel is
  /// still checking for duplicates, for five seconds at most.
  ///
  /// While the context lives, a rail follows its interface. If the interface is made anew (a driver
  /// that is reloaded), the rail listens again at the same address and port. If the interface loses
  /// the address and has another one of the same family, the rail moves to that one, unless
  /// `address=` names an address. It moves back when the first address is there again. Ranks know
  /// only each other's first addresses. A rank that has moved therefore connects to the others, but
  /// two ranks that have both moved have no link on that rail until one of them is back. While the
  /// interface has no such address, the rail is down.
  ///
  /// `streams=2` makes two connections to each peer (1 to 8), for networks that one connection
  /// cannot fill. Without this option there are as many as the NIC's rate calls for, as far as
  /// there are cores for them. In statistics and in options each connection is a rail of its own:
  /// `eth0`, `eth0+2`.
  ///
  /// `cpus=` names a rail's cores, such as `tcp:eth0?cpus=0-3,8`: the rail has a thread of its own,
  /// which runs on these cores only (the Nezha paper's interface for CPU resources, section V-C3).
  /// The cores may be ones that the calling thread itself may not use. InvalidArgument is thrown if
  /// a core does not exist or is kept from the process, and names such cores. Rails without `cpus=`
  /// have a thread for messages of 256 KiB and more where there are cores for one, or as
  /// NEZHA_RAIL_THREADS says. The threads live as long as the process has any context.
  ///
  /// `rdma:mlx5_0` is a port of an RDMA device (`rdma:mlx5_0:2`: its second port), and `rdma:auto`
  /// stands for each active port. `?gid=3` is the index of the port's address; without it the rail
  /// takes that of the port's network interface. `?via=eth0` is the interface over which
  /// connections are made, for a port that has none. `?address=` and `?rail=` are as for tcp.
  /// docs/rdma.md has more.
  ///
  /// One further rail may be `flare:eth0@10.0.0.6:7000`. An aggregation switch then adds up what
  /// the ranks send through the interface; a nezha-manager at that address says which switch.
  /// NEZHA_FLARE_SECRET names the file with its secret. All ranks must have such a rail, or none.
  /// If it is the only rail, it carries every allreduce, reduce, broadcast and barrier that a
  /// switch can do, and `tcp:eth0` carries the rest. Beside other rails it carries what the load
  /// balancer gives it, which requires the plan auto or slice and no shares. A switch finishes
  /// nothing before all ranks have sent their parts, so any collective may return only when all
  /// ranks have called it, even at the root of a broadcast.
  ///
  /// Sums of floating-point numbers depend on the order in which the parts arrive at the switch, so
  /// their bits may differ from run to run. The hosts carry operations that are to be reproducible
  /// (AllreduceOptions::setReproducible).
  ///
  /// The options of a `flare:` rail:
  ///
  /// - `?reproducible=1`: switches add up in one order, whichever part comes first. What they carry
  ///   then has the same bits in each run over the same switches, at the cost of more of their
  ///   memory and time.
  /// - `?address=10.0.0.5`: as for tcp.
  /// - `?rail=blue`: the name of the rail on which the ranks reach each other by that interface if
  ///   no other rail is named. It is for hosts whose interfaces have different names. The switch's
  ///   own rail is called flare.
  /// - `?window=512`: the most blocks that each operation may have in flight. The manager may grant
  ///   fewer. How many are in flight adapts to the path.
  /// - `?streams=4`: how many operations the rail carries at a time.
  /// - `?stagger=32`: in each group of 32 blocks (a power of two up to 64) ranks begin with
  ///   different blocks (Flare's staggered sending). This does not help a switch that processes
  ///   each block on one core, as nezha-switch does, and it costs the ranks some CPU time.
  ///
  /// Except for address, window and stagger, all ranks must give the same options.
  ///
  /// {"auto"} stands for the devices that nezha finds on this host: nezha/interfaces.h says which,
  /// and the log (NEZHA_LOG=info) why. {"auto", "!eth0", "!ib*"} leaves out the interfaces whose
  /// names match these patterns (fnmatch(3)). Two such devices on two ranks are on the same rail if
  /// they are on one subnet. If that leaves devices over on both ranks (routed networks, in which
  /// each host has a subnet of its own), those are on the same rail whose interfaces have the same
  /// name. A rank that names its rails and a rank that leaves them to nezha share only rails of the
  /// same name.
  std::vector<std::string> rails;
  /// The ports at which this rank is reached, such as "20000-20100", for firewalls. Each tcp rail
  /// listens at the first port of these that is free at its address (TCP), and a flare rail
  /// receives at one of them (UDP). Each process on a host needs one. The error is IoError if none
  /// is free. A connection is made to such a port of either rank, from a port that the kernel
  /// chooses (net.ipv4.ip_local_port_range). Devices that the process has open already stay where
  /// they are. Each rank may have its own ports. An empty text counts as not given (NEZHA_PORTS, or
  /// any port).
  std::string ports;
  /// The deadline of creation, and the default deadline of an operation as a whole. It must be more
  /// than 0; more than a year counts as a year. If it is not given, it is that of NEZHA_TIMEOUT, or
  /// 30 s. Each rank may have its own.
  std::optional<std::chrono::milliseconds> timeout;
  /// How operations are spread over the rails. If it is not given, NEZHA_PLAN sets it. Otherwise it
  /// is Plan::kSlice if rank 0 is given shares, and Plan::kAuto if not.
  std::optional<Plan> plan;
  /// The part of each message that each rail carries by Plan::kSlice, in the order of `rails`
  /// without a flare rail. The scale is any positive one below 1e12 (`{1000, 400}`). A rail with 0
  /// is a spare: it carries messages when those with more have failed. At least one share is
  /// positive. An empty list counts as not given (NEZHA_SHARES, or equal parts).
  std::vector<double> shares;
  /// The load balancer's policy. If it is not given, NEZHA_POLICY sets it. Otherwise it is
  /// BalancePolicy::kNone if rank 0 is given shares, so that the shares stay as they are, and
  /// BalancePolicy::kModel if not. Shares together with another policy than kNone are
  /// InvalidArgument. With Plan::kStripe the policy has nothing to decide. It decides about two to
  /// eight rails that all ranks have. With kModel and four ranks or more it also decides about
  /// algorithms, even with a single rail if there are at most 256 ranks.
  std::optional<BalancePolicy> policy;
  /// What a waiting caller does. If it is not given, it is that of NEZHA_POLLING, or
  /// Polling::kLatencyFirst. Each rank may have its own.
  std::optional<Polling> polling;
  /// The file of the data length table. It has an effect at rank 0 only. This run starts from what
  /// an earlier run left there, if the rails and the plan are the same; otherwise the file is left
  /// alone, with a warning. The table is written to the file when the context is destroyed. The
  /// error is InvalidArgument if the file exists and is no such table, or if it does not exist and
  /// its folder does not exist either or is not writable. An empty text counts as not given
  /// (NEZHA_TABLE, or none).
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
  /// Links that were made again after an earlier link to the same rank had died.
  uint64_t reconnections = 0;
  /// The rank to which the last link died, and the reason; empty if none has died.
  std::string last_failure;
  /// The learned rate of the rail's links, in bytes per second; 0 while it is unknown.
  double rate = 0;
  /// The number of ranks that have the rail and exchange messages with this process, but to which
  /// it has no link on the rail now: the link has died, or there has been none for two seconds
  /// since it was first wanted. The messages of these ranks go by the other rails. Ranks that have
  /// left are not counted.
  uint64_t down_peers = 0;
  /// For how many seconds the rail has had no link to the one of these ranks that has been without
  /// for longest.
  double down_seconds = 0;
  /// That rank, and what went wrong last, such as "rank 1 of 4 (node1, pid 77): connecting to
  /// 10.0.0.2:4711: Connection refused". Empty if `down_peers` is 0.
  std::string last_error;
  /// The number of ranks to which the rail's link loses many packets: some 3% of those that this
  /// process sends. Such a link carries nothing but small test messages, unless no other rail leads
  /// to the same rank without such losses.
  uint64_t lossy_peers = 0;
};

/// How the messages of one size class are divided, and what the load balancer knows about the
/// class.
struct SizeClassStats {
  /// The class: messages of `least_bytes` to less than twice as many.
  uint64_t least_bytes = 0;
  /// The part of a message that each lane of BalanceStats carries, 0 to 1. The parts add up to 1.
  std::vector<double> shares;
  /// The algorithm by which the hosts sum these messages, such as "halving-doubling", if the load
  /// balancer found it to be faster than the one that Algorithm::kAuto takes by size and rank
  /// count, or is trying it. Else empty.
  std::string algorithm;
  /// How often the shares or the algorithm have changed, counted from 1.
  uint32_t number = 0;

  // The members that follow are known at rank 0 only, and are empty or 0 elsewhere:

  /// "searching" (it is open which lanes are to carry the class), "cold" (one lane carries
  /// everything), "hot" (several lanes carry parts, and the right parts are being sought) or
  /// "converged" (several lanes carry parts and finish together).
  std::string state;
  /// Whether the shares are only a trial of a few operations. Unless they turn out to be better,
  /// the class goes back to the shares that belong to its state.
  bool is_trying = false;
  /// The time that each lane took in the last window outside of probes, in microseconds; 0 for a
  /// lane that took no part.
  std::vector<double> lane_us;
  /// The number of windows so far. A window is up to ten operations.
  uint64_t windows = 0;
  /// The mean size of the messages in the window of `lane_us`, in bytes.
  uint64_t bytes = 0;
  /// How the class came to its shares, for people: a line for each of the latest changes, such as
  /// "2026-03-01 12:00:00.250, after 5 windows: eth0 71.4%, eth1 28.6%: rebalance", in local time.
  /// The reasons: "start" (the first division), "search" (compares sets of lanes), "rebalance"
  /// (lets the lanes finish together), "drift" (the lanes take longer or shorter than they used
  /// to), "probe" (measures what is not in use), "return" (a probe or a change was not worth it),
  /// "lanes" (a rail was lost or came back) and "way" (another algorithm was faster, or stripes, or
  /// lanes in place of stripes).
  std::string history;
};

/// What the load balancer does (the data length table of the Nezha paper, section IV-B).
struct BalanceStats {
  /// The lanes, each of which can carry a part of a message: rails by name, and "stripes", the
  /// whole message over all rails. Empty until the balancer is under way. An allreduce of 4 KiB or
  /// more starts it (with one rail, one of 4 to 128 KiB).
  std::vector<std::string> lanes;
  /// The size classes that have occurred, the smallest first.
  std::vector<SizeClassStats> classes;
};

class ContextImpl;

/// A group of ranks. Thread-safe: several threads may run operations on one context at once, each
/// with its own tag. Several contexts of one process share its devices, links and connections.
///
/// A child of fork() has no part in its parent's contexts and handles; their operations go on in
/// the parent. The child may destroy them, which does nothing, and may call `rank`, `size` and
/// `timeout`. Everything else throws InvalidArgument. The child may make contexts of its own.
/// (Children that are made by clone() without fork()'s handlers must not use the parent's contexts
/// and handles at all.)
class NEZHA_EXPORT Context {
 public:
  /// Joins the group. Collective: every rank of 0 .. size-1 calls it with the same store (and
  /// prefix). Connections are made on first use.
  ///
  /// The context uses the store during this call, and later when it first exchanges something with
  /// a rank. It shares ownership of the store. Each context needs keys of its own in the store
  /// ("rank0" and so on, and "refusal"), so give each a prefix of its own
  /// (gloo::rendezvous::PrefixStore). A context calls its store from any thread that uses the
  /// context and from one of its own, but makes one call at a time. A store that several contexts,
  /// or a context and the program, use at the same time must therefore be thread-safe. RedisStore
  /// and Gloo's HashStore are. Gloo's FileStore is not: give each context its own FileStore of the
  /// same directory. A store of your own must respect the timeout of `wait`. Gloo's FileStore
  /// counts whole seconds: with it this call and the destructor may end up to two seconds late, and
  /// so may the half second below.
  ///
  /// A rank that fails in this call leaves the reason in the store, unless it is a timeout. Ranks
  /// that are waiting for another rank in the store find the reason within half a second, and fail
  /// with it. For this, the failed rank's process keeps the store alive after such an error, with
  /// up to 7 others. (It does not keep alive what a PrefixStore refers to: that must outlive the
  /// context, and the other ranks' waiting.) A call that fails, for whatever reason, uses up its
  /// keys: the next call takes another prefix on every rank.
  ///
  /// Throws InvalidArgument on bad options (no store, an unknown interface, a rank out of range, no
  /// rank given and none in the environment, a timeout of 0 or less, a NEZHA_ variable that is
  /// unknown or has a value that is not allowed), and if another rank of the group is in this
  /// process. Throws TimeoutError if rank 0 does not appear within `options.timeout`. Throws
  /// IoError if this rank's options disagree with rank 0's, if another process has published itself
  /// as this rank, if another rank has failed to join, if the store fails, or if the process or
  /// machine has no descriptor, thread or memory left to join with (the error says which limit to
  /// raise).
  static std::shared_ptr<Context> create(std::shared_ptr<::gloo::rendezvous::Store> store,
                                         const ContextOptions& options);

  /// The color of a rank that is to be in no new context.
  static constexpr int kNoColor = -1;

  /// Splits the group, as MPI_Comm_split does (MPI 4.0, section 7.4.2). The ranks of one `color`
  /// form a new context. They are ordered by `key`, and by their ranks in this context where keys
  /// are equal. A rank with a negative color takes part and gets a null pointer. The new context
  /// has this context's options, except for rank and size, and its devices and connections: two
  /// processes have one of each, however many contexts they share. Either context may be destroyed
  /// first, and if one breaks the other does not. Errors of the new context name a process that is
  /// gone, or has left, by its rank in the context that `create` made, with the size of that
  /// context ("rank 3 of 4").
  ///
  /// Collective: every rank calls it, in the same order as its other splits and duplicates of this
  /// context, from one thread at a time. Operations may run on this context meanwhile. The call
  /// takes the time of two small allreduces and returns when all ranks have formed their contexts.
  ///
  /// Throws IoError or TimeoutError as an allreduce of this context does. The context's timeout is
  /// the deadline of the whole call.
  std::shared_ptr<Context> split(int color, int key);

  /// Makes a context of the same ranks whose operations match none of this context's. It is for a
  /// library that is handed a context and must not meet its caller's tags (MPI_Comm_dup, MPI 4.0,
  /// section 7.4.2). Otherwise it is as a `split` in which all ranks have one color.
  std::shared_ptr<Context> dup();

  /// Leaves the group. First it hands over data that peers still need, which takes as long as an
  /// acknowledgement does, and one second at most. Peers need nothing from a context that has
  /// failed. A process that calls `exit`, or returns from `main`, leaves all contexts in this way.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Returns this process's rank in this context, whether the program, the launcher or a split
  /// assigned it: 0 <= rank() < size().
  int rank() const;
  /// Returns how many ranks there are.
  int size() const;
  /// Returns `ContextOptions::timeout`.
  std::chrono::milliseconds timeout() const;

  /// Returns one entry per rail of this rank, in the order of `ContextOptions::rails`. Counters
  /// belong to the process: contexts that share a device share them.
  std::vector<RailStats> rails() const;

  /// Returns how the load balancer divides messages of each size now.
  BalanceStats balance() const;

  /// Returns the implementation, for nezha's own entry points. Throws InvalidArgument in a child of
  /// fork().
  ContextImpl& impl() const;

 private:
  friend class ContextImpl;

  explicit Context(std::unique_ptr<ContextImpl> impl);
  std::unique_ptr<ContextImpl> impl_;
};

}  // namespace nezha
