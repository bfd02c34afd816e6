// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/switchd/session.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nezha::flare {
namespace {

absl::Status check_family(const UdpPort& port, const Address& to) {
  if (to.family() == port.family()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      to.str(), " cannot be reached from the --listen address, which is of IPv",
      port.family() == AF_INET6 ? 6 : 4, "; all addresses of a session must be of one family"));
}

absl::Status check_path(const SessionSpec& spec, const UdpPort& port, const Address& to) {
  if (absl::Status status = check_family(port, to); !status.ok()) return status;
  const absl::StatusOr<size_t> mtu = path_mtu(to);
  if (!mtu.ok()) return mtu.status();
  const size_t most = payload_for(*mtu, to.family() == AF_INET6);
  if (spec.table.payload <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a payload of ", spec.table.payload,
                                                 " bytes is too long for the way to ", to.str(),
                                                 ", whose MTU of ", *mtu, " allows ", most));
}

// Returns the addresses that results are sent to. The group's stands for all of its members.
std::vector<Address> receivers_of_results(const SessionSpec& spec) {
  if (!spec.group) return spec.children;
  std::vector<Address> receivers = {*spec.group};
  for (size_t i = 0; i < spec.children.size(); ++i) {
    if (spec.table.children[i].count > 1) receivers.push_back(spec.children[i]);
  }
  return receivers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::install(const SessionSpec& spec, UdpPort* port) {
  for (const Address& child : spec.children) {
    if (absl::Status status = check_path(spec, *port, child); !status.ok()) return status;
  }
  if (spec.parent) {
    if (absl::Status status = check_path(spec, *port, spec.parent->address); !status.ok())
      return status;
  }
  if (spec.group) {
    absl::Status status = check_family(*port, *spec.group);
    if (status.ok()) status = port->reach_groups();
    if (!status.ok()) return status;
  }
  return std::unique_ptr<Session>(new Session(spec, port));
}

Session::Session(SessionSpec spec, UdpPort* port)
    : spec_(std::move(spec)),
      results_to_(receivers_of_results(spec_)),
      port_(port),
      below_(spec_.key),
      above_(spec_.parent ? spec_.parent->key : spec_.key),
      table_(spec_.table, this) {}

void Session::receive(absl::Span<const std::byte> datagram, const Frame& frame,
                      const Address& from) {
  ++counts_.received;
  counts_.received_bytes += datagram.size();
  if (frame.header.generation != spec_.generation) {
    ++counts_.outdated;
    return;
  }
  const bool is_below = !spec_.parent || from != spec_.parent->address;
  const size_t child = frame.header.child;
  const bool is_known =
      !is_below || (child < spec_.children.size() && from == spec_.children[child]);
  if (!is_known) {
    ++counts_.strangers;
  } else if (!(is_below ? below_ : above_).verify(datagram)) {
    ++counts_.forged;
  } else if (is_below) {
    table_.from_child(static_cast<int>(child), frame);
  } else {
    table_.from_parent(frame);
  }
}

void Session::to_parent(const FrameHeader& header, absl::Span<const std::byte> payload) {
  FrameHeader as_child = header;
  as_child.child = spec_.parent->child;
  send(as_child, payload, above_, {&spec_.parent->address, 1});
}

void Session::to_child(int child, const FrameHeader& header, absl::Span<const std::byte> payload) {
  send(header, payload, below_, {&spec_.children[static_cast<size_t>(child)], 1});
}

void Session::to_children(const FrameHeader& header, absl::Span<const std::byte> payload) {
  const bool is_result = header.type == FrameType::kResult;
  send(header, payload, below_, is_result ? results_to_ : spec_.children);
}

void Session::send(FrameHeader header, absl::Span<const std::byte> payload,
                   Authenticator& authenticator, absl::Span<const Address> to) {
  header.session = spec_.session;
  header.generation = spec_.generation;
  const size_t size = encode(header, payload, authenticator, port_->buffer());
  port_->send(size, to);
  counts_.sent += to.size();
  counts_.sent_bytes += size * to.size();
}

}  // namespace nezha::flare
