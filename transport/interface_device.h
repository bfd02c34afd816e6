// SPDX-License-Identifier: Apache-2.0
// A device on one network interface: a listener there, and the handshakes of connections through
// it. What becomes of a connection is its kind's business.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "absl/strings/string_view.h"
#include "common/net/interface.h"
#include "common/net/socket.h"
#include "common/port_range.h"
#include "transport/device.h"
#include "transport/handshake.h"
#include "transport/interface_monitor.h"
#include "transport/progress.h"

namespace nezha {

struct InterfaceOptions {
  std::string interface;
  std::string rail;  // its name
  net::AddressWish address = {};
  PortRange ports = {};  // to listen at
};

// The listener is bound to one interface's number and one address, and goes with them: a new
// listener is made, and the links are given up, when there is another interface of the name, or
// when the address goes while there is another one that fits. Peers know the first address, `home`,
// for good, so it is taken up again when it is back; meanwhile links come about as this end
// connects to the peers' addresses.
class InterfaceDevice : public Device, protected LinkMaker, EventHandler {
 public:
  ~InterfaceDevice() override;

  std::unique_ptr<Attempt> connect(absl::string_view address, const wire::Hello& hello,
                                   Connected done) override;
  absl::Status can_reach(absl::string_view address) const override;
  std::string address() const override { return published_; }
  bool carrier() const override { return has_carrier_ && is_usable_; }

 protected:
  // Under Progress's lock, as all of it. `acceptor` outlives the device.
  InterfaceDevice(Progress& progress, Acceptor& acceptor, Rail rail, InterfaceOptions options);
  // Begins to listen. To be called once, before anything else.
  absl::Status open();

  // The published address begins with the kind and a colon, unless that is tcp.
  virtual absl::string_view kind() const = 0;

  // Whether the device can carry anything as far as its kind knows, and `why` not; connections in
  // the making that peers began are given up then. The interface has a say beside this.
  void set_usable(bool is_usable, absl::string_view why);

  // The device has moved to another address of its interface, or to another interface of the name,
  // and is about to be used there.
  virtual void on_moved() {}

  Progress& progress() { return progress_; }
  // Where the interface is now; port 0.
  const net::Address& interface_address() const { return address_; }

 private:
  absl::StatusOr<net::Socket> listener_at(uint16_t port) const;
  absl::Status listen_by(absl::StatusOr<net::Socket> socket);
  void stop_listening();
  void on_interface(const net::InterfaceState& state);
  absl::StatusOr<net::Address> choose(const net::InterfaceState& state) const;
  bool is_at(const net::InterfaceState& state, const net::Address& address) const;
  void move(const net::InterfaceState& state, const net::Address& to);
  void listen_again();
  void set_carrier(bool up, absl::string_view why);
  void tell_of_carrier(bool was_up, absl::string_view why);
  absl::StatusOr<net::Address> parse(absl::string_view address) const;
  bool is_own(const net::Address& address) const;
  void stop_accepting(int error);
  void on_events(uint32_t events) override;
  void on_over(const IncomingHandshake& incoming, const wire::Hello& hello,
               absl::StatusOr<std::unique_ptr<Link>> link);

  // Strangers may connect: neither many nor for long.
  static constexpr size_t kMaxIncoming = 1024;
  // How long connections wait in the kernel when there is no descriptor or memory for them.
  static constexpr Nanos kAcceptPause = 100 * kMillisecond;
  // After an attempt to listen anew that failed.
  static constexpr Nanos kListenPause = 100 * kMillisecond;

  Progress& progress_;
  Acceptor& acceptor_;
  InterfaceOptions options_;
  int index_ = 0;         // of the interface
  net::Address address_;  // of the interface; port 0
  net::Address home_;     // the first address; port 0
  uint16_t port_ = 0;
  std::string published_;
  net::Socket listener_;
  Alarm accept_again_;
  Alarm listen_again_;
  bool has_told_ = false;        // that it cannot listen, since it last could
  bool short_of_means_ = false;  // to accept with, since the last connection
  std::string no_link_;          // the reason told last, since the last link; empty: none was
  bool has_carrier_ = false;     // the interface
  bool is_usable_ = true;        // what the kind needs beside that
  std::unique_ptr<InterfaceMonitor> monitor_;
  // By address, so that each can be found by what it calls back with.
  std::unordered_map<const IncomingHandshake*, std::unique_ptr<IncomingHandshake>> incoming_;
};

}  // namespace nezha
