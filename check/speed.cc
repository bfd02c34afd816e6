// SPDX-License-Identifier: Apache-2.0
#include "check/speed.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nezha::check {
namespace {

constexpr size_t kPingSize = 16;  // bytes
constexpr size_t kMostPings = 100;
constexpr Nanos kPingTime = 50 * kMillisecond;
constexpr Nanos kBurst = 100 * kMillisecond;
constexpr Nanos kRamp = 25 * kMillisecond;  // the part of the burst in which TCP finds the rate
constexpr size_t kChunk = 256 << 10;        // bytes
constexpr Nanos kPatience = kSecond;        // the limit for a connection, and for what comes first
// Directions that differ by this factor are measured again: another program may have held one up.
constexpr double kSuspicious = 2;
constexpr int kMostTries = 3;

double gbps(uint64_t bytes, Nanos time) {
  return time <= 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(time);
}

uint64_t bytes_acknowledged(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
  return info.tcpi_bytes_acked;
}

// Counts the bytes over a burst's time, without its beginning.
class Meter {
 public:
  explicit Meter(Nanos begin) : begin_(begin) {}
  void at(Nanos time, uint64_t bytes) {
    if (time - begin_ >= kRamp && first_.time == 0) first_ = {time, bytes};
    last_ = {time, bytes};
  }
  bool is_over() const { return last_.time - begin_ >= kBurst; }
  double rate() const {
    return first_.time == 0 ? 0 : gbps(last_.bytes - first_.bytes, last_.time - first_.time);
  }

 private:
  struct Reading {
    Nanos time = 0;
    uint64_t bytes = 0;
  };
  Nanos begin_;
  Reading first_;  // the first reading after the ramp; at time 0: none yet
  Reading last_;
};

// Sends a burst. What the peer's kernel has acknowledged counts, so that nothing need be drained at
// the end.
absl::StatusOr<double> rate_there(Stream& stream, Nanos /*deadline*/) {
  const std::vector<std::byte> chunk(kChunk);
  const Nanos begin = now();
  const uint64_t before = bytes_acknowledged(stream.fd());
  Meter meter(begin);
  while (!meter.is_over()) {
    size_t count = 0;
    const absl::Status status = stream.send_some(chunk, count, now() + 5 * kMillisecond);
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
    meter.at(now(), bytes_acknowledged(stream.fd()) - before);
  }
  return meter.rate();
}

absl::StatusOr<double> rate_back(Stream& stream, Nanos deadline) {
  std::vector<std::byte> chunk(kChunk);
  size_t count = 0;
  const Nanos patience = std::min(now() + kPatience, deadline);
  const absl::Status first = stream.receive_some(absl::MakeSpan(chunk), count, patience);
  if (!first.ok()) return first;
  uint64_t bytes = count;
  Meter meter(now());
  while (!meter.is_over()) {
    const absl::Status status =
        stream.receive_some(absl::MakeSpan(chunk), count, now() + 5 * kMillisecond);
    if (status.ok()) bytes += count;
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
    meter.at(now(), bytes);
  }
  return meter.rate();
}

// Returns the median time of short exchanges, microseconds.
absl::StatusOr<double> round_trip(Stream& stream, Nanos deadline) {
  std::array<std::byte, kPingSize> ping{};
  std::vector<Nanos> times;
  const Nanos begin = now();
  while (times.size() < kMostPings && (times.empty() || now() - begin < kPingTime)) {
    const Nanos sent = now();
    const Nanos patience = std::min(sent + kPatience, deadline);
    absl::Status status = stream.send(ping, patience);
    if (status.ok()) status = stream.receive(absl::MakeSpan(ping), patience);
    if (!status.ok()) return status;
    times.push_back(now() - sent);
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return static_cast<double>(*middle) / kMicrosecond;
}

using Measure = absl::StatusOr<double>(Stream& stream, Nanos deadline);

// Makes a connection for the service and measures by it. The value is the larger one of what it was
// and what was measured. The result is false if there was no connection or the connection failed,
// as the path then says.
bool with_stream(const Target& target, Service service, Nanos deadline, Measure& measure,
                 double& value, Path& path) {
  Attempt attempt = connect_to(target, service, 0, std::min(now() + kPatience, deadline));
  if (!attempt.stream) {
    path.error = absl::StrCat("a further connection failed: ", attempt.detail);
    return false;
  }
  net::reset_on_close(attempt.stream->fd());  // what is on its way is not waited for
  const auto measured = measure(*attempt.stream, deadline);
  if (!measured.ok()) {
    path.error = absl::StrCat("a connection failed: ", measured.status().message());
    return false;
  }
  value = std::max(value, *measured);
  return true;
}

bool measure_rates(const Target& target, Nanos deadline, Path& path) {
  return with_stream(target, Service::kTake, deadline, rate_there, path.gbps_there, path) &&
         with_stream(target, Service::kGive, deadline, rate_back, path.gbps_back, path);
}

}  // namespace

void echo(Stream& stream, Nanos deadline) {
  std::array<std::byte, kPingSize> ping{};
  while (stream.receive(absl::MakeSpan(ping), deadline).ok() && stream.send(ping, deadline).ok()) {
  }
}

void take(Stream& stream, Nanos deadline) {
  std::vector<std::byte> chunk(kChunk);
  size_t count = 0;
  while (stream.receive_some(absl::MakeSpan(chunk), count, deadline).ok()) {
  }
}

void give(Stream& stream, Nanos deadline) {
  const std::vector<std::byte> chunk(kChunk);
  size_t count = 0;
  while (now() < deadline && stream.send_some(chunk, count, deadline).ok()) {
  }
}

void measure_speed(const Target& target, Path& path) {
  // A burst that has begun ends within kMostSpeedTime.
  const Nanos deadline = now() + kMostSpeedTime - 2 * kBurst;
  if (!with_stream(target, Service::kEcho, deadline, round_trip, path.round_trip_us, path)) return;
  const auto is_suspicious = [&] {
    const auto [slow, fast] = std::minmax(path.gbps_there, path.gbps_back);
    return slow <= 0 || slow * kSuspicious < fast;
  };
  int tries = 0;
  do {
    if (!measure_rates(target, deadline, path)) return;
  } while (is_suspicious() && ++tries < kMostTries && now() + 2 * kPatience < deadline);
  if (std::min(path.gbps_there, path.gbps_back) <= 0) {
    path.error = "a connection was made, but carried nothing";
  }
}

}  // namespace nezha::check
