// SPDX-License-Identifier: Apache-2.0
// Serves the ranks that measure: a rank listens on each of its rails, and answers.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "check/greeting.h"
#include "check/own_rails.h"
#include "check/stream.h"
#include "common/clock.h"
#include "common/net/socket.h"
#include "common/port_range.h"
#include "common/unique_id.h"

namespace nezha::check {

// A thread of its own accepts connections and reads their hellos; a service that takes longer has a
// further thread. Other programs may connect: they get no answer, and are dropped after five
// seconds.
class Server {
 public:
  // Listens on all rails that have no error, and sets their ports. A rail whose address cannot be
  // listened at gets an error.
  static absl::StatusOr<std::unique_ptr<Server>> create(std::vector<OwnRail>& rails,
                                                        const PortRange& ports);
  ~Server();

  // Answers hellos from now on. Those that came before have waited.
  absl::Status start(int rank, int size, const UniqueId& token);

 private:
  static constexpr size_t kMaxStrangers = 1024;  // connections without a whole hello
  static constexpr size_t kMaxServices = 512;    // threads

  struct Listener {
    net::Socket socket;
    uint32_t rail = 0;
    std::string interface;  // the rail's
  };
  struct Stranger {
    Stranger(net::Socket socket, uint32_t its_rail, std::string its_interface, Nanos its_deadline)
        : stream(std::move(socket)),
          rail(its_rail),
          interface(std::move(its_interface)),
          deadline(its_deadline) {}
    Stream stream;
    uint32_t rail;
    std::string interface;  // the rail's
    Nanos deadline;
    HelloBytes hello{};
    size_t done = 0;  // bytes of the hello
  };
  struct Work {
    explicit Work(Stream its_stream) : stream(std::move(its_stream)) {}
    Stream stream;
    std::atomic<bool> is_over = false;
  };
  struct Running {
    std::thread thread;
    std::shared_ptr<Work> work;
  };

  Server() = default;
  void run();
  void accept(const Listener& listener);
  bool read_hello(Stranger& stranger);
  void answer(Stranger& stranger);
  void serve(Service service, Stream stream);
  void join_those_that_are_over();

  std::vector<Listener> listeners_;
  std::list<Stranger> strangers_;
  std::list<Running> services_;
  net::Socket wake_;  // becomes readable when the thread is to end
  std::thread thread_;
  uint32_t rank_ = 0;
  uint32_t size_ = 0;
  UniqueId token_;
};

}  // namespace nezha::check
