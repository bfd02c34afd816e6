// The tcp rail: a listener on one interface, and connections through it.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "absl/strings/string_view.h"
#include "transport/device.h"
#include "transport/progress.h"
#include "transport/tcp/carrier_monitor.h"
#include "transport/tcp/socket.h"

namespace nezha::tcp {

struct DeviceOptions {
  std::string interface;
  std::string rail;        // its name
  int family = AF_UNSPEC;  // AF_INET, AF_INET6, or whichever address there is
  Cpus cpus = {};          // of a thread that handles its links; empty: it has none
};

class TcpDevice final : public Device, EventHandler {
 public:
  // Under Progress's lock, as all of it. `acceptor` outlives the device.
  static absl::StatusOr<std::unique_ptr<TcpDevice>> create(Progress& progress, Acceptor& acceptor,
                                                           Rail rail, const DeviceOptions& options);
  ~TcpDevice() override;

  std::unique_ptr<Attempt> connect(absl::string_view address, const wire::Hello& hello,
                                   Connected done) override;
  absl::Status can_reach(absl::string_view address) const override;
  std::string address() const override { return published_; }
  bool carrier() const override { return carrier_; }

 private:
  class Incoming;  // a connection whose hello is being read

  TcpDevice(Progress& progress, Acceptor& acceptor, Rail rail, const DeviceOptions& options);
  absl::Status listen(int family);
  void stop_accepting(int error);
  void on_events(uint32_t events) override;
  void finish(Incoming& incoming);
  void drop(const Incoming& incoming);

  // Strangers may connect: neither many nor for long.
  static constexpr size_t kMaxIncoming = 1024;
  // How long connections wait in the kernel when there is no descriptor or memory for them.
  static constexpr Nanos kAcceptPause = 100 * kMillisecond;

  Progress& progress_;
  Acceptor& acceptor_;
  DeviceOptions options_;
  Progress::RailThread* thread_ = nullptr;
  Address address_;  // of the interface; port 0
  std::string published_;
  Socket listener_;
  Alarm accept_again_;
  bool short_of_means_ = false;  // to accept with, since the last connection
  bool carrier_ = false;
  std::unique_ptr<CarrierMonitor> monitor_;
  // By address, so that each can be found by what it calls back with.
  std::unordered_map<const Incoming*, std::unique_ptr<Incoming>> incoming_;
};

}  // namespace nezha::tcp
