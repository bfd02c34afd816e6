// SPDX-License-Identifier: Apache-2.0
// A device: this process's end of a rail. A new kind of network needs a folder with a Device and a
// Link, and a line in the registry (context/rails.cc).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "transport/link.h"
#include "transport/rate_trial.h"
#include "transport/wire.h"

namespace nezha {

// Decides about connections that peers make. All calls are made under Progress's lock.
class Acceptor {
 public:
  virtual wire::Welcome on_hello(Rail rail, const wire::Hello& hello) = 0;
  // Takes the link of a connection that on_hello accepted. The peer was told, maybe some seconds
  // ago.
  virtual void on_accepted(Rail rail, const wire::Hello& hello, std::unique_ptr<Link> link) = 0;
  // The device can carry nothing any more, for the reason `why`, or it can again. The acceptor's
  // channels give up the links on it.
  virtual void on_carrier(Rail rail, bool up, absl::string_view why) = 0;

 protected:
  ~Acceptor() = default;
};

// Counters of what a rail has carried; see RailStats. They are written under Progress's lock.
struct RailCounters {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t segments_resent = 0;
  uint64_t failures = 0;
  uint64_t reconnections = 0;
  std::string last_failure;
  double rate = 0;  // bytes per second, as the link that learned last sees it; 0: unknown
};

// Properties of a kind of network that the library would have to guess otherwise.
struct DeviceTraits {
  // The least size in bytes, 1 MiB at most, of the segments that a long message is cut into:
  // shorter ones cost this kind of link much of its rate. 0: the size depends on the link's rate
  // alone.
  size_t least_segment = 0;
  double nominal_rate = 0;  // bytes per second; 0: not known
};

class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // A connection in the making; destroying it gives it up.
  class Attempt {
   public:
    virtual ~Attempt() = default;
  };
  // The link, or why there is none: kUnavailable (refused, or another process answers),
  // kAlreadyExists (the peer keeps another connection), kNotFound (the peer's context is closed),
  // kPermissionDenied (the peer has given this process up), or another error.
  using Connected =
      std::function<void(absl::StatusOr<std::unique_ptr<Link>> link, uint32_t generation)>;

  // Connects to the device at that address. Is called under Progress's lock. `done` is called once,
  // later, and never from inside of this call.
  virtual std::unique_ptr<Attempt> connect(absl::string_view address, const wire::Hello& hello,
                                           Connected done) = 0;

  // An error says why no connection to that address can ever be made.
  virtual absl::Status can_reach(absl::string_view /*address*/) const { return absl::OkStatus(); }
  // Returns how others reach this device now, for the record that the rank publishes. The text has
  // no spaces.
  virtual std::string address() const = 0;
  // Returns whether the device can carry anything now, as far as the kernel knows.
  virtual bool carrier() const = 0;
  virtual DeviceTraits traits() const { return {}; }

  // Returns the rail's name, the same on all ranks.
  const std::string& name() const { return name_; }
  Rail rail() const { return rail_; }
  RailCounters& counters() { return counters_; }
  const RailCounters& counters() const { return counters_; }
  RateTrial& trial() { return trial_; }

 protected:
  Device(std::string name, Rail rail) : name_(std::move(name)), rail_(rail) {}

 private:
  std::string name_;
  Rail rail_ = kAnyRail;
  RailCounters counters_;
  RateTrial trial_;
};

}  // namespace nezha
