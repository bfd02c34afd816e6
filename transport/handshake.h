// SPDX-License-Identifier: Apache-2.0
// The two ends of a TCP connection that is to become a link: what they tell each other, and for how
// long each of them waits for the other.
//
// The connecting end sends a Hello, and the accepting end answers with a Welcome
// (transport/wire.h). The kind of rail adds a greeting of a fixed size to the Hello, and to a
// Welcome that accepts. Then it makes a link at each end, which may take further steps.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/address.h"
#include "common/net/socket.h"
#include "transport/device.h"
#include "transport/progress.h"

namespace nezha {

// A kind of rail's part in one end of a connection in the making. Destroying it gives the end up.
class LinkEnd {
 public:
  virtual ~LinkEnd() = default;
  LinkEnd() = default;
  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;

  // The link, or why there is none; kUnavailable: the peer has closed the connection.
  using Made = std::function<void(absl::StatusOr<std::unique_ptr<Link>> link)>;

  // Returns what the peer's end must know of this one: LinkMaker::greeting_size() bytes. Is called
  // once, before `make`.
  virtual std::string greeting() = 0;
  // Returns OK if `make` may be called. Otherwise the error says why no link can come of these two
  // ends; both ends find the same. The accepting end greets the peer in either case, so that both
  // can say why.
  virtual absl::Status check(absl::string_view /*peers_greeting*/) const {
    return absl::OkStatus();
  }
  // Makes the link, after both ends have greeted. The peer's greeting has the right size, but may
  // be anything. `made` is called once, maybe from inside of this call, and as the last thing done
  // here, since it may destroy this object. How long to wait is up to the kind of rail.
  virtual void make(net::Socket socket, absl::string_view peers_greeting, bool is_accepting,
                    Made made) = 0;
};

// Makes links of connections, as a kind of rail does it.
class LinkMaker {
 public:
  virtual size_t greeting_size() const { return 0; }  // bytes; the same at both ends
  virtual absl::StatusOr<std::unique_ptr<LinkEnd>> new_end() = 0;

 protected:
  ~LinkMaker() = default;
};

// Reads exactly so many bytes, over as many calls as it takes. What comes behind them is left to
// the link.
class ExactReader {
 public:
  // Goes on until there are `size` bytes in all. Returns kUnavailable if there are fewer so far.
  // Any other error is the connection's end.
  absl::Status read(int fd, size_t size);
  absl::string_view bytes() const { return absl::string_view(bytes_).substr(0, done_); }

 private:
  std::string bytes_;
  size_t done_ = 0;
};

class OutgoingHandshake final : public Device::Attempt, EventHandler {
 public:
  // `to`: the peer's address as errors name it.
  OutgoingHandshake(Progress& progress, const wire::Hello& hello, std::string to,
                    Device::Connected done);
  ~OutgoingHandshake() override;

  // Callers call this once. `socket` is bound, or is the error that says why there is none.
  void start(absl::StatusOr<net::Socket> socket, const net::Address& to, LinkMaker& maker);

 private:
  absl::Status begin(absl::StatusOr<net::Socket> socket, const net::Address& to, LinkMaker& maker);
  absl::Status connect_error(int error) const;
  void on_events(uint32_t events) override;
  void greet();
  void finish(absl::Status status);
  void report(absl::StatusOr<std::unique_ptr<Link>> link);

  Progress& progress_;
  wire::HelloBytes hello_;
  std::string to_;
  Device::Connected done_;
  Alarm timeout_;
  size_t greeting_size_ = 0;
  std::unique_ptr<LinkEnd> end_;
  net::Socket socket_;
  bool registered_ = false;
  bool greeted_ = false;
  absl::Status early_error_;
  ExactReader answer_;
  uint32_t generation_ = 0;
};

class IncomingHandshake final : EventHandler {
 public:
  // The handshake is over, and the owner destroys it; `hello` outlives it. The third argument is
  // the link; null, if the connection came to nothing; or the reason why this end could make no
  // link of a connection that was accepted.
  using Over = std::function<void(const IncomingHandshake& it, const wire::Hello& hello,
                                  absl::StatusOr<std::unique_ptr<Link>> link)>;

  // What is passed by reference outlives the handshake, but for `from`, the peer's address.
  IncomingHandshake(Progress& progress, Acceptor& acceptor, const Device& device, LinkMaker& maker,
                    net::Socket socket, const net::Address& from, Over over);
  ~IncomingHandshake() override;

  absl::Status start();
  const net::Address& from() const { return from_; }

 private:
  void on_events(uint32_t events) override;
  void answer();
  void accept(const wire::Welcome& welcome);
  void end(absl::StatusOr<std::unique_ptr<Link>> link);
  void unregister();

  Progress& progress_;
  Acceptor& acceptor_;
  const Device& device_;
  LinkMaker& maker_;
  net::Socket socket_;
  net::Address from_;
  Over over_;
  Alarm timeout_;
  bool registered_ = false;
  ExactReader said_;  // the Hello and the greeting
  wire::Hello hello_;
  std::unique_ptr<LinkEnd> end_;
};

}  // namespace nezha
