// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/programs/service.h"

#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/standard_descriptors.h"
#include "nezha/version.h"

namespace nezha::flare {
namespace {

std::string describe(const BadOption& bad) {
  return bad.needs_value ? bad.word + " needs a value" : "unknown option '" + bad.word + "'";
}

// Prints the text and ends the program, so that what is behind --help on the command line is not
// read.
[[noreturn]] void answer(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::exit(0);
}

void print_error(const char* program, absl::string_view error) {
  std::fputs(absl::StrCat(program, ": ", error, "\n").c_str(), stderr);
}

}  // namespace

void read_service_options(const char* program, const std::string& help, OptionTable table, int argc,
                          char** argv) {
  const std::string version = absl::StrCat(program, " ", NEZHA_VERSION, "\n");
  table.push_back({0, "help", "", "", [&](const auto&) { answer(help); }});
  table.push_back({0, "version", "", "", [&](const auto&) { answer(version); }});
  const std::vector<std::string> words = read_options(table, argc, argv, describe);
  if (!words.empty()) throw UsageError("unexpected '" + words.front() + "'");
}

int to_number(const std::string& text, absl::string_view range, int most) {
  int number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 1 && number <= most) return number;
  throw BadValue(absl::StrCat(range, most));
}

net::Address to_address(absl::string_view option, const std::string& text) {
  const absl::StatusOr<net::Address> address = net::Address::parse(text);
  if (address.ok()) return *address;
  throw UsageError(absl::StrCat(option, ": ", address.status().message()));
}

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

int run_service(const char* program, const std::function<absl::Status()>& serve) {
  occupy_standard_descriptors();
  // The service goes on when nobody reads the output any more.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const absl::Status status = serve();
    if (status.ok()) return 0;
    print_error(program, status.message());
  } catch (const UsageError& error) {
    return refuse_usage(program, error);
  } catch (const std::exception& error) {
    print_error(program, error.what());
  }
  return 1;
}

}  // namespace nezha::flare
