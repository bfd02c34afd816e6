// nezha-switch: an aggregation switch on an ordinary host. usage() below says how it is run.
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
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
#include "flare_offload/switchd/server.h"

namespace nezha::flare {
namespace {

constexpr absl::string_view kUsage = R"(Usage: nezha-switch --listen ADDRESS:PORT --session FILE...

An aggregation switch: adds up what the hosts of a session send it by UDP, block by block, and sends
them the results. Prints "ready" when it listens.

Options:
  --listen ADDRESS:PORT  where frames are received; IPv6 as [fd00::1]:7100
  --session FILE         a session to serve; may be given several times. Below is what it has
  --memory MIB           what all sessions' slots may take together (default: 64)
  --help                 print this
  --version              print the version

Signals: SIGUSR1 prints what was counted, as a line of JSON; SIGTERM and SIGINT do so and end it.
Exit status: 0 ended by a signal; 1 it cannot listen, install a session, or go on; 2 wrong usage.

Session files: )";

struct Options {
  Address listen;
  std::vector<std::string> sessions;
  size_t memory = size_t{64} << 20;
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

absl::Status set_listen(absl::string_view text, Options& options) {
  absl::StatusOr<Address> address = Address::parse(text);
  if (address.ok()) options.listen = *address;
  return address.ok()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat("--listen: ", address.status().message()));
}

// kCancelled: what was asked for has been printed. Other errors: of the command line.
absl::StatusOr<Options> parse_options(int argc, char** argv) {
  enum { kListen = 256, kSession, kMemory, kHelp, kVersion };
  const option known[] = {{"listen", required_argument, nullptr, kListen},
                          {"session", required_argument, nullptr, kSession},
                          {"memory", required_argument, nullptr, kMemory},
                          {"help", no_argument, nullptr, kHelp},
                          {"version", no_argument, nullptr, kVersion},
                          {}};
  Options options;
  opterr = 0;
  for (int found = 0; (found = getopt_long(argc, argv, ":", known, nullptr)) != -1;) {
    absl::Status status;
    switch (found) {
      case kListen:
        status = set_listen(optarg, options);
        break;
      case kSession:
        options.sessions.emplace_back(optarg);
        break;
      case kMemory:
        status = set_memory(optarg, options);
        break;
      case kHelp:
        std::fputs(absl::StrCat(kUsage, kSessionFormat).c_str(), stdout);
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
  if (options.listen.family() == AF_UNSPEC)
    return absl::InvalidArgumentError("--listen is missing");
  if (options.sessions.empty()) return absl::InvalidArgumentError("--session is missing");
  return options;
}

absl::StatusOr<std::unique_ptr<Server>> make_server(const Options& options) {
  absl::StatusOr<std::unique_ptr<Server>> server = Server::listen(options.listen, options.memory);
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

// A descriptor by which these signals come instead of interrupting anything.
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

// Until a signal says to end. For a short time after the last frame the next one is awaited without
// sleeping: waking up costs more than a small block's whole way.
absl::Status serve(Server& server, int signals) {
  constexpr Nanos kSpin = 50 * kMicrosecond;
  pollfd awaited[] = {{server.fd(), POLLIN, 0}, {signals, POLLIN, 0}};
  for (Nanos last = 0;;) {
    if (server.receive() > 0) {
      last = now();
    } else if (now() - last < kSpin) {
      sched_yield();
      continue;
    }
    if (poll(awaited, 2, now() - last < kSpin ? 0 : -1) < 0 && errno != EINTR) {
      return absl::ErrnoToStatus(errno, "waiting for frames");
    }
    signalfd_siginfo signal{};
    while (awaited[1].revents != 0 && read(signals, &signal, sizeof signal) == sizeof signal) {
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
  print("ready");
  return serve(**server, *signals);
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
  try {
    return nezha::flare::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("nezha-switch: no memory is left; a smaller --memory or smaller sessions\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nezha-switch: %s\n", error.what());
  }
  return 1;
}
