// Tells when an interface loses or regains its carrier, from the kernel's link notifications.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transport/progress.h"
#include "transport/tcp/socket.h"

namespace nezha::tcp {

class CarrierMonitor final : EventHandler {
 public:
  using Changed = std::function<void(bool up)>;

  // Under Progress's lock; `changed` is called under it, on each notification.
  static absl::StatusOr<std::unique_ptr<CarrierMonitor>> create(Progress& progress,
                                                                const std::string& interface,
                                                                Changed changed);
  ~CarrierMonitor() override;

 private:
  CarrierMonitor(Progress& progress, std::string interface, Changed changed)
      : progress_(progress), interface_(std::move(interface)), changed_(std::move(changed)) {}
  void on_events(uint32_t events) override;

  Progress& progress_;
  std::string interface_;
  Changed changed_;
  Socket socket_;
};

}  // namespace nezha::tcp
