// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/device.h"

#include "transport/framed_link.h"
#include "transport/tcp/stream.h"

namespace nezha::tcp {
namespace {

// The link uses the connection itself, and neither end needs to know more of the other.
class TcpEnd final : public LinkEnd {
 public:
  TcpEnd(Progress& progress, Progress::RailThread* thread, RailCounters& counters)
      : progress_(progress), thread_(thread), counters_(counters) {}

  std::string greeting() override { return ""; }
  void make(net::Socket socket, absl::string_view, bool, Made made) override {
    made(std::make_unique<FramedLink>(progress_, thread_,
                                      std::make_unique<TcpStream>(std::move(socket)), counters_));
  }

 private:
  Progress& progress_;
  Progress::RailThread* thread_;
  RailCounters& counters_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TcpDevice>> TcpDevice::create(Progress& progress, Acceptor& acceptor,
                                                             Rail rail,
                                                             const DeviceOptions& options) {
  std::unique_ptr<TcpDevice> device(
      new TcpDevice(progress, acceptor, rail, static_cast<const InterfaceOptions&>(options)));
  if (absl::Status status = device->open(); !status.ok()) return status;
  if (options.cpus.empty()) {
    device->thread_ = progress.add_rail_thread(options.interface, options.near);
    return device;
  }
  const auto thread =
      progress.start_rail_thread(options.interface, options.cpus, Progress::Duty::kWhenCalled);
  if (!thread.ok()) return thread.status();
  device->thread_ = *thread;
  return device;
}

absl::StatusOr<std::unique_ptr<LinkEnd>> TcpDevice::new_end() {
  return std::make_unique<TcpEnd>(progress(), thread_, counters());
}

}  // namespace nezha::tcp
