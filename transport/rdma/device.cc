// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/device.h"

#include <net/if.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "transport/rdma/end.h"
#include "transport/rdma/link.h"

namespace nezha::rdma {
namespace {

bool is_same(const Choice& one, const Choice& other) {
  return one.device == other.device && one.port.number == other.port.number &&
         one.gid.index == other.gid.index &&
         std::memcmp(one.gid.gid.raw, other.gid.gid.raw, sizeof one.gid.gid.raw) == 0;
}

}  // namespace

RdmaDevice::RdmaDevice(Progress& progress, Acceptor& acceptor, Rail rail,
                       InterfaceOptions interface, const DeviceOptions& options, const Verbs& verbs)
    : InterfaceDevice(progress, acceptor, rail, std::move(interface)),
      ports_(options.ports),
      verbs_(verbs),
      look_again_(progress, [this] { on_port(); }) {}

absl::StatusOr<std::unique_ptr<RdmaDevice>> RdmaDevice::create(Progress& progress,
                                                               Acceptor& acceptor, Rail rail,
                                                               const DeviceOptions& options,
                                                               const Verbs& verbs) {
  const auto choice = choose_now(options.wish, verbs);
  if (!choice.ok()) return choice.status();
  InterfaceOptions interface;
  interface.interface = choice->via;
  interface.rail = options.rail;
  interface.ports = options.ports;
  interface.address.named = options.wish.address;
  std::unique_ptr<RdmaDevice> device(
      new RdmaDevice(progress, acceptor, rail, std::move(interface), options, verbs));
  if (!options.cpus.empty()) {
    const auto thread = progress.start_rail_thread(choice->device, options.cpus);
    if (!thread.ok()) return thread.status();
    device->thread_ = *thread;
  }
  auto lookout = Lookout::create(
      progress, options.wish, verbs,
      [&it = *device](const absl::StatusOr<Choice>& found) { it.on_choice(found); });
  if (!lookout.ok()) return lookout.status();
  device->lookout_ = *std::move(lookout);
  if (absl::Status status = device->open_adapter(*choice); !status.ok()) return status;
  if (absl::Status status = device->open(); !status.ok()) return status;
  return device;
}

RdmaDevice::~RdmaDevice() { close_adapter(); }

absl::Status RdmaDevice::open_adapter(const Choice& choice) {
  auto adapter = Adapter::open(
      progress(), verbs_, choice, [this] { on_port(); }, thread_);
  if (!adapter.ok()) return adapter.status();
  if (absl::Status status = (*adapter)->listen(ports_); !status.ok()) return status;
  if (absl::Status status = watch_interface(choice); !status.ok()) return status;
  adapter_ = *std::move(adapter);
  speed_ = choice.port.speed;
  log().info("{}: {}", name(), choice.why);
  return absl::OkStatus();
}

absl::Status RdmaDevice::watch_interface(const Choice& choice) {
  if (!choice.is_iwarp) return absl::OkStatus();
  char name[IF_NAMESIZE];
  if (if_indextoname(static_cast<unsigned>(choice.gid.interface), name) == nullptr) {
    return absl::UnavailableError(absl::StrCat("the interface of ", choice.device, " is gone"));
  }
  auto monitor = InterfaceMonitor::create(progress(), name, [this](const net::InterfaceState&) {
    if (adapter_ != nullptr) on_port();
  });
  if (!monitor.ok()) return monitor.status();
  monitor_ = *std::move(monitor);
  return absl::OkStatus();
}

// The last of its links closes the device itself.
void RdmaDevice::close_adapter() {
  if (adapter_ != nullptr) adapter_->forget_owner();
  adapter_ = nullptr;
}

DeviceTraits RdmaDevice::traits() const {
  return {.least_segment = kLeastSegment, .nominal_rate = speed_ > 0 ? speed_ : kUnknownSpeed};
}

absl::StatusOr<std::unique_ptr<LinkEnd>> RdmaDevice::new_end() {
  if (adapter_ == nullptr) return absl::UnavailableError("the device is gone");
  auto link = RdmaLink::create(progress(), adapter_, counters());
  if (!link.ok()) return link.status();
  return std::make_unique<RdmaEnd>(progress(), *std::move(link));
}

// ---- A device that changes ---------------------------------------------------------------------

void RdmaDevice::on_port() {
  const absl::Status state = port_state();
  if (!state.ok()) set_usable(false, state.message());
  if (absl::IsNotFound(state)) close_adapter();
  lookout_->ask();
}

absl::Status RdmaDevice::port_state() const {
  return adapter_ == nullptr ? absl::NotFoundError("the device is gone") : adapter_->port_state();
}

// Looks again at a device that cannot be used.
void RdmaDevice::on_choice(const absl::StatusOr<Choice>& choice) {
  // Queue pairs keep the address that the port had when the device was opened.
  if (port_state().ok() && choice.ok() && !is_same(*choice, adapter_->choice())) {
    set_usable(false, "the port has another address");
    close_adapter();
  }
  if (adapter_ == nullptr) {
    note_trouble(choice.ok() ? open_adapter(*choice) : choice.status());
  }
  const absl::Status state = port_state();
  set_usable(state.ok(), state.message());
  if (state.ok()) return look_again_.cancel();
  if (absl::IsNotFound(state)) close_adapter();
  look_again_.start(now() + kPause);
}

// Logs once why the device cannot be opened.
void RdmaDevice::note_trouble(const absl::Status& status) {
  const std::string trouble(status.message());
  if (!status.ok() && trouble != trouble_) {
    log().warn(
        "{}: the device cannot be used for now: {}; nezha tries again until it can use the device",
        name(), trouble);
  }
  trouble_ = trouble;
}

}  // namespace nezha::rdma
