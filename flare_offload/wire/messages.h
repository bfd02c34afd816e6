// SPDX-License-Identifier: Apache-2.0
// The messages between hosts, manager and switches, over secure streams (secure_stream.h). A
// message is text: a line of words, the first of which is its kind.
//
//   host to manager     join JOB ATTEMPT RANK SIZE ADDRESS PAYLOAD WINDOW STREAMS MULTICAST
//                            REPRODUCIBLE
//                       renew JOB ATTEMPT RANK SIZE SESSION STREAMS GROUP
//                       leave JOB ATTEMPT RANK
//   manager to host     granted JOB ATTEMPT SESSION STREAMS GENERATION KEY SWITCH CHILD WINDOW
//                               PAYLOAD LEASE GROUP
//                       rejected JOB ATTEMPT REASON...    no session: why, and what to do
//                       lost JOB ATTEMPT REASON...        the session has ended
//   manager to switch   install STREAMS LEASE, and below that line the first session, as
//                               session_spec.h describes it; the others are alike, with the next
//                               numbers
//                       extend LEASE SESSION...
//                       remove SESSION...
//   switch to manager   has BYTES SESSION...              first of all: its memory and its sessions
//                       installed SESSION
//                       refused SESSION REASON...
//                       expired SESSION...                their lease has run out
//
// JOB is a context's id; its ranks get a session together, once all of them have asked with the
// same ATTEMPT. STREAMS is the number of a job's sessions, which are numbered from SESSION on.
// LEASE is in milliseconds. MULTICAST is 1 if results may be sent by multicast, else 0; GROUP is
// the multicast group that is used, or -. REPRODUCIBLE is 1 if results must not depend on the order
// of arrival, else 0. No field is used before parse() has accepted the message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/unique_id.h"
#include "flare_offload/udp/udp_port.h"
#include "flare_offload/wire/authenticator.h"

namespace nezha::flare::message {

// Limits on what a peer may ask for.
constexpr int kMaxRanks = 4096;
constexpr int kMaxStreams = 16;

// One attempt of a job to get a session.
struct Request {
  UniqueId job;
  uint32_t attempt = 0;

  friend auto operator<=>(const Request&, const Request&) = default;
};

// These return "job 1a2b3c4d" and "job 1a2b3c4d (attempt 2)", for logs.
std::string job_of(const Request& request);
std::string name_of(const Request& request);

struct Join {
  Request request;
  int rank = 0;
  int size = 0;
  Address address;  // where the host receives
  uint32_t payload = 0;
  uint32_t window = 0;
  int streams = 0;
  bool multicast = false;     // as far as known, it reaches this host
  bool reproducible = false;  // results are not to depend on the order of arrival
};
struct Renew {
  Request request;
  int rank = 0;
  int size = 0;
  uint32_t session = 0;
  int streams = 0;
  std::optional<Address> group = {};  // the one that it was granted
};
struct Leave {
  Request request;
  int rank = 0;
};
struct Granted {
  Request request;
  uint32_t session = 0;
  int streams = 0;
  uint16_t generation = 0;
  Key key{};
  Address address;  // the switch's
  uint8_t child = 0;
  uint32_t window = 0;
  uint32_t payload = 0;
  Nanos lease = 0;
  std::optional<Address> group = {};  // the group to which the switch sends results
};
struct Rejected {
  Request request;
  std::string reason;
};
struct Lost {
  Request request;
  std::string reason;
};
struct Install {
  int streams = 0;
  Nanos lease = 0;
  std::string spec;
};
struct Extend {
  Nanos lease = 0;
  std::vector<uint32_t> sessions;
};
struct Remove {
  std::vector<uint32_t> sessions;
};
struct Has {
  uint64_t memory = 0;
  std::vector<uint32_t> sessions;
};
struct Installed {
  uint32_t session = 0;
};
struct Refused {
  uint32_t session = 0;
  std::string reason;
};
struct Expired {
  std::vector<uint32_t> sessions;
};

using Message = std::variant<Join, Renew, Leave, Granted, Rejected, Lost, Install, Extend, Remove,
                             Has, Installed, Refused, Expired>;

std::string encode(const Message& message);
// An error does not repeat the text, which may have a key in it.
absl::StatusOr<Message> parse(absl::string_view text);

std::string to_hex(const Key& key);

}  // namespace nezha::flare::message
