// SPDX-License-Identifier: Apache-2.0
#include "check/frames.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "check/parallel.h"
#include "common/fields.h"

namespace nezha::check {
namespace {

// A lost segment is sent again after 0.2 and 0.6 s: one that is lost by chance arrives.
constexpr Nanos kPatience = 800 * kMillisecond;
// The search for a size, which follows a loss, waits less.
constexpr Nanos kSearchPatience = 450 * kMillisecond;
constexpr int kSearchSteps = 3;  // enough for MTUs up to 64 KiB; two for 1500 bytes
constexpr int kSizesAtOnce = 40;

constexpr int kLeastSegment = 88;         // bytes, the kernel's own limit of TCP_MAXSEG
constexpr uint32_t kMostFrame = 1 << 17;  // bytes; loopback's packets have 64 KiB
constexpr int kTcpHeader = 20;
constexpr int kTimestamps = 12;
constexpr std::byte kConfirmation{1};

int ip_header(int fd) {
  const auto address = net::local_address(fd);
  return address.ok() && address->family() == AF_INET6 ? 40 : 20;
}

struct SegmentSize {
  int payload = 0;
  int packet = 0;
};

absl::StatusOr<SegmentSize> segment_size(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
    return absl::AbortedError(strerror(errno));
  }
  const bool has_timestamps = (info.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0;
  const int payload = static_cast<int>(info.tcpi_snd_mss);
  const int headers = ip_header(fd) + kTcpHeader + (has_timestamps ? kTimestamps : 0);
  return SegmentSize{payload, payload + headers};
}

enum class Direction { kThere, kBack };

// Returns the size of the packet that got through, or 0 if none was confirmed. It is an error if no
// connection could be made, which tells nothing of sizes.
absl::StatusOr<int> try_frame(const Target& target, Direction direction, MaxSegment segment,
                              Nanos patience) {
  const bool is_there = direction == Direction::kThere;
  const Service service = is_there ? Service::kTakeFrame : Service::kGiveFrame;
  const Nanos deadline = now() + patience;
  Attempt attempt = connect_to(target, service, segment, deadline);
  if (!attempt.stream) return absl::UnavailableError(attempt.detail);
  net::reset_on_close(attempt.stream->fd());  // what the kernel still holds need not be sent
  if (is_there) {
    const auto sent = send_frame(*attempt.stream, deadline);
    return sent.ok() ? *sent : 0;
  }
  std::array<std::byte, sizeof(uint32_t)> size{};
  absl::Status status = take_frame(*attempt.stream, deadline);
  if (status.ok()) status = attempt.stream->receive(absl::MakeSpan(size), deadline);
  if (!status.ok()) return 0;
  return static_cast<int>(std::min(FieldReader(size.data()).get<uint32_t>(), kMostFrame));
}

// Returns sizes between the two, evenly spread.
std::vector<int> sizes_between(int low, int high) {
  std::set<int> sizes;
  for (int i = 1; i <= kSizesAtOnce; ++i) {
    const int size = low + (high - low) * i / (kSizesAtOnce + 1);
    if (size > low) sizes.insert(size);
  }
  return {sizes.begin(), sizes.end()};
}

// Tries ever closer sizes between one that got through and one that did not, several at once.
// Returns the largest packet that got through, or 0 if none did, not even the least one.
int search(const Target& target, Direction direction, int mtu) {
  const int headers = kTcpHeader + (target.from.family() == AF_INET6 ? 40 : 20);
  int largest = 0;  // packet that got through
  int low = kLeastSegment - 1;
  int high = mtu - headers;
  for (int step = 0; step < kSearchSteps && high - low > 1; ++step) {
    const std::vector<int> segments = sizes_between(low, high);
    std::vector<int> packets(segments.size());
    std::vector<std::function<void()>> tries;
    for (size_t i = 0; i < segments.size(); ++i) {
      tries.emplace_back([&, i] {
        packets[i] = try_frame(target, direction, segments[i], kSearchPatience).value_or(0);
      });
    }
    run_all(tries);
    for (size_t i = 0; i < segments.size(); ++i) {
      if (packets[i] > 0) low = segments[i];
    }
    const auto next = std::upper_bound(segments.begin(), segments.end(), low);
    if (next != segments.end()) high = *next;
    largest = std::max(largest, *std::max_element(packets.begin(), packets.end()));
  }
  return largest;
}

FrameSize measure(const Target& target, Direction direction, int mtu) {
  const auto whole = try_frame(target, direction, 0, kPatience);
  if (whole.ok() && *whole > 0) return {*whole, false, ""};
  // A host that was too busy for the first packet is no fault of the path.
  absl::StatusOr<int> again = 0;
  int largest = 0;
  run_all({[&] { again = try_frame(target, direction, 0, kPatience); },
           [&] { largest = search(target, direction, mtu); }});
  if (!again.ok()) {
    return {0, false, absl::StrCat("a further connection failed: ", again.status().message())};
  }
  if (*again > 0) return {*again, false, ""};
  if (largest > 0) return {largest, true, ""};
  const bool is_there = direction == Direction::kThere;
  return {0, false,
          absl::StrCat("connections could be made, but no packet of any size arrived from rank ",
                       is_there ? target.rank : target.peer, " at rank ",
                       is_there ? target.peer : target.rank)};
}

}  // namespace

absl::StatusOr<int> send_frame(Stream& stream, Nanos deadline) {
  const auto size = segment_size(stream.fd());
  if (!size.ok()) return size.status();
  std::vector<std::byte> bytes(static_cast<size_t>(std::max<int>(size->payload, kLeastSegment)));
  const auto rest = static_cast<uint32_t>(bytes.size() - sizeof(uint32_t));
  FieldWriter(bytes.data()).put(rest);
  // The bytes go in one call, so that they are one segment.
  if (absl::Status status = stream.send(bytes, deadline); !status.ok()) return status;
  std::array<std::byte, 1> confirmation{};
  absl::Status status = stream.receive(absl::MakeSpan(confirmation), deadline);
  if (!status.ok()) return status;
  // A router may have said meanwhile that the path takes less, and the kernel has then cut it.
  const auto now_is = segment_size(stream.fd());
  return now_is.ok() ? std::min(size->packet, now_is->packet) : size->packet;
}

absl::Status take_frame(Stream& stream, Nanos deadline) {
  std::array<std::byte, sizeof(uint32_t)> head{};
  absl::Status status = stream.receive(absl::MakeSpan(head), deadline);
  if (!status.ok()) return status;
  const auto rest = FieldReader(head.data()).get<uint32_t>();
  if (rest > kMostFrame) return absl::AbortedError("the peer announces too large a frame");
  std::vector<std::byte> bytes(rest);
  status = stream.receive(absl::MakeSpan(bytes), deadline);
  if (!status.ok()) return status;
  return stream.send({&kConfirmation, 1}, deadline);
}

absl::Status give_frame(Stream& stream, Nanos deadline) {
  const auto size = send_frame(stream, deadline);
  if (!size.ok()) return size.status();
  std::array<std::byte, sizeof(uint32_t)> bytes{};
  FieldWriter(bytes.data()).put(static_cast<uint32_t>(*size));
  return stream.send(bytes, deadline);
}

FrameSizes measure_frames(const Target& target, int mtu) {
  FrameSizes sizes;
  run_all({[&] { sizes.there = measure(target, Direction::kThere, mtu); },
           [&] { sizes.back = measure(target, Direction::kBack, mtu); }});
  return sizes;
}

}  // namespace nezha::check
