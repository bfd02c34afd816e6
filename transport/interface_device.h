// SPDX-License-Identifier: Apache-2.0
// A device on one network interface. It listens there, and makes the handshakes of connections
// through it. Its kind decides what becomes of a connection.
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
  PortRange ports = {};  // the ports to listen at
};

// The listener is bound to one interface's number and one address, and goes with them. When there
// is another interface of the name, or the address goes while another one fits, a new listener is
// made and the links are given up. Peers always know the first address, `home`, so the device takes
// it up again when it is back. Until then links come about only as this end connects to the peers'
// addresses.
class InterfaceDevice : public Device, protected LinkMaker, EventHandler {
 public:
  ~InterfaceDevice() override;

  std::unique_ptr<Attempt> connect(absl::string_view address, const wire::Hello& hello,
                                   Connected done) override;
  absl::Status can_reach(absl::string_view address) const override;
  std::string address() const override { return published_; }
  bool carrier() const override { return has_carrier_ && is_usable_; }

 protected:
  // All calls are made under Progress's lock. `acceptor` outlives the device.
  InterfaceDevice(Progress& progress, Acceptor& acceptor, Rail rail, InterfaceOptions options);
  // Begins to listen. Callers call this once, before anything else.
  absl::Status open();

  // The published address begins with this kind and a colon, unless the kind is tcp.
  virtual absl::string_view kind() const = 0;

  // Says whether the device can carry anything as far as its kind knows, and `why` not. If not,
  // connections that peers are making are given up. The interface must be able to carry, too.
  void set_usable(bool is_usable, absl::string_view why);

  // The device has moved to another address of its interface, or to another interface of the name,
  // and is about to be used there.
  virtual void on_moved() {}

  Progress& progress() { return progress_; }
  // Returns the interface's present address, with port 0.
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

  // Anybody may connect, so handshakes of incoming connections are limited in number and time.
  static constexpr size_t kMaxIncoming = 1024;
  // How long connections wait in the kernel when there is no descriptor or memory for them.
  static constexpr Nanos kAcceptPause = 100 * kMillisecond;
  // The wait after an attempt to listen anew that failed.
  static constexpr Nanos kListenPause = 100 * kMillisecond;

  Progress& progress_;
  Acceptor& acceptor_;
  InterfaceOptions options_;
  int index_ = 0;         // the interface's
  net::Address address_;  // the interface's; port 0
  net::Address home_;     // the first address; port 0
  uint16_t port_ = 0;
  std::string published_;
  net::Socket listener_;
  Alarm accept_again_;
  Alarm listen_again_;
  bool has_told_ = false;        // has logged that it cannot listen, since it last could
  bool short_of_means_ = false;  // accept lacked descriptors or memory, since the last connection
  std::string no_link_;          // the reason logged last, since the last link; empty: none was
  bool has_carrier_ = false;     // the interface has it
  bool is_usable_ = true;        // as far as the kind knows
  std::unique_ptr<InterfaceMonitor> monitor_;
  // By address, so that the reference in a handshake's callback finds it.
  std::unordered_map<const IncomingHandshake*, std::unique_ptr<IncomingHandshake>> incoming_;
};

}  // namespace nezha
