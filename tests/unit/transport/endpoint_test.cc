// Endpoints over real sockets on loopback.
#include "transport/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transport/tcp/device.h"

namespace nezha {
namespace {

constexpr UniqueId kJob{11, 22};

struct Listener final : JobListener {
  std::vector<wire::Abort> aborts;
  void on_abort(const wire::Abort& abort) override { aborts.push_back(abort); }
  void on_roll_call(const wire::RollCall&) override {}
};

// A process with two devices on lo.
struct Host {
  Listener listener;  // the endpoint's thread calls it until the endpoint is gone
  std::shared_ptr<Endpoint> endpoint;
  std::map<std::string, std::string> addresses;
  std::map<std::string, std::string> peer_names;  // of the rails, where they have others there

  explicit Host(const std::vector<std::string>& rails = {"a", "b"}, UniqueId job = kJob) {
    endpoint = *Endpoint::create();
    Progress::Guard guard(endpoint->progress());
    for (const std::string& name : rails) {
      const auto rail = endpoint->open_device(
          "tcp:lo?rail=" + name,
          [&](Progress& progress, Acceptor& acceptor,
              Rail number) -> absl::StatusOr<std::unique_ptr<Device>> {
            tcp::DeviceOptions options;
            options.interface = "lo";
            options.rail = name;
            auto device = tcp::TcpDevice::create(progress, acceptor, number, options);
            if (!device.ok()) return device.status();
            return std::unique_ptr<Device>(*std::move(device));
          });
      EXPECT_TRUE(rail.ok()) << rail.status();
      const Device& device = *endpoint->device(*rail);
      addresses[device.name()] = device.address();
    }
    EXPECT_TRUE(endpoint->join(job, &listener).ok());
  }
  // It may come by another link than what follows it, and again by each link that comes up.
  std::vector<wire::Abort> wait_for_abort() {
    Progress::Guard guard(endpoint->progress());
    for (int i = 0; i < 10'000 && listener.aborts.empty(); ++i) {
      Waiter tick;
      endpoint->progress().wait(guard, tick, now() + kMillisecond);
    }
    return listener.aborts;
  }
  Channel& channel_to(const Host& peer, UniqueId job = kJob) {
    Channel& channel = endpoint->channel(peer.endpoint->process());
    if (peer_names.empty()) {
      channel.set_peer("the peer", job, peer.addresses);
      return channel;
    }
    std::map<std::string, std::string> by_name_here;
    for (const auto& [here, there] : peer_names) by_name_here[here] = peer.addresses.at(there);
    channel.set_peer("the peer", job, by_name_here, peer_names);
    return channel;
  }
};

wire::MessageInfo info(uint64_t tag, uint64_t total) {
  wire::MessageInfo result;
  result.context = kJob.low;
  result.tag = tag;
  result.total = total;
  return result;
}

// Sends one message, receives one, and waits for both.
struct Transfer final : Sender, Receiver {
  Progress& progress;
  Waiter waiter;
  std::vector<std::byte> out, in;
  uint64_t landed_bytes = 0;
  bool receives = false, sends = false;
  OutMessage* message = nullptr;
  Inbox::Ticket* ticket = nullptr;
  absl::Status failure;

  explicit Transfer(Progress& its_progress) : progress(its_progress) {}
  void send(Channel& channel, uint64_t tag, size_t bytes, uint64_t seed) {
    out.resize(bytes);
    std::mt19937_64 random(seed);
    for (auto& byte : out) byte = static_cast<std::byte>(random());
    sends = true;
    message = channel.open(info(tag, bytes), Route(), this);
    channel.push(*message, 0, out.data(), bytes);
    channel.settle(*message);
  }
  void receive(Channel& channel, uint64_t tag, size_t bytes) {
    in.resize(bytes);
    receives = true;
    Inbox::Ticket* posted = channel.post(info(tag, bytes), this);
    if (receives) ticket = posted;
  }
  void end() {
    if (!sends && !receives) progress.finish(waiter);
  }
  void released(uint64_t, size_t) override {}
  void settled() override {
    sends = false;
    message = nullptr;
    end();
  }
  std::byte* place(uint64_t offset, size_t) override { return in.data() + offset; }
  void landed(uint64_t, size_t length, Rail) override {
    landed_bytes += length;
    if (landed_bytes < in.size()) return;
    receives = false;
    ticket = nullptr;
    end();
  }
  void mismatched(const wire::MessageInfo&) override { failed(absl::InternalError("mismatch")); }
  void failed(const absl::Status& why) override {
    failure = why;
    message = nullptr;
    ticket = nullptr;
    progress.finish(waiter);
  }
};

std::vector<std::byte> content(size_t bytes, uint64_t seed) {
  std::vector<std::byte> result(bytes);
  std::mt19937_64 random(seed);
  for (auto& byte : result) byte = static_cast<std::byte>(random());
  return result;
}

// Both send `bytes` to each other at the same time. Each side drives itself.
void exchange(Host& one, Host& two, uint64_t tag, size_t bytes) {
  std::array<Host*, 2> hosts{&one, &two};
  std::vector<std::thread> threads;
  for (const size_t self : {size_t{0}, size_t{1}}) {
    threads.emplace_back([&, self] {
      Host& host = *hosts[self];
      Progress& progress = host.endpoint->progress();
      Transfer transfer(progress);
      Progress::Guard guard(progress);
      Channel& channel = host.channel_to(*hosts[1 - self]);
      transfer.receive(channel, tag, bytes);
      transfer.send(channel, tag, bytes, 2 * tag + self);
      const bool done = progress.wait(guard, transfer.waiter, now() + 60 * kSecond);
      EXPECT_TRUE(done);
      EXPECT_TRUE(transfer.failure.ok()) << transfer.failure;
      EXPECT_EQ(transfer.in, content(bytes, 2 * tag + 1 - self));
      if (!done && transfer.ticket != nullptr) channel.cancel(transfer.ticket);
      if (!done && transfer.message != nullptr) channel.abandon(*transfer.message);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Endpoint, TransfersBothWaysBeyondTheSocketsBuffers) {
  Host one, two;
  exchange(one, two, 1, 64 << 20);
  exchange(one, two, 2, 5);
  exchange(one, two, 3, 3'000'001);
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    uint64_t received = 0;
    for (const Rail rail : {0, 1}) {
      const RailCounters& counters = host->endpoint->device(rail)->counters();
      EXPECT_EQ(counters.failures, 0u);
      EXPECT_EQ(counters.segments_resent, 0u);
      EXPECT_GT(counters.bytes_sent, 0u) << "rail " << rail << " carries nothing";
      received += counters.bytes_received;
    }
    EXPECT_EQ(received, (64u << 20) + 5 + 3'000'001);
  }
}

TEST(Endpoint, RailsMayHaveOtherNamesAtThePeer) {
  Host one({"a", "b"}), two({"b", "c"});
  one.peer_names = {{"a", "b"}, {"b", "c"}};
  two.peer_names = {{"b", "a"}, {"c", "b"}};
  exchange(one, two, 1, 4 << 20);
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    for (const Rail rail : {0, 1}) {
      const RailCounters& counters = host->endpoint->device(rail)->counters();
      EXPECT_EQ(counters.failures, 0u);
      EXPECT_GT(counters.bytes_sent, 0u) << "rail " << rail << " carries nothing";
      EXPECT_GT(counters.bytes_received, 0u) << "rail " << rail << " carries nothing";
    }
  }
}

// Both connect at once on both rails: one connection of each crossing pair is kept.
TEST(Endpoint, SimultaneousConnectionsLeaveOneLinkForEachRail) {
  for (uint64_t round = 0; round < 60; ++round) {
    Host one, two;
    exchange(one, two, round, 1000 + (round % 2) * 100'000);
    for (Host* host : {&one, &two}) {
      Progress::Guard guard(host->endpoint->progress());
      for (const Rail rail : {0, 1}) {
        EXPECT_EQ(host->endpoint->device(rail)->counters().failures, 0u);
      }
    }
    if (HasFailure()) return;
  }
}

TEST(Endpoint, ConnectingToNobodyFailsTheChannel) {
  Host one;
  std::map<std::string, std::string> nowhere;
  UniqueId nobody;
  {
    Host gone;
    nowhere = gone.addresses;
    nobody = gone.endpoint->process();
  }
  Progress& progress = one.endpoint->progress();
  Transfer transfer(progress);
  Progress::Guard guard(progress);
  Channel& channel = one.endpoint->channel(nobody);
  channel.set_peer("rank 7", kJob, nowhere);
  transfer.send(channel, 1, 100, 1);
  ASSERT_TRUE(progress.wait(guard, transfer.waiter, now() + 60 * kSecond));
  EXPECT_TRUE(absl::IsUnavailable(transfer.failure)) << transfer.failure;
  EXPECT_NE(transfer.failure.message().find("rank 7"), absl::string_view::npos);
  EXPECT_TRUE(channel.failed());
}

TEST(Endpoint, AbortsReachTheContextTheyAreFor) {
  Host one, two;
  exchange(one, two, 1, 10);
  {
    Progress::Guard guard(one.endpoint->progress());
    one.endpoint->broadcast_abort({kJob, 3, "it broke"});
    one.endpoint->broadcast_abort({UniqueId{9, 9}, 4, "not yours"});
  }
  exchange(one, two, 2, 10);
  const std::vector<wire::Abort> aborts = two.wait_for_abort();
  ASSERT_FALSE(aborts.empty());
  for (const wire::Abort& abort : aborts) {
    EXPECT_EQ(abort.rank, 3u);
    EXPECT_EQ(abort.reason, "it broke");
  }
}

TEST(Endpoint, WhoConnectsToABrokenContextIsTold) {
  Host one, two;
  {
    Progress::Guard guard(one.endpoint->progress());
    one.endpoint->broadcast_abort({kJob, 3, "it broke"});
  }
  exchange(one, two, 1, 10);
  const std::vector<wire::Abort> aborts = two.wait_for_abort();
  ASSERT_FALSE(aborts.empty());
  EXPECT_EQ(aborts[0].reason, "it broke");
}

TEST(Endpoint, WhoConnectsForAClosedContextFails) {
  Host one, two;
  {
    Progress::Guard guard(one.endpoint->progress());
    one.endpoint->leave(kJob, &one.listener);
  }
  Progress& progress = two.endpoint->progress();
  Transfer transfer(progress);
  Progress::Guard guard(progress);
  Channel& channel = two.channel_to(one);
  transfer.receive(channel, 1, 100);
  transfer.send(channel, 1, 100, 1);
  ASSERT_TRUE(progress.wait(guard, transfer.waiter, now() + 60 * kSecond));
  EXPECT_TRUE(absl::IsUnavailable(transfer.failure)) << transfer.failure;
  EXPECT_NE(transfer.failure.message().find("closed its context"), absl::string_view::npos)
      << transfer.failure;
}

TEST(Endpoint, AContextThatIsClosedLeavesTheNextOneUsable) {
  constexpr UniqueId kNext{33, 44};
  Host one, two;
  {
    Progress::Guard guard(one.endpoint->progress());
    one.endpoint->leave(kJob, &one.listener);
  }
  Progress& progress = two.endpoint->progress();
  {
    Transfer refused(progress);
    Progress::Guard guard(progress);
    refused.receive(two.channel_to(one), 1, 100);
    ASSERT_TRUE(progress.wait(guard, refused.waiter, now() + 60 * kSecond));
    EXPECT_TRUE(absl::IsUnavailable(refused.failure)) << refused.failure;
  }
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    EXPECT_TRUE(host->endpoint->join(kNext, &host->listener).ok());
  }
  Transfer transfer(progress);
  Progress::Guard guard(progress);
  transfer.send(two.channel_to(one, kNext), 2, 100, 1);
  ASSERT_TRUE(progress.wait(guard, transfer.waiter, now() + 60 * kSecond));
  EXPECT_TRUE(transfer.failure.ok()) << transfer.failure;
}

TEST(Endpoint, WhoWaitsForOneThatLeavesTheContextIsTold) {
  Host one, two;
  exchange(one, two, 1, 10);
  Progress& progress = two.endpoint->progress();
  Transfer transfer(progress);
  Progress::Guard guard(progress);
  transfer.receive(two.channel_to(one), 2, 100);
  {
    Progress::Guard other(one.endpoint->progress());
    one.endpoint->leave(kJob, &one.listener);
    one.endpoint->progress().run_deferred();
  }
  ASSERT_TRUE(progress.wait(guard, transfer.waiter, now() + 60 * kSecond));
  EXPECT_NE(transfer.failure.message().find("has left"), absl::string_view::npos)
      << transfer.failure;
}

// ---- Strangers ---------------------------------------------------------------------------------

class Stranger {
 public:
  explicit Stranger(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    auto to = tcp::Address::parse(address);
    EXPECT_TRUE(to.ok());
    EXPECT_EQ(connect(fd_, to->sockaddr_ptr(), to->length()), 0);
    timeval limit{.tv_sec = 30, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void write(const void* data, size_t size) { ::send(fd_, data, size, MSG_NOSIGNAL); }
  template <size_t N>
  void write(const std::array<std::byte, N>& bytes) {
    write(bytes.data(), N);
  }
  // Up to `size` bytes; fewer when the other side closes.
  std::string read(size_t size) {
    std::string text(size, '\0');
    size_t done = 0;
    while (done < size) {
      const ssize_t got = recv(fd_, text.data() + done, size - done, 0);
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    text.resize(done);
    return text;
  }
  bool is_closed() { return read(1).empty() && errno != EAGAIN; }
  absl::StatusOr<wire::Welcome> welcome() {
    const std::string text = read(wire::kWelcomeSize);
    wire::WelcomeBytes bytes{};
    if (text.size() != bytes.size()) return absl::AbortedError("closed");
    std::memcpy(bytes.data(), text.data(), bytes.size());
    return wire::decode_welcome(bytes);
  }

 private:
  int fd_;
};

class EndpointStrangers : public ::testing::Test {
 protected:
  wire::Hello hello() {
    wire::Hello result;
    result.job = kJob;
    result.source = UniqueId{1, 2};
    result.target = host_.endpoint->process();
    result.link_id = 5;
    result.generation = 1;
    result.rail = "a";
    return result;
  }
  wire::WelcomeCode answer(const wire::Hello& to) {
    Stranger stranger(host_.addresses["a"]);
    stranger.write(wire::encode(to));
    const auto welcome = stranger.welcome();
    EXPECT_TRUE(welcome.ok()) << welcome.status();
    return welcome.ok() ? welcome->code : wire::WelcomeCode::kClosing;
  }
  // The host is as it was: it serves others.
  void expect_well() {
    Host other;
    exchange(host_, other, ++tag_, 100'000);
  }

  Host host_;
  uint64_t tag_ = 0;
};

// No descriptor is free beyond those that are open while one lives.
class NoFreeDescriptors {
 public:
  NoFreeDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = dup(STDIN_FILENO);  // the lowest that is free
    EXPECT_GE(next, 0);
    close(next);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(next);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoFreeDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoFreeDescriptors(const NoFreeDescriptors&) = delete;
  NoFreeDescriptors& operator=(const NoFreeDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST_F(EndpointStrangers, WithoutFreeDescriptorsTheyWaitAndNothingSpins) {
  Progress& progress = host_.endpoint->progress();
  const auto hung_up_on = [](Stranger& stranger) {
    stranger.write(wire::HelloBytes{});
    return stranger.is_closed();
  };
  // A sanitizer needs descriptors itself where a type comes by for the first time.
  Stranger first(host_.addresses["a"]);
  EXPECT_TRUE(hung_up_on(first));
  std::unique_ptr<Stranger> stranger;
  {
    Progress::Guard guard(progress);  // nobody is let in meanwhile
    stranger = std::make_unique<Stranger>(host_.addresses["a"]);
    const NoFreeDescriptors none;
    // This thread drives, and would be the one that spins. What counts is CPU time: to look now and
    // then takes a small part of it, whatever else the machine does.
    const auto cpu = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return Nanos{time.tv_sec} * kSecond + time.tv_nsec;
    };
    const Nanos before = cpu();
    Waiter never;
    EXPECT_FALSE(progress.wait(guard, never, now() + kSecond));
    EXPECT_LT(cpu() - before, kSecond / 4);
  }
  // When there are descriptors again it is let in: what is no hello is hung up on.
  EXPECT_TRUE(hung_up_on(*stranger));
  expect_well();
}

TEST_F(EndpointStrangers, GarbageIsHungUpOn) {
  {
    Stranger stranger(host_.addresses["a"]);
    stranger.write(std::string(200, 'G').data(), 200);
    EXPECT_TRUE(stranger.is_closed());
  }
  {
    Stranger half(host_.addresses["a"]);
    half.write(wire::encode(hello()).data(), 50);
  }
  Stranger silent(host_.addresses["a"]);
  expect_well();
}

TEST_F(EndpointStrangers, HellosForOthersAreRefusedWithTheReason) {
  wire::Hello wrong = hello();
  wrong.target.low ^= 1;
  EXPECT_EQ(answer(wrong), wire::WelcomeCode::kWrongTarget);
  wrong = hello();
  wrong.job.low ^= 1;
  EXPECT_EQ(answer(wrong), wire::WelcomeCode::kUnknownJob);
  wrong = hello();
  wrong.rail = "b";
  EXPECT_EQ(answer(wrong), wire::WelcomeCode::kNoRail);
  wrong = hello();
  wrong.source = wrong.target;
  EXPECT_EQ(answer(wrong), wire::WelcomeCode::kNoRail);
  {
    Stranger stranger(host_.addresses["a"]);
    wire::HelloBytes bytes = wire::encode(hello());
    bytes[8] = std::byte{9};  // the version
    stranger.write(bytes);
    const auto welcome = stranger.welcome();
    ASSERT_TRUE(welcome.ok());
    EXPECT_EQ(welcome->code, wire::WelcomeCode::kWrongVersion);
    EXPECT_EQ(welcome->version, wire::kVersion);
    EXPECT_TRUE(stranger.is_closed());
  }
  EXPECT_EQ(answer(hello()), wire::WelcomeCode::kAccepted);
  expect_well();
}

TEST_F(EndpointStrangers, AHelloMayComeInPieces) {
  Stranger stranger(host_.addresses["a"]);
  const wire::HelloBytes bytes = wire::encode(hello());
  for (const std::byte byte : bytes) stranger.write(&byte, 1);
  const auto welcome = stranger.welcome();
  ASSERT_TRUE(welcome.ok());
  EXPECT_EQ(welcome->code, wire::WelcomeCode::kAccepted);
  EXPECT_EQ(welcome->generation, 1u);
}

TEST_F(EndpointStrangers, AnOlderGenerationIsADuplicateAndANewerOneReplacesTheLink) {
  Stranger first(host_.addresses["a"]);
  wire::Hello said = hello();
  said.generation = 5;
  first.write(wire::encode(said));
  ASSERT_EQ(first.welcome()->code, wire::WelcomeCode::kAccepted);
  for (const uint32_t generation : {4u, 5u}) {
    said.generation = generation;
    EXPECT_EQ(answer(said), wire::WelcomeCode::kDuplicate);
  }
  Stranger second(host_.addresses["a"]);
  said.generation = 6;
  second.write(wire::encode(said));
  EXPECT_EQ(second.welcome()->code, wire::WelcomeCode::kAccepted);
  EXPECT_TRUE(first.is_closed());
}

TEST_F(EndpointStrangers, FramesThatBreakTheProtocolEndTheConnection) {
  struct Case {
    const char* what;
    wire::FrameHeader frame;
    wire::DataHeader data;
  };
  std::vector<Case> cases;
  const auto add = [&](const char* what) -> Case& {
    cases.push_back({what, {}, {}});
    cases.back().frame.type = wire::FrameType::kData;
    cases.back().data.number = 1;
    cases.back().data.info.total = 100;
    cases.back().frame.length = 100;
    cases.back().frame.flags = wire::kFlagCharged;
    return cases.back();
  };
  add("a frame beyond the limit").frame.length = wire::kMaxSegment + 1;
  add("an unknown type").frame.type = static_cast<wire::FrameType>(99);
  add("an acknowledgement of what was not sent").frame.acked = 1;
  add("a segment outside of its message").data.offset = 1;
  add("message 0").data.number = 0;
  add("a message before the first").data.previous = 1;
  add("uncharged and unasked").frame.flags = 0;
  Case& large = add("beyond the credit");
  large.data.info.total = large.frame.length = wire::kInitialCredit + 1;
  Case& control = add("a control frame beyond the limit");
  control.frame.type = wire::FrameType::kGrant;
  control.frame.length = wire::kMaxControlBody + 1;
  uint32_t generation = 1;
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.what);
    Stranger stranger(host_.addresses["a"]);
    wire::Hello said = hello();
    said.generation = ++generation;
    said.source.low = 100 + generation;  // a channel of its own
    stranger.write(wire::encode(said));
    const auto welcome = stranger.welcome();
    ASSERT_TRUE(welcome.ok());
    ASSERT_EQ(welcome->code, wire::WelcomeCode::kAccepted);
    std::array<std::byte, wire::kFrameHeaderSize + wire::kDataHeaderSize> head{};
    wire::encode(bad.frame, head.data());
    wire::encode(bad.data, head.data() + wire::kFrameHeaderSize);
    stranger.write(head);
    EXPECT_TRUE(stranger.is_closed());
  }
  expect_well();
}

TEST_F(EndpointStrangers, RandomFramesDoNoHarm) {
  std::mt19937_64 random(4711);
  for (uint32_t round = 0; round < 100; ++round) {
    Stranger stranger(host_.addresses["a"]);
    wire::Hello said = hello();
    said.source.low = 1000 + round;
    stranger.write(wire::encode(said));
    ASSERT_EQ(stranger.welcome()->code, wire::WelcomeCode::kAccepted);
    std::string bytes;
    while (bytes.size() < 4000) {
      // Half-way plausible: a known type, lengths that are not always absurd.
      wire::FrameHeader frame;
      frame.type = static_cast<wire::FrameType>(1 + random() % 7);
      frame.flags = static_cast<uint8_t>(random());
      frame.length = static_cast<uint32_t>(random() % 200);
      std::array<std::byte, wire::kFrameHeaderSize + wire::kDataHeaderSize> head{};
      wire::encode(frame, head.data());
      wire::DataHeader data;
      data.number = random() % 4;
      data.info.total = random() % 400;
      data.offset = random() % 400;
      wire::encode(data, head.data() + wire::kFrameHeaderSize);
      const size_t size = frame.type == wire::FrameType::kData ? head.size() : 24;
      bytes.append(reinterpret_cast<const char*>(head.data()), size);
      for (uint32_t i = 0; i < frame.length; ++i) bytes += static_cast<char>(random());
    }
    stranger.write(bytes.data(), bytes.size());
  }
  expect_well();
}

// ---- Contexts ----------------------------------------------------------------------------------

// A channel serves all contexts of the two processes: when the context that was joined last is
// left, a link that dies comes back for the others.
TEST(Endpoint, ALinkComesBackWhileAnyContextIsShared) {
  constexpr UniqueId kSecond{33, 44};
  Host one({"a"}), two({"a"});
  exchange(one, two, 1, 10);
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    EXPECT_TRUE(host->endpoint->join(kSecond, &host->listener).ok());
    host->channel_to(host == &one ? two : one, kSecond);
  }
  for (Host* host : {&one, &two}) {
    Progress::Guard guard(host->endpoint->progress());
    host->endpoint->leave(kSecond, &host->listener);
  }
  {
    // The cable is pulled for a moment, as far as `one` can tell.
    Progress::Guard guard(one.endpoint->progress());
    Channel& channel = one.endpoint->channel(two.endpoint->process());
    channel.on_carrier(0, false);
    channel.on_carrier(0, true);
  }
  // As `exchange`, but nobody names a context again.
  for (Host* host : {&one, &two}) {
    Host& peer = host == &one ? two : one;
    Progress::Guard guard(host->endpoint->progress());
    Channel& channel = host->endpoint->channel(peer.endpoint->process());
    Transfer transfer(host->endpoint->progress());
    transfer.send(channel, 2, 1 << 10, 1);
    EXPECT_TRUE(
        host->endpoint->progress().wait(guard, transfer.waiter, now() + 30 * nezha::kSecond));
    EXPECT_TRUE(transfer.failure.ok()) << transfer.failure;
  }
}

TEST(Endpoint, AContextHasOneRankInAProcess) {
  Host host({"a"});
  Listener second;
  Progress::Guard guard(host.endpoint->progress());
  EXPECT_TRUE(absl::IsAlreadyExists(host.endpoint->join(kJob, &second)));
  host.endpoint->leave(kJob, &second);
  EXPECT_TRUE(absl::IsAlreadyExists(host.endpoint->join(kJob, &second)));
  host.endpoint->leave(kJob, &host.listener);
  EXPECT_TRUE(host.endpoint->join(kJob, &second).ok());
}

TEST(Endpoint, DevicesAreSharedAndRailsHaveOneDeviceEach) {
  Host host({"a"});
  Progress::Guard guard(host.endpoint->progress());
  const auto never = [](Progress&, Acceptor&, Rail) -> absl::StatusOr<std::unique_ptr<Device>> {
    return absl::InternalError("not to be called");
  };
  const auto again = host.endpoint->open_device("tcp:lo?rail=a", never);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, 0);
  const auto second = [](Progress& progress, Acceptor& acceptor,
                         Rail rail) -> absl::StatusOr<std::unique_ptr<Device>> {
    tcp::DeviceOptions options;
    options.interface = "lo";
    options.rail = "a";
    auto device = tcp::TcpDevice::create(progress, acceptor, rail, options);
    if (!device.ok()) return device.status();
    return std::unique_ptr<Device>(*std::move(device));
  };
  EXPECT_TRUE(absl::IsInvalidArgument(
      host.endpoint->open_device("tcp:lo?rail=a&family=4", second).status()));
}

}  // namespace
}  // namespace nezha
