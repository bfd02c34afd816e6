// SPDX-License-Identifier: Apache-2.0
// nezha-switch: an aggregation switch on an ordinary host. usage() below says how it is run.
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/standard_descriptors.h"
#include "flare_offload/switchd/control.h"
#include "flare_offload/switchd/server.h"
#include "nezha/version.h"

namespace nezha::flare {
namespace {

constexpr absl::string_view kUsage = R"(Usage: nezha-switch --listen ADDRESS:PORT [OPTIONS]

An aggregation switch: adds up what the hosts of a session send it by UDP, block by block, and sends
them the results. Sessions come from files, or from a nezha-manager by the control port. Prints
"ready" when it listens.

Options:
  --listen ADDRESS:PORT   where frames are received; IPv6 as [fd00::1]:7100
  --control ADDRESS:PORT  where managers connect to, by TCP
  --secret FILE           what managers prove to have, with --control: a line, 16 bytes at least
  --session FILE          a session to serve; may be given several times. Below is what it has
  --memory MIB            what all sessions' slots may take together (default: 128)
  --threads N             threads that add up, 1 to 64 (default: half of the CPUs that this process
                          may run on, at most 4). A session is one thread's, all of it; sessions
                          with consecutive numbers are different threads'
  --help                  print this
  --version               print the version

Signals: SIGUSR1 prints what was counted, as a line of JSON; SIGTERM and SIGINT do so and end it.
Below is what the line has.
Exit status: 0 ended by a signal; 1 it cannot listen, install a session, or go on; 2 wrong usage.

Session files: )";

// Half of the CPUs: the kernel has as much to do with each frame, and gets the other half.
int default_threads() {
  constexpr int kMost = 4;
  return std::clamp(static_cast<int>(allowed_cpus().size()) / 2, 1, kMost);
}

struct Options {
  Address listen;
  Address control;     // of no family: there is none
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

absl::Status set_memory(absl::string_view text, Options& options) {
  constexpr uint32_t kMost = 1 << 20;
  uint32_t mebibytes = 0;
  if (!absl::SimpleAtoi(text, &mebibytes) || mebibytes == 0 || mebibytes > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("--memory '", text, "': a number of MiB, 1 to ", kMost));
  }
  options.memory = size_t{mebibytes} << 20;
  return absl::OkStatus();
}

absl::Status set_threads(absl::string_view text, Options& options) {
  if (absl::SimpleAtoi(text, &options.threads) && options.threads >= 1 &&
      options.threads <= Server::kMaxThreads) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--threads '", text, "': a number, 1 to ", Server::kMaxThreads));
}

absl::Status set_address(absl::string_view option, absl::string_view text, Address& to) {
  absl::StatusOr<Address> address = Address::parse(text);
  if (address.ok()) to = *address;
  return address.ok()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat(option, ": ", address.status().message()));
}

absl::Status check(const Options& options) {
  const bool has_control = options.control.family() != AF_UNSPEC;
  if (options.listen.family() == AF_UNSPEC)
    return absl::InvalidArgumentError("--listen is missing");
  if (has_control == options.secret.empty())
    return absl::InvalidArgumentError("--control and --secret go together");
  if (!has_control && options.sessions.empty())
    return absl::InvalidArgumentError("--session is missing, or --control");
  return absl::OkStatus();
}

// kCancelled: the help or the version has been printed. Other errors are about the command line.
absl::StatusOr<Options> parse_options(int argc, char** argv) {
  enum { kListen = 256, kControl, kSecret, kSession, kMemory, kThreads, kHelp, kVersion };
  const option known[] = {{"listen", required_argument, nullptr, kListen},
                          {"control", required_argument, nullptr, kControl},
                          {"secret", required_argument, nullptr, kSecret},
                          {"session", required_argument, nullptr, kSession},
                          {"memory", required_argument, nullptr, kMemory},
                          {"threads", required_argument, nullptr, kThreads},
                          {"help", no_argument, nullptr, kHelp},
                          {"version", no_argument, nullptr, kVersion},
                          {}};
  Options options;
  opterr = 0;
  for (int found = 0; (found = getopt_long(argc, argv, ":", known, nullptr)) != -1;) {
    absl::Status status;
    switch (found) {
      case kListen:
        status = set_address("--listen", optarg, options.listen);
        break;
      case kControl:
        status = set_address("--control", optarg, options.control);
        break;
      case kSecret:
        options.secret = optarg;
        break;
      case kSession:
        options.sessions.emplace_back(optarg);
        break;
      case kMemory:
        status = set_memory(optarg, options);
        break;
      case kThreads:
        status = set_threads(optarg, options);
        break;
      case kHelp:
        std::fputs(absl::StrCat(kUsage, kSessionFormat, "\n", kStatisticsFormat).c_str(), stdout);
        return absl::CancelledError();
      case kVersion:
        std::puts("nezha-switch " NEZHA_VERSION);
        return absl::CancelledError();
      case ':':
        return absl::InvalidArgumentError(absl::StrCat(argv[optind - 1], " needs a value"));
      default:
        return absl::InvalidArgumentError(absl::StrCat("unknown option '", argv[optind - 1], "'"));
    }
    if (!status.ok()) return status;
  }
  if (optind < argc) {
    return absl::InvalidArgumentError(absl::StrCat("unexpected '", argv[optind], "'"));
  }
  if (absl::Status status = check(options); !status.ok()) return status;
  return options;
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

// Null: the switch has no control port.
absl::StatusOr<std::unique_ptr<Control>> make_control(const Options& options, Server* server) {
  if (options.secret.empty()) return nullptr;
  const absl::StatusOr<Secret> secret = read_secret(options.secret);
  if (!secret.ok()) return secret.status();
  return Control::listen(options.control, *secret, server);
}

// A descriptor that receives these signals, so that they interrupt nothing, not even threads that
// start later.
absl::StatusOr<int> receive_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "making a descriptor for signals");
  return fd;
}

void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// In milliseconds, as poll() takes it.
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

void print_error(absl::string_view message) {
  std::fputs(absl::StrCat("nezha-switch: ", message, "\n").c_str(), stderr);
}

int run(int argc, char** argv) {
  const absl::StatusOr<Options> options = parse_options(argc, argv);
  if (absl::IsCancelled(options.status())) return 0;
  if (!options.ok()) {
    print_error(absl::StrCat(options.status().message(), "\nTry nezha-switch --help."));
    return 2;
  }
  const absl::Status status = run(*options);
  if (!status.ok()) print_error(status.message());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace nezha::flare

int main(int argc, char** argv) {
  nezha::occupy_standard_descriptors();
  // The sessions go on when nobody reads the output any more.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return nezha::flare::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("nezha-switch: no memory is left; a smaller --memory or smaller sessions\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nezha-switch: %s\n", error.what());
  }
  return 1;
}
