// SPDX-License-Identifier: Apache-2.0
// The ranks' descriptions of themselves and their measurements. They exchange them as text through
// the rendezvous store, since the rails may be broken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nezha::check {

// One rank's end of a rail, as its host's kernel describes it.
struct RailEnd {
  std::string rail;  // its name
  std::string kind = "tcp";
  std::string interface;
  bool is_found = false;  // auto found it; such rails may also be paired by their interfaces' names
  std::string error;      // why this end cannot be tested; empty: it can

  std::string address;  // the address without the port
  std::string subnet;   // 10.0.0.0/16
  uint16_t port = 0;    // where nezha-check listens
  int mtu = 0;          // bytes
  bool is_running = false;
  bool is_loopback = false;
  // IPv4 settings as they take effect: the larger one of the interface's and all interfaces'
  // values.
  int rp_filter = 0;
  int arp_ignore = 0;
  int arp_filter = 0;
  std::string sibling;  // another interface of the host that is on the same subnet; empty: none

  bool is_ipv4() const { return address.find(':') == std::string::npos; }
};

struct RankFacts {
  int size = 0;              // how many ranks it expects
  std::string host;          // its name
  std::string namespace_id;  // the host's name, kernel and network namespace
  std::vector<RailEnd> rails;
};

// The outcome of an attempt to connect.
enum class Outcome {
  kConnected,
  kRefused,
  kSilent,          // nothing came back
  kNoRoute,         // the kernel knows no route, or a router or a firewall said that there is none
  kNoNeighbour,     // no host has answered for the address (ARP, neighbour discovery)
  kWrongInterface,  // the connection has arrived, at another interface of the peer than the rail's
  kStranger,        // it is no nezha-check of this run that answers, or another rank's
  kFailed,          // anything else
};

// One rank's attempt to connect to a peer on a rail.
struct Reach {
  int peer = 0;
  int rail = 0;       // the place among this rank's rails
  int peer_rail = 0;  // the place among the peer's rails
  Outcome outcome = Outcome::kFailed;
  std::string detail;  // the kernel's error, or the interface that the connection arrived at
};

// The measurements by one of the ranks `from` and `to` on a rail between them. "There" is the way
// from `from` to `to`.
struct Path {
  static constexpr int kUnknown = -1;  // the value of what was not measured

  int from = 0;
  int to = 0;
  int rail = 0;     // the place among the rails of `from`
  int to_rail = 0;  // the place among the rails of `to`
  // The largest IP packet that got through, bytes; 0: none did, and the error says why.
  int frame_there = kUnknown;
  int frame_back = kUnknown;
  // Whether packets of the size that the sender's kernel makes were lost. A kernel that knows of a
  // smaller MTU on the way, by a route or a router, makes smaller packets, which is no fault.
  bool loses_there = false;
  bool loses_back = false;
  double round_trip_us = kUnknown;  // the median
  double gbps_there = kUnknown;     // Gbit/s of payload
  double gbps_back = kUnknown;
  std::string error;  // what ended the measurement early
};

// Everything that the diagnosis is made from.
struct Evidence {
  std::vector<RankFacts> ranks;
  std::vector<std::vector<Reach>> reaches;  // indexed by rank
  std::vector<Path> paths;
};

// Returns whether the rank has reached the peer by this one of its rails.
bool has_reached(const Evidence& evidence, int rank, int peer, int rail);

// These convert each to text, and back. Decoding throws std::runtime_error if the text is
// malformed, such as that of another version of the program. It accepts no rank or rail that does
// not exist.
std::string encode(const RankFacts& facts);
std::string encode(const std::vector<Reach>& reaches);
std::string encode(const std::vector<Path>& paths);
RankFacts decode_facts(const std::string& text);
std::vector<Reach> decode_reaches(const std::string& text, int rank,
                                  const std::vector<RankFacts>& ranks);
std::vector<Path> decode_paths(const std::string& text, const std::vector<RankFacts>& ranks);

}  // namespace nezha::check
