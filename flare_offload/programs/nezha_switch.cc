// SPDX-License-Identifier: Apache-2.0
// nezha-switch: an aggregation switch on an ordinary host. kUsage below says how it is run.
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "flare_offload/programs/service.h"
#include "flare_offload/switchd/control.h"
#include "flare_offload/switchd/server.h"

namespace nezha::flare {
namespace {

constexpr const char* kProgram = "nezha-switch";

constexpr absl::string_view kUsage = R"(Usage: nezha-switch --listen ADDRESS:PORT [OPTIONS]

An aggregation switch: adds up the data that the hosts of a session send by UDP, block by block,
and sends the results to the hosts. Sessions come from files, or from a nezha-manager through the
control port. Prints "ready" when it listens.

Options:
  --listen ADDRESS:PORT   the address at which frames are received; IPv6 as [fd00::1]:7100
  --control ADDRESS:PORT  the address at which managers connect, by TCP
  --secret FILE           with --control: the secret that managers must know, a line of at least 16
                          bytes
  --session FILE          a session to serve; may be given several times. The format is described
                          below
  --memory MIB            how much the slots of all sessions may take together (default: 128)
  --threads N             threads that add up, 1 to 64 (default: half of the CPUs that this process
                          may run on, at most 4). One thread handles all of a session; sessions with
                          consecutive numbers have different threads
  --help                  print this help
  --version               print the version

Signals: SIGUSR1 prints the counters as a line of JSON, which is described below. SIGTERM and SIGINT
print them and end the switch.
Exit status: 0 ended by a signal; 1 it cannot listen, install a session, or go on; 2 wrong usage.

Session files: )";

// Returns half of the number of CPUs, from 1 to kMost: the kernel has as much to do with each
// frame, and gets the other half.
int default_threads() {
  constexpr int kMost = 4;
  return std::clamp(static_cast<int>(allowed_cpus().size()) / 2, 1, kMost);
}

struct Options {
  Address listen;
  Address control;     // no family: there is none
  std::string secret;  // the file's name
  std::vector<std::string> sessions;
  size_t memory = size_t{128} << 20;
  int threads = default_threads();
};

absl::StatusOr<std::string> contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return text.str();
}

void check(const Options& o) {
  const bool has_control = o.control.family() != AF_UNSPEC;
  if (o.listen.family() == AF_UNSPEC) throw UsageError("--listen is missing");
  if (has_control == o.secret.empty()) throw UsageError("--control and --secret go together");
  if (!has_control && o.sessions.empty()) throw UsageError("--session or --control is missing");
}

// The table has no help: kUsage is the help.
Options parse_options(int argc, char** argv) {
  Options o;
  constexpr int kMostMebibytes = 1 << 20;
  const auto to_memory = [](const std::string& text) {
    return static_cast<size_t>(to_number(text, "not a number of MiB from 1 to ", kMostMebibytes))
           << 20;
  };
  read_service_options(kProgram, absl::StrCat(kUsage, kSessionFormat, "\n", kStatisticsFormat),
                       {{0, "listen", "ADDRESS:PORT", "",
                         [&](const auto& v) { o.listen = to_address("--listen", v); }},
                        {0, "control", "ADDRESS:PORT", "",
                         [&](const auto& v) { o.control = to_address("--control", v); }},
                        {0, "secret", "FILE", "", [&](const auto& v) { o.secret = v; }},
                        {0, "session", "FILE", "", [&](const auto& v) { o.sessions.push_back(v); }},
                        {0, "memory", "MIB", "", [&](const auto& v) { o.memory = to_memory(v); }},
                        {0, "threads", "N", "",
                         [&](const auto& v) {
                           o.threads = to_number(v, "not a number from 1 to ", Server::kMaxThreads);
                         }}},
                       argc, argv);
  check(o);
  return o;
}

absl::StatusOr<std::unique_ptr<Server>> make_server(const Options& options) {
  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::listen(options.listen, options.memory, options.threads);
  if (!server.ok()) return server.status();
  for (const std::string& path : options.sessions) {
    const absl::StatusOr<std::string> text = contents(path);
    if (!text.ok()) return text.status();
    const absl::StatusOr<SessionSpec> spec = parse_session(*text);
    const absl::Status status = spec.ok() ? (*server)->install(*spec) : spec.status();
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
    }
  }
  return server;
}

// Returns null if the switch has no control port.
absl::StatusOr<std::unique_ptr<Control>> make_control(const Options& options, Server* server) {
  if (options.secret.empty()) return nullptr;
  const absl::StatusOr<Secret> secret = read_secret(options.secret);
  if (!secret.ok()) return secret.status();
  return Control::listen(options.control, *secret, server);
}

// Returns the time until the control port is due, in milliseconds, as poll() takes it.
int timeout_until(const Control* control) {
  const Nanos due = control == nullptr ? std::numeric_limits<Nanos>::max() : control->next_due();
  if (due == std::numeric_limits<Nanos>::max()) return -1;
  constexpr Nanos kMost = 60 * kSecond;
  return static_cast<int>((std::clamp<Nanos>(due - now(), 0, kMost) + kMillisecond - 1) /
                          kMillisecond);
}

// Serves until a signal says to end.
absl::Status serve(Server& server, Control* control, int signals) {
  std::vector<pollfd> awaited;
  for (;;) {
    awaited = {{signals, POLLIN, 0}, {server.failure_fd(), POLLIN, 0}};
    if (control != nullptr) control->add_to(awaited);
    if (poll(awaited.data(), awaited.size(), timeout_until(control)) < 0 && errno != EINTR) {
      return absl::ErrnoToStatus(errno, "waiting for managers");
    }
    if (absl::Status why = server.failure(); awaited[1].revents != 0 && !why.ok()) return why;
    if (control != nullptr) control->handle();
    signalfd_siginfo signal{};
    while (awaited[0].revents != 0 && read(signals, &signal, sizeof signal) == sizeof signal) {
      print(server.statistics());
      if (signal.ssi_signo != SIGUSR1) return absl::OkStatus();
    }
  }
}

absl::Status run(const Options& options) {
  const absl::StatusOr<int> signals = receive_signals();
  if (!signals.ok()) return signals.status();
  const absl::StatusOr<std::unique_ptr<Server>> server = make_server(options);
  if (!server.ok()) return server.status();
  const absl::StatusOr<std::unique_ptr<Control>> control = make_control(options, server->get());
  if (!control.ok()) return control.status();
  print("ready");
  return serve(**server, control->get(), *signals);
}

absl::Status run(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  try {
    return run(options);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "no memory is left; choose a smaller --memory or smaller sessions");
  }
}

}  // namespace
}  // namespace nezha::flare

int main(int argc, char** argv) {
  return nezha::flare::run_service(nezha::flare::kProgram,
                                   [&] { return nezha::flare::run(argc, argv); });
}
