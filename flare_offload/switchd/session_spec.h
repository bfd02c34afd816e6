// SPDX-License-Identifier: Apache-2.0
// Describes the session that a switch is to install, as a text of lines. A file for nezha-switch
// holds this text, and so does a message that installs a session. kSessionFormat explains it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "flare_offload/core/slot_table.h"
#include "flare_offload/udp/udp_port.h"
#include "flare_offload/wire/authenticator.h"

namespace nezha::flare {

// Explains the format to users.
constexpr absl::string_view kSessionFormat =
    R"(Lines, each a word and its values; # begins a comment:

  session 7                      its number, which its frames carry
  generation 1                   tells this installation from earlier ones; 0 to 65535
  key 64-HEX-DIGITS              of this switch and its children
  window 32                      blocks in flight of each host; a power of two
  payload 1440                   bytes of elements in a block at most; a multiple of 8
  reproducible                   results do not depend on the order of arrival
  buffers 4                      how many buffers each block has instead of one; not if reproducible
  child 10.0.0.1:7200 0          a child's address, and its rank or the ranks below it; children are
  child 10.0.0.8:7100 1-4        numbered in the order of these lines
  group 239.192.0.0:7200         the multicast group of the children that are one rank each: the
                                 switch sends results once to the group, and to each other child.
                                 Without this line it sends them to each child
  parent 10.0.0.9:7100 2 64-HEX  the switch above, this switch's number among its children, and its
                                 key; without this line the switch is the root

Generation and keys must be new each time that a switch starts, and after 2^31 blocks. With old
ones, frames that somebody recorded could be sent again, and would count.
)";

struct ParentSpec {
  Address address;
  uint8_t child = 0;
  Key key{};
};

struct SessionSpec {
  uint32_t session = 0;
  uint16_t generation = 0;
  Key key{};
  SlotTableOptions table;
  std::vector<Address> children;  // as many as table.children
  std::optional<Address> group = {};
  std::optional<ParentSpec> parent;
};

// An error names what is missing, or the line and the place of a wrong word in it. It does not
// repeat the word, which may be a key. The result's table options pass check().
absl::StatusOr<SessionSpec> parse_session(absl::string_view text);

}  // namespace nezha::flare
