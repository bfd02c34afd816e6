// SPDX-License-Identifier: Apache-2.0
// nezha-manager: the network manager of a fabric of aggregation switches, as a process. kUsage
// below says how it is run.
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "flare_offload/manager/manager.h"
#include "flare_offload/programs/service.h"

namespace nezha::flare {
namespace {

constexpr const char* kProgram = "nezha-manager";

constexpr absl::string_view kUsage =
    R"(Usage: nezha-manager --listen ADDRESS:PORT --fabric FILE --secret FILE [OPTIONS]

Manages the aggregation switches of a fabric: gives the hosts of a job a reduction tree over the
switches that have room, and gives each session its keys. Hosts name the manager in a rail,
flare:INTERFACE@ADDRESS:PORT. Prints "ready" when it listens.

Options:
  --listen ADDRESS:PORT  the address at which hosts connect to the manager, by TCP
  --fabric FILE          the switches, the hosts and their links; the format is described below
  --secret FILE          the secret that the hosts, the switches and the manager share: a line of at
                         least 16 bytes
  --sessions N           how many sessions a switch may have. A job takes one for each operation
                         that it may have in flight, 4 unless its rail says otherwise (default: 64)
  --lease SECONDS        how long a session stays if nobody renews it (default: 10)
  --help                 print this help
  --version              print the version

Signals: SIGUSR1 prints the switches and jobs as a line of JSON. SIGTERM and SIGINT end the manager.
The sessions stay on the switches while their leases last, and a manager that starts in that time
takes them over.
Exit status: 0 ended by a signal; 1 it cannot listen, or read a file; 2 wrong usage.

The fabric's file: )";

struct Options {
  Address listen;
  std::string fabric;
  std::string secret;
  int sessions = 64;
  int lease = 10;  // seconds
};

// The table has no help: kUsage is the help.
Options parse_options(int argc, char** argv) {
  Options o;
  constexpr absl::string_view kRange = "not a number from 1 to ";
  read_service_options(
      kProgram, absl::StrCat(kUsage, kFabricFormat),
      {{0, "listen", "ADDRESS:PORT", "",
        [&](const auto& v) { o.listen = to_address("--listen", v); }},
       {0, "fabric", "FILE", "", [&](const auto& v) { o.fabric = v; }},
       {0, "secret", "FILE", "", [&](const auto& v) { o.secret = v; }},
       {0, "sessions", "N", "", [&](const auto& v) { o.sessions = to_number(v, kRange, 65536); }},
       {0, "lease", "SECONDS", "", [&](const auto& v) { o.lease = to_number(v, kRange, 3600); }}},
      argc, argv);
  if (o.listen.family() == AF_UNSPEC) throw UsageError("--listen is missing");
  if (o.fabric.empty()) throw UsageError("--fabric is missing");
  if (o.secret.empty()) throw UsageError("--secret is missing");
  return o;
}

absl::StatusOr<Fabric> read_fabric(const std::string& path) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  absl::StatusOr<Fabric> fabric = parse_fabric(text);
  if (fabric.ok()) return fabric;
  return absl::Status(fabric.status().code(), absl::StrCat(path, ": ", fabric.status().message()));
}

// Acts on the signals that the descriptor receives.
class Signals final : public EventHandler {
 public:
  Signals(int fd, const Manager& manager, Progress& progress, Waiter& over)
      : fd_(fd), manager_(manager), progress_(progress), over_(over) {}
  absl::Status start() { return progress_.add(fd_, this, EPOLLIN); }
  void stop() { progress_.remove(fd_); }

 private:
  void on_events(uint32_t /*epoll_events*/) override {
    signalfd_siginfo signal{};
    while (read(fd_, &signal, sizeof signal) == sizeof signal) {
      if (signal.ssi_signo == SIGUSR1) {
        print(manager_.statistics());
      } else {
        progress_.finish(over_);
      }
    }
  }

  const int fd_;
  const Manager& manager_;
  Progress& progress_;
  Waiter& over_;
};

absl::Status run(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  const absl::StatusOr<int> fd = receive_signals();
  if (!fd.ok()) return fd.status();
  absl::StatusOr<Fabric> fabric = read_fabric(options.fabric);
  if (!fabric.ok()) return fabric.status();
  const absl::StatusOr<Secret> secret = read_secret(options.secret);
  if (!secret.ok()) return secret.status();
  const auto progress = Progress::create();
  if (!progress.ok()) return progress.status();
  Progress::Guard guard(**progress);
  Waiter over;
  Manager manager(**progress,
                  {.fabric = *std::move(fabric),
                   .sessions = options.sessions,
                   .lease = options.lease * kSecond},
                  *secret);
  Signals signals(*fd, manager, **progress, over);
  if (absl::Status status = signals.start(); !status.ok()) return status;
  absl::Status listening = manager.listen(options.listen);
  if (listening.ok()) {
    print("ready");
    // wait() needs a deadline; this one has no meaning.
    while (!(*progress)->wait(guard, over, now() + 3600 * kSecond)) continue;
  }
  signals.stop();
  return listening;
}

}  // namespace
}  // namespace nezha::flare

int main(int argc, char** argv) {
  return nezha::flare::run_service(nezha::flare::kProgram,
                                   [&] { return nezha::flare::run(argc, argv); });
}
