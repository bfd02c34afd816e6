// SPDX-License-Identifier: Apache-2.0
// nezha-manager: the network manager of a fabric of aggregation switches, as a process. kUsage
// below says how it is run.
#include <getopt.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/standard_descriptors.h"
#include "flare_offload/manager/manager.h"
#include "nezha/version.h"

namespace nezha::flare {
namespace {

constexpr absl::string_view kUsage =
    R"(Usage: nezha-manager --listen ADDRESS:PORT --fabric FILE --secret FILE [OPTIONS]

The network manager of a fabric of aggregation switches: gives the hosts of a job a reduction tree
over the switches that have room, and each session its keys. Hosts name it in a rail,
flare:INTERFACE@ADDRESS:PORT. Prints "ready" when it listens.

Options:
  --listen ADDRESS:PORT  where hosts connect to, by TCP
  --fabric FILE          the switches, the hosts and their links. Below is what it has
  --secret FILE          what hosts, switches and this have in common: a line, 16 bytes at least
  --sessions N           that a switch may have; a job takes one for each operation that it may have
                         in flight, 4 unless its rail says otherwise (default: 64)
  --lease SECONDS        how long a session stays that nobody renews (default: 10)
  --help                 print this
  --version              print the version

Signals: SIGUSR1 prints its switches and jobs, as a line of JSON; SIGTERM and SIGINT end it, and the
sessions stay on the switches while their leases last: a manager that starts meanwhile takes them
over.
Exit status: 0 ended by a signal; 1 it cannot listen, or read a file; 2 wrong usage.

The fabric's file: )";

struct Options {
  Address listen;
  std::string fabric;
  std::string secret;
  int sessions = 64;
  int lease = 10;  // seconds
};

absl::Status set_number(absl::string_view name, absl::string_view text, int most, int& to) {
  int value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 1 || value > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " '", text, "': a number from 1 to ", most));
  }
  to = value;
  return absl::OkStatus();
}

absl::Status set_listen(absl::string_view text, Address& to) {
  absl::StatusOr<Address> address = Address::parse(text);
  if (address.ok()) to = *address;
  return address.ok()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat("--listen: ", address.status().message()));
}

absl::Status check(const Options& options) {
  if (options.listen.family() == AF_UNSPEC)
    return absl::InvalidArgumentError("--listen is missing");
  if (options.fabric.empty()) return absl::InvalidArgumentError("--fabric is missing");
  if (options.secret.empty()) return absl::InvalidArgumentError("--secret is missing");
  return absl::OkStatus();
}

// kCancelled: the help or the version has been printed. Other errors are about the command line.
absl::StatusOr<Options> parse_options(int argc, char** argv) {
  enum { kListen = 256, kFabric, kSecret, kSessions, kLease, kHelp, kVersion };
  const option known[] = {{"listen", required_argument, nullptr, kListen},
                          {"fabric", required_argument, nullptr, kFabric},
                          {"secret", required_argument, nullptr, kSecret},
                          {"sessions", required_argument, nullptr, kSessions},
                          {"lease", required_argument, nullptr, kLease},
                          {"help", no_argument, nullptr, kHelp},
                          {"version", no_argument, nullptr, kVersion},
                          {}};
  Options options;
  opterr = 0;
  for (int found = 0; (found = getopt_long(argc, argv, ":", known, nullptr)) != -1;) {
    absl::Status status;
    switch (found) {
      case kListen:
        status = set_listen(optarg, options.listen);
        break;
      case kFabric:
        options.fabric = optarg;
        break;
      case kSecret:
        options.secret = optarg;
        break;
      case kSessions:
        status = set_number("--sessions", optarg, 65536, options.sessions);
        break;
      case kLease:
        status = set_number("--lease", optarg, 3600, options.lease);
        break;
      case kHelp:
        std::fputs(absl::StrCat(kUsage, kFabricFormat).c_str(), stdout);
        return absl::CancelledError();
      case kVersion:
        std::puts("nezha-manager " NEZHA_VERSION);
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

absl::StatusOr<Fabric> read_fabric(const std::string& path) {
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  absl::StatusOr<Fabric> fabric = parse_fabric(text);
  if (fabric.ok()) return fabric;
  return absl::Status(fabric.status().code(), absl::StrCat(path, ": ", fabric.status().message()));
}

void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// Signals come by a descriptor instead of interrupting anything.
class Signals final : public EventHandler {
 public:
  Signals(Progress& progress, Waiter& over) : progress_(progress), over_(over) {}
  ~Signals() override { close(fd_); }

  // To be called before any thread is made.
  static void block() {
    const sigset_t set = signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
  }
  absl::Status start(const Manager& manager) {
    manager_ = &manager;
    const sigset_t set = signals();
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return progress_.add(fd_, this, EPOLLIN);
  }
  void stop() { progress_.remove(fd_); }

 private:
  static sigset_t signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, signal);
    return set;
  }
  void on_events(uint32_t /*epoll_events*/) override {
    signalfd_siginfo signal{};
    while (read(fd_, &signal, sizeof signal) == sizeof signal) {
      if (signal.ssi_signo == SIGUSR1) {
        print(manager_->statistics());
      } else {
        progress_.finish(over_);
      }
    }
  }

  Progress& progress_;
  Waiter& over_;
  const Manager* manager_ = nullptr;
  int fd_ = -1;
};

absl::Status run(const Options& options) {
  Signals::block();
  absl::StatusOr<Fabric> fabric = read_fabric(options.fabric);
  if (!fabric.ok()) return fabric.status();
  const absl::StatusOr<Secret> secret = read_secret(options.secret);
  if (!secret.ok()) return secret.status();
  const auto progress = Progress::create();
  if (!progress.ok()) return progress.status();
  Progress::Guard guard(**progress);
  Waiter over;
  Signals signals(**progress, over);
  Manager manager(**progress,
                  {.fabric = *std::move(fabric),
                   .sessions = options.sessions,
                   .lease = options.lease * kSecond},
                  *secret);
  if (absl::Status status = signals.start(manager); !status.ok()) return status;
  absl::Status listening = manager.listen(options.listen);
  if (listening.ok()) {
    print("ready");
    // wait() needs a deadline; this one has no meaning.
    while (!(*progress)->wait(guard, over, now() + 3600 * kSecond)) continue;
  }
  signals.stop();
  return listening;
}

void print_error(absl::string_view message) {
  std::fputs(absl::StrCat("nezha-manager: ", message, "\n").c_str(), stderr);
}

int run(int argc, char** argv) {
  const absl::StatusOr<Options> options = parse_options(argc, argv);
  if (absl::IsCancelled(options.status())) return 0;
  if (!options.ok()) {
    print_error(absl::StrCat(options.status().message(), "\nTry nezha-manager --help."));
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
  // The jobs go on when nobody reads the output any more.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return nezha::flare::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nezha-manager: %s\n", error.what());
    return 1;
  }
}
