// SPDX-License-Identifier: Apache-2.0
// The address that a rank of a Gloo context gives the others: who the rank is, and where its
// devices are.
#pragma once

#include <gloo/transport/address.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/unique_id.h"
#include "context/record.h"

namespace nezha::interop {

// An address is a text, padded with spaces: "nezha1 PROCESS SETTINGS", where SETTINGS is a
// checksum, then "RAIL INTERFACE ADDRESS" for each rail (the interface is "-" if the user named
// it), then "+" if there was no room for all rails.
//
// Gloo's rendezvous needs addresses of one length, and its ContextFactory takes 192 bytes at most.
// Once ranks are connected they send each other their complete records; see Member.
class Address final : public ::gloo::transport::Address {
 public:
  // Returns the address of a rank with this record. Returns ResourceExhausted if there is no room
  // for even one rail.
  static absl::StatusOr<Address> of(const Record& record);
  // Parses a peer's address, which is not trusted. The error text calls it "its address".
  static absl::StatusOr<Address> parse(const std::vector<char>& bytes);

  std::string str() const override { return text_; }
  std::vector<char> bytes() const override;

  const UniqueId& process() const { return record_.process; }
  // Returns the process and the rails in this address. Nothing else is set.
  const Record& record() const { return record_; }
  // Returns whether both ranks have the same settings.
  bool agrees_with(const Address& other) const { return settings_ == other.settings_; }
  bool is_complete() const { return is_complete_; }

 private:
  Address() = default;

  std::string text_;
  std::string settings_;
  Record record_;
  bool is_complete_ = true;
};

}  // namespace nezha::interop
