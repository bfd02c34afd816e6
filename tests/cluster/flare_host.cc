// SPDX-License-Identifier: Apache-2.0
// One host of an in-network session, without nezha's engine. It runs allreduces over the switch and
// checks every result.
//
// flare_host SESSION SWITCH RANK RANKS ELEMENTS COUNT: SESSION is the session file that the switch
// has, too, and SWITCH its address. Sums ELEMENTS uint32 COUNT times. Prints "waits" when the
// switch first reports that a block waits for another rank. At the end it prints a line of JSON:
// the seconds of the fastest and of the median operation, and what was sent again. Exit status 0 if
// all results were right.
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "flare_offload/core/window.h"
#include "flare_offload/switchd/session_spec.h"
#include "flare_offload/udp/udp_port.h"

namespace nezha::flare {
namespace {

// The host gives the switch up after this long without a frame.
constexpr Nanos kSilence = 10 * kSecond;
// After a frame, the host polls this long for the next one before it sleeps.
constexpr Nanos kSpin = 50 * kMicrosecond;

template <typename T>
T value_of(absl::StatusOr<T> result) {
  if (!result.ok()) throw std::runtime_error(std::string(result.status().message()));
  return *std::move(result);
}

SessionSpec read_session(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return value_of(parse_session(text.str()));
}

size_t child_of(const SessionSpec& spec, int rank) {
  size_t child = 0;
  while (spec.table.children.at(child).first != rank) ++child;
  return child;
}

uint32_t input(int rank, size_t element, uint32_t operation) {
  const uint64_t x = (element * 1'000'003 + operation) * 64 + static_cast<uint64_t>(rank);
  return static_cast<uint32_t>((x * 0x9e3779b97f4a7c15) >> 32);
}

void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

class Host {
 public:
  Host(const SessionSpec& spec, const Address& at, int rank, int ranks, size_t elements)
      : spec_(spec),
        switch_(at),
        rank_(rank),
        ranks_(ranks),
        child_(child_of(spec, rank)),
        authenticator_(spec.key),
        port_(value_of(UdpPort::open(spec.children[child_], kMaxDatagram))),
        window_(spec.table.window, spec.table.first_seq, {}),
        input_(elements),
        output_(elements) {}

  // Runs two operations: one of a single element, after which all ranks begin at the same time, and
  // the one of all elements.
  void allreduce(uint32_t operation) {
    for (size_t i = 0; i < input_.size(); ++i) input_[i] = input(rank_, i, operation);
    reduce(2 * operation, 1);
    const Nanos begin = now();
    reduce(2 * operation + 1, input_.size());
    times_.push_back(now() - begin);
    check(operation);
  }
  std::vector<Nanos> times() const { return times_; }  // one for each operation
  uint64_t resent() const { return window_.resent(); }
  uint64_t pendings() const { return pendings_; }

 private:
  void step() {
    const Nanos time = now();
    while (const auto seq = window_.take_new(time)) send(*seq);
    while (const auto seq = window_.take_overdue(time)) send(*seq);
    port_.flush();
    if (time - window_.silent_since() > kSilence) {
      throw std::runtime_error(absl::StrCat("rank ", rank_, ": nothing from the switch at ",
                                            switch_.str(), " for 10 s"));
    }
    if (receive() > 0) return;
    if (const Nanos idle = now() - last_; idle < kSpin) {
      sched_yield();
      return;
    }
    const auto wait = std::max<Nanos>(window_.next_due() - time, 0);
    const timespec timeout = {wait / kSecond, wait % kSecond};
    pollfd awaited = {port_.fd(), POLLIN, 0};
    ppoll(&awaited, 1, &timeout, nullptr);
  }

  size_t receive() {
    const size_t count =
        port_.receive([&](absl::Span<const std::byte> datagram, const Address& from) {
          if (const auto frame = decode(datagram); frame && from == switch_) take(datagram, *frame);
        });
    if (count > 0) last_ = now();
    return count;
  }

  void reduce(uint32_t operation_id, size_t elements) {
    operation_ = operation_id;
    elements_ = elements;
    const size_t per_block = spec_.table.payload / sizeof(uint32_t);
    first_seq_ = window_.extend(static_cast<uint32_t>((elements + per_block - 1) / per_block));
    while (window_.unfinished() > 0) step();
  }

  // The range of elements that block `seq` covers.
  std::pair<size_t, size_t> part(uint32_t seq) const {
    const size_t per_block = spec_.table.payload / sizeof(uint32_t);
    const size_t first = size_t{seq - first_seq_} * per_block;
    return {first, std::min(per_block, elements_ - first)};
  }

  void send(uint32_t seq) {
    const auto [first, count] = part(seq);
    const FrameHeader header = {
        .type = FrameType::kContribution,
        .child = static_cast<uint8_t>(child_),
        .is_numbered = true,
        .number = window_.number_of(seq),
        .generation = spec_.generation,
        .session = spec_.session,
        .block = {seq, operation_, DataType::kUint32, ReduceOperation::kSum}};
    const absl::Span<const std::byte> payload(reinterpret_cast<const std::byte*>(&input_[first]),
                                              count * sizeof(uint32_t));
    port_.send(encode(header, payload, authenticator_, port_.buffer()), {&switch_, 1});
  }

  void ask_for(const NumberRange& numbers) {
    const FrameHeader header = {.type = FrameType::kLost,
                                .child = static_cast<uint8_t>(child_),
                                .number = window_.next_number(),
                                .generation = spec_.generation,
                                .session = spec_.session};
    port_.send(encode(header, encode_lost(numbers), authenticator_, port_.buffer()), {&switch_, 1});
  }

  void take(absl::Span<const std::byte> datagram, const Frame& frame) {
    const FrameHeader& header = frame.header;
    if (header.session != spec_.session || header.generation != spec_.generation ||
        !header.is_down || !authenticator_.verify(datagram)) {
      throw std::runtime_error("a frame of another session, or a forged one");
    }
    if (const NumberRange lost = window_.lost_before(header); lost.count > 0) ask_for(lost);
    const uint32_t seq = header.block.seq;
    if (header.type == FrameType::kMismatch) {
      const Mismatch mismatch = decode_mismatch(frame);
      throw std::runtime_error(absl::StrCat(
          "rank ", mismatch.other_ranks.first, " is in operation ", mismatch.other.operation_id,
          " with ", mismatch.other_length, " bytes, rank ", mismatch.ranks.first, " in operation ",
          header.block.operation_id, " with ", mismatch.length));
    }
    if (header.type == FrameType::kLost) {
      window_.on_lost(decode_lost(frame.payload), now());
    } else if (header.type == FrameType::kPending) {
      if (pendings_++ == 0) print("waits");
      window_.on_pending(seq, now());
    } else if (window_.on_result(seq, now())) {
      const auto [first, count] = part(seq);
      if (frame.payload.size() != count * sizeof(uint32_t)) {
        throw std::runtime_error("a result of another length");
      }
      std::memcpy(&output_[first], frame.payload.data(), frame.payload.size());
    }
  }

  void check(uint32_t operation) {
    for (size_t i = 0; i < output_.size(); ++i) {
      uint32_t sum = 0;
      for (int rank = 0; rank < ranks_; ++rank) sum += input(rank, i, operation);
      if (output_[i] != sum) {
        throw std::runtime_error(absl::StrCat("rank ", rank_, ": element ", i, " of operation ",
                                              operation, " is ", output_[i], ", not ", sum));
      }
    }
    std::fill(output_.begin(), output_.end(), 0);
  }

  const SessionSpec spec_;
  const Address switch_;
  const int rank_;
  const int ranks_;
  const size_t child_;
  Authenticator authenticator_;
  UdpPort port_;
  Window window_;
  uint32_t operation_ = 0;
  size_t elements_ = 0;  // of it
  uint32_t first_seq_ = 0;
  std::vector<uint32_t> input_;
  std::vector<uint32_t> output_;
  std::vector<Nanos> times_;
  Nanos last_ = 0;  // when the last frame arrived
  uint64_t pendings_ = 0;
};

int run(char** argv) {
  const size_t elements = std::strtoul(argv[5], nullptr, 10);
  const auto count = static_cast<uint32_t>(std::strtoul(argv[6], nullptr, 10));
  Host host(read_session(argv[1]), value_of(Address::parse(argv[2])), std::atoi(argv[3]),
            std::atoi(argv[4]), elements);
  for (uint32_t operation = 0; operation < count; ++operation) host.allreduce(operation);
  std::vector<Nanos> times = host.times();
  std::sort(times.begin(), times.end());
  const auto seconds = [](Nanos time) { return static_cast<double>(time) / kSecond; };
  std::printf("{\"fastest\": %.6f, \"median\": %.6f, \"resent\": %llu, \"pendings\": %llu}\n",
              seconds(times.front()), seconds(times[times.size() / 2]),
              static_cast<unsigned long long>(host.resent()),
              static_cast<unsigned long long>(host.pendings()));
  return 0;
}

}  // namespace
}  // namespace nezha::flare

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fputs("flare_host SESSION SWITCH RANK RANKS ELEMENTS COUNT\n", stderr);
    return 2;
  }
  try {
    return nezha::flare::run(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "flare_host: %s\n", error.what());
    return 1;
  }
}
