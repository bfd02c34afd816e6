// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/switchd/server.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/clock.h"
#include "gtest/gtest.h"

namespace nezha::flare {
namespace {

constexpr uint32_t kWindow = 8;
constexpr size_t kElements = 16;  // per block
constexpr size_t kMemory = 1 << 20;
constexpr uint32_t kFirstSession = 0x1fe;  // so that the lowest byte of the session numbers wraps
const Key kServerKey{std::byte{1}};

Address loopback() {
  Address any = *Address::parse("127.0.0.1:1");
  any.set_port(0);
  return any;
}

uint32_t input_of(size_t child, uint32_t session, uint32_t seq) {
  return static_cast<uint32_t>(child + 1) * 1'000'003 + session * 101 + seq;
}

// A child of several sessions, which uses one port for all of them.
class TestChild {
 public:
  explicit TestChild(size_t child)
      : child_(child),
        port_(*UdpPort::open(loopback(), kMaxDatagram)),
        address_(*net::local_address(port_.fd())) {}

  const Address& address() const { return address_; }
  int fd() const { return port_.fd(); }
  void queue(uint32_t session, uint32_t seq, const Address& to) {
    const FrameHeader header = {.child = static_cast<uint8_t>(child_),
                                .session = session,
                                .block = {seq, 0, DataType::kUint32, ReduceOperation::kSum}};
    std::array<uint32_t, kElements> elements;
    elements.fill(input_of(child_, session, seq));
    std::array<std::byte, sizeof elements> payload;
    std::memcpy(payload.data(), elements.data(), sizeof elements);
    port_.send(encode(header, payload, authenticator_, port_.buffer()), {&to, 1});
  }
  void flush() { port_.flush(); }

  // Receives results until there are `count`; waits for each at most 30 s.
  void await_results(size_t count) {
    pollfd awaited = {port_.fd(), POLLIN, 0};
    while (results_.size() < count) {
      ASSERT_EQ(poll(&awaited, 1, 30'000), 1) << results_.size() << " of " << count;
      port_.receive([&](absl::Span<const std::byte> datagram, const Address&) { take(datagram); });
    }
  }

 private:
  void take(absl::Span<const std::byte> datagram) {
    const auto frame = decode(datagram);
    ASSERT_TRUE(frame && authenticator_.verify(datagram));
    if (frame->header.type != FrameType::kResult) return;
    const auto [session, seq] = std::pair(frame->header.session, frame->header.block.seq);
    std::array<uint32_t, kElements> elements;
    ASSERT_EQ(frame->payload.size(), sizeof elements);
    std::memcpy(elements.data(), frame->payload.data(), sizeof elements);
    for (const uint32_t element : elements) {
      ASSERT_EQ(element, input_of(0, session, seq) + input_of(1, session, seq));
    }
    results_.insert({session, seq});
  }

  const size_t child_;
  Authenticator authenticator_{kServerKey};
  UdpPort port_;
  const Address address_;
  std::set<std::pair<uint32_t, uint32_t>> results_;
};

SessionSpec spec_of(uint32_t session, const std::vector<Address>& children) {
  return {.session = session,
          .generation = 0,
          .key = kServerKey,
          .table = {.window = kWindow,
                    .children = std::vector<RankRange>(children.size(), {0, 1}),
                    .payload = kElements * sizeof(uint32_t)},
          .children = children,
          .parent = {}};
}

uint64_t counted(const std::string& statistics, const std::string& name) {
  const std::vector<std::string> parts =
      absl::StrSplit(statistics, absl::StrCat("\"", name, "\": "));
  EXPECT_GT(parts.size(), 1) << name << " in " << statistics;
  uint64_t sum = 0;
  for (size_t i = 1; i < parts.size(); ++i) {
    uint64_t value = 0;
    EXPECT_TRUE(absl::SimpleAtoi(parts[i].substr(0, parts[i].find_first_of(",}")), &value));
    sum += value;
  }
  return sum;
}

class ServerTest : public ::testing::TestWithParam<int> {
 protected:
  static constexpr uint32_t kSessions = 5;

  ServerTest() : server_(*Server::listen(loopback(), kMemory, GetParam())) {
    at_ = *server_->address();
    for (uint32_t i = 0; i < kSessions; ++i) {
      const absl::Status status =
          server_->install(spec_of(kFirstSession + i, {a_.address(), b_.address()}));
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  // Receives the results of a window of blocks of each session.
  void await_all_results() {
    for (TestChild* child : {&a_, &b_}) {
      ASSERT_NO_FATAL_FAILURE(child->await_results(size_t{kSessions} * kWindow));
    }
    EXPECT_EQ(counted(server_->statistics(), "blocks"), kSessions * kWindow);
    EXPECT_EQ(counted(server_->statistics(), "resent"), 0);
  }

  std::unique_ptr<Server> server_;
  Address at_;
  TestChild a_{0};
  TestChild b_{1};
};

TEST_P(ServerTest, TrainsOfOneSessionComeToItsThread) {
  for (TestChild* child : {&a_, &b_}) {
    for (uint32_t i = 0; i < kSessions; ++i) {
      for (uint32_t seq = 0; seq < kWindow; ++seq) child->queue(kFirstSession + i, seq, at_);
      child->flush();
    }
  }
  ASSERT_NO_FATAL_FAILURE(await_all_results());
  EXPECT_EQ(counted(server_->statistics(), "handed_over"), 0);
}

TEST_P(ServerTest, TrainsOfSeveralSessionsAreHandedOver) {
  for (TestChild* child : {&a_, &b_}) {
    for (uint32_t seq = 0; seq < kWindow; ++seq) {
      for (uint32_t i = 0; i < kSessions; ++i) child->queue(kFirstSession + i, seq, at_);
    }
    child->flush();
  }
  ASSERT_NO_FATAL_FAILURE(await_all_results());
  const std::string statistics = server_->statistics();
  EXPECT_EQ(counted(statistics, "handed_over") > 0, GetParam() > 1) << statistics;
  EXPECT_EQ(counted(statistics, "not_handed_over"), 0);
}

TEST_P(ServerTest, CountsWhatComesAndGoes) {
  a_.queue(kFirstSession, 0, at_);
  a_.queue(kFirstSession, 0, at_);  // a duplicate
  b_.queue(kFirstSession, 0, at_);
  b_.queue(kFirstSession + kSessions, 0, at_);  // there is no such session
  a_.flush();
  b_.flush();
  ASSERT_NO_FATAL_FAILURE(b_.await_results(1));
  const auto is_counted = [&] { return counted(server_->statistics(), "unknown") == 1; };
  for (const Nanos end = now() + 30 * kSecond; !is_counted() && now() < end;) sched_yield();
  const std::string statistics = server_->statistics();
  constexpr uint64_t kFrame = kHeaderSize + kElements * sizeof(uint32_t);
  EXPECT_EQ(counted(statistics, "threads"), GetParam());
  EXPECT_EQ(counted(statistics, "received"), 4 + 3);  // the server's count and the session's
  EXPECT_EQ(counted(statistics, "received_bytes"), (4 + 3) * kFrame);
  EXPECT_EQ(counted(statistics, "combined"), 2);
  EXPECT_EQ(counted(statistics, "duplicates"), 1);
  EXPECT_EQ(counted(statistics, "unknown"), 1);
  // The result goes to both. `a` also gets kPending or the result again.
  EXPECT_EQ(counted(statistics, "sent"), 2 * 3);
  EXPECT_EQ(counted(statistics, "pendings") + counted(statistics, "resent"), 1);
}

TEST_P(ServerTest, SendsAResultOnceToTheGroupAndSeparatelyToOthers) {
  Address group = *Address::parse("239.192.7.9:1");
  group.set_port(at_.port());
  UdpPort member = *UdpPort::join(group, "lo", kMaxDatagram);
  TestChild below(2);  // this child is a switch
  constexpr uint32_t kNumber = kFirstSession + kSessions;
  SessionSpec spec = spec_of(kNumber, {a_.address(), b_.address(), below.address()});
  spec.table.children = {{0, 1}, {1, 1}, {2, 2}};
  spec.group = group;
  ASSERT_TRUE(server_->install(spec).ok());
  for (TestChild* child : {&a_, &b_, &below}) {
    child->queue(kNumber, 0, at_);
    child->flush();
  }
  for (const int fd : {member.fd(), below.fd()}) {
    pollfd awaited = {fd, POLLIN, 0};
    ASSERT_EQ(poll(&awaited, 1, 30'000), 1);
  }
  member.receive([&](absl::Span<const std::byte> datagram, const Address& from) {
    const auto frame = decode(datagram);
    EXPECT_TRUE(frame && frame->header.type == FrameType::kResult && from == at_);
  });
  EXPECT_EQ(member.counters().received, 1);
  EXPECT_EQ(counted(server_->statistics(), "sent"), 2 * 2);  // the server's count and the session's
  a_.queue(kNumber, 0, at_);                                 // as if its result was lost
  a_.flush();
  pollfd awaited = {a_.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&awaited, 1, 30'000), 1);
  EXPECT_EQ(member.receive([](auto, const auto&) { FAIL(); }), 0);
  EXPECT_EQ(counted(server_->statistics(), "sent"), 2 * 3);
}

TEST_P(ServerTest, AGroupOfAnotherFamilyIsRefused) {
  SessionSpec spec = spec_of(kFirstSession + kSessions, {a_.address(), b_.address()});
  spec.group = *Address::parse("[ff18::1]:7200");
  EXPECT_NE(server_->install(spec).message().find("[ff18::1]:7200 cannot be reached"),
            std::string::npos);
}

TEST_P(ServerTest, SessionsComeAndGoWhileFramesDo) {
  std::atomic<bool> ends = false;
  std::thread sender([&] {
    TestChild stranger(0);
    while (!ends) {
      for (uint32_t i = 0; i < kSessions; ++i) stranger.queue(kFirstSession + i, 0, at_);
      stranger.flush();
    }
  });
  const auto has_come = [&] { return counted(server_->statistics(), "received") > 100; };
  while (!has_come()) sched_yield();
  for (int i = 0; i < 50; ++i) {
    const uint32_t session = kFirstSession + static_cast<uint32_t>(i) % kSessions;
    server_->remove(session);
    ASSERT_TRUE(server_->install(spec_of(session, {a_.address(), b_.address()})).ok());
  }
  ends = true;
  sender.join();
  for (uint32_t i = 0; i < kSessions; ++i) server_->remove(kFirstSession + i);
  EXPECT_EQ(counted(server_->statistics(), "memory_left"), kMemory);
}

TEST_P(ServerTest, NoOtherSwitchListensThere) {
  for (const int threads : {1, 3}) {
    const auto other = Server::listen(at_, kMemory, threads);
    EXPECT_EQ(other.status().message(),
              absl::StrCat("binding a UDP socket to ", at_.str(), ": Address already in use"));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ServerTest, ::testing::Values(1, 2, 3));

// Worker 0 is busy until worker 1's session has completed its blocks.
TEST(Worker, OneThatIsBusyHoldsUpNoOther) {
  auto ports = *Lane::open_ports(loopback(), 2);
  const Address at = *net::local_address(ports[0].fd());
  std::vector<std::unique_ptr<Worker>> workers;
  for (size_t i = 0; i < 2; ++i) {
    workers.push_back(std::make_unique<Worker>(std::move(ports[i]), i, 2, workers));
  }
  for (const auto& worker : workers) ASSERT_TRUE(worker->start([] {}).ok());
  TestChild a(0);
  TestChild b(1);
  workers[1]->call([&](Lane& lane) {
    lane.add(1, *Session::install(spec_of(1, {a.address(), b.address()}), &lane.port()));
  });
  std::mutex mutex;
  std::condition_variable changed;
  bool is_busy = false;
  bool may_end = false;
  std::thread caller([&] {
    workers[0]->call([&](Lane&) {
      std::unique_lock lock(mutex);
      is_busy = true;
      changed.notify_all();
      changed.wait(lock, [&] { return may_end; });
    });
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_busy; });
  }
  for (TestChild* child : {&a, &b}) {
    child->queue(2, 0, at);  // for the busy worker
    child->flush();
    for (uint32_t seq = 0; seq < kWindow; ++seq) child->queue(1, seq, at);
    child->flush();
  }
  for (TestChild* child : {&a, &b}) child->await_results(kWindow);
  {
    const std::lock_guard lock(mutex);
    may_end = true;
    changed.notify_all();
  }
  caller.join();
  for (const auto& worker : workers) worker->stop();
}

// How a worker's thread ends when `function` throws.
absl::Status failure_by(void (*function)(Lane&)) {
  std::vector<std::unique_ptr<Worker>> workers;
  workers.push_back(
      std::make_unique<Worker>(*UdpPort::open(loopback(), kMaxDatagram), 0, 1, workers));
  std::atomic<int> told = 0;
  EXPECT_TRUE(workers[0]->start([&] { ++told; }).ok());
  workers[0]->call([](Lane&) {});
  EXPECT_TRUE(workers[0]->failure().ok());
  workers[0]->call(function);               // returns, although `function` did not complete
  workers[0]->call([](Lane&) { FAIL(); });  // this one never begins
  workers[0]->stop();
  EXPECT_EQ(told, 1);
  return workers[0]->failure();
}

TEST(Worker, OneThatThrowsSaysWhy) {
  const absl::Status no_memory = failure_by([](Lane&) { throw std::bad_alloc(); });
  EXPECT_TRUE(absl::IsResourceExhausted(no_memory)) << no_memory;
  const absl::Status other = failure_by([](Lane&) { throw std::runtime_error("why"); });
  EXPECT_EQ(other.message(), "why");
}

// Makes setsockopt fail as in a kernel without SO_ATTACH_REUSEPORT_CBPF, for the calling thread and
// the threads that it starts.
void forget_programs_of_ports() {
  constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | ENOPROTOOPT;
  std::array<sock_filter, 6> program = {
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 3),
       BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 2 * sizeof(uint64_t)),
       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SO_ATTACH_REUSEPORT_CBPF, 0, 1),
       BPF_STMT(BPF_RET | BPF_K, kRefuse), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog filter = {program.size(), program.data()};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0) << strerror(errno);
}

TEST(Server, HasOneThreadWhereTheKernelCannotGiveSeveralTheirs) {
  std::thread([] {
    forget_programs_of_ports();
    auto server = Server::listen(loopback(), kMemory, 3);
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_EQ((*server)->statistics().find("{\"threads\": 1, "), 0U);
  }).join();
}

}  // namespace
}  // namespace nezha::flare
