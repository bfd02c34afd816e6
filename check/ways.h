// SPDX-License-Identifier: Apache-2.0
// Ways between ranks on a rail, and how faults of several ways are told as one.
#pragma once

#include <string>
#include <vector>

#include "check/diagnosis.h"
#include "check/measurement.h"

namespace nezha::check {

// A way leads from one rank to another on a rail. A rail is given as a place among the rails of
// each rank.
struct Way {
  int from = 0;
  int to = 0;
  int rail = 0;
  int to_rail = 0;
};

// A group holds ways that have the same fault, and says what they have in common.
struct Group {
  enum class Kind {
    kEverybody,  // all ways of the rail, among three ranks or more
    kRank,       // all ways from and to one rank, which has several peers
    kToRank,     // all ways to it
    kFromRank,   // all ways from it
    kPair,       // both ways between two ranks
    kWay,        // one way
  };
  Kind kind = Kind::kWay;
  int rank = 0;  // set for kRank, kToRank and kFromRank
  std::vector<Way> ways;
};

// `faulty` are some of the ways `all` of one rail. Every faulty way is in one group.
std::vector<Group> group(const std::vector<Way>& faulty, const std::vector<Way>& all);

// Words for what the evidence has.
class Words {
 public:
  explicit Words(const Evidence& evidence) : evidence_(evidence) {}

  const RailEnd& from(const Way& way) const { return end(way.from, way.rail); }
  const RailEnd& to(const Way& way) const { return end(way.to, way.to_rail); }
  const RailEnd& end(int rank, int rail) const;
  const std::string& host(int rank) const;
  const RankFacts& facts(int rank) const;
  bool on_one_host(int one, int other) const;

  std::string rank(int number) const;                        // rank 1 (node2)
  std::string ranks(const std::vector<int>& numbers) const;  // ranks 1 (node2) and 3 (node4)
  std::string hosts(const std::vector<int>& numbers) const;  // node2 and node4
  std::string rail(const Way& way) const;                    // its label
  std::string where(const Group& group) const;               // from rank 1 (node2) to ...
  // Returns the hosts at which to look first: that of the group's rank, or all.
  std::string suspects(const Group& group) const;
  // Returns whether the peers of all these ways could connect to where the ways come from.
  bool connect_back(const Group& group) const;
  // Returns what a job would do if none of these ways could be connected. The end that can connect
  // makes the connections of both.
  std::string consequence(const Group& group) const;
  // Returns another rail of the rank's that is on the subnet, or "" if there is none.
  std::string rail_on(int rank, const std::string& subnet) const;
  Finding finding(const std::string& kind, const Group& group, const std::string& text) const;

 private:
  const Evidence& evidence_;
};

// Returns the first way of each host to each host. Ranks of one host have its interfaces in common.
std::vector<Way> one_per_hosts(const Words& words, const std::vector<Way>& ways);

// Returns "a", "a and b", or "a, b and c".
std::string listed(const std::vector<std::string>& names);

// Each of these returns every rank once, in order.
std::vector<int> senders(const std::vector<Way>& ways);
std::vector<int> receivers(const std::vector<Way>& ways);
std::vector<int> members(const std::vector<Way>& ways);

}  // namespace nezha::check
