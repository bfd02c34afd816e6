// SPDX-License-Identifier: Apache-2.0
// A server on loopback, the ranks that measure with it, and clients that are no ranks of the job.
#include "check/server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "check/connection.h"
#include "check/frames.h"
#include "check/speed.h"
#include "gtest/gtest.h"

namespace nezha::check {
namespace {

constexpr Nanos kPatience = 30 * kSecond;

class ServerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    OwnRail rail;
    rail.end.interface = "lo";
    rail.end.address = GetParam();
    rail.address = *net::Address::parse_host(GetParam());
    rails_.push_back(rail);
    auto server = Server::create(rails_, PortRange());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_EQ(rails_[0].end.error, "");
    ASSERT_TRUE(server_->start(1, 2, token_).ok());
  }

  Target target() const {
    Target target{token_, 0, 1, 0, "lo", rails_[0].address, rails_[0].address, "lo"};
    target.to.set_port(rails_[0].end.port);
    return target;
  }

  Outcome outcome(const Target& target) const {
    return connect_to(target, Service::kGreet, 0, now() + kPatience).outcome;
  }

  // A connection of an arbitrary client that has sent these bytes.
  Stream stranger(absl::Span<const std::byte> bytes) const {
    auto socket = net::bound_socket("lo", rails_[0].address);
    const net::Address to = target().to;
    (void)::connect(socket->fd(), to.sockaddr_ptr(), to.length());
    EXPECT_TRUE(await_events(socket->fd(), POLLOUT, now() + kPatience));
    Stream stream(*std::move(socket));
    EXPECT_TRUE(bytes.empty() || stream.send(bytes, now() + kPatience).ok());
    return stream;
  }

  const UniqueId token_ = UniqueId::random();
  std::vector<OwnRail> rails_;
  std::unique_ptr<Server> server_;
};

INSTANTIATE_TEST_SUITE_P(Families, ServerTest, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& parameter) {
                           return std::string(parameter.param) == "::1" ? "IPv6" : "IPv4";
                         });

TEST_P(ServerTest, WelcomesTheRunsRanks) { EXPECT_EQ(outcome(target()), Outcome::kConnected); }

TEST_P(ServerTest, SaysWhereAConnectionArrived) {
  Target other = target();
  other.peer_interface = "eth0";
  const Attempt attempt = connect_to(other, Service::kGreet, 0, now() + kPatience);
  EXPECT_EQ(attempt.outcome, Outcome::kWrongInterface);
  EXPECT_EQ(attempt.detail, "lo");
}

// Clients with a wrong hello receive no byte.
TEST_P(ServerTest, AnswersNoClientWithAWrongHello) {
  const Hello good{token_, 0, 1, 0, Service::kGreet};
  std::vector<Hello> wrong(4, good);
  wrong[0].token = UniqueId::random();
  wrong[1].from = 2;
  wrong[2].to = 0;
  wrong[3].rail = 1;
  for (const Hello& hello : wrong) {
    Stream stream = stranger(encode(hello));
    std::array<std::byte, 1> answer{};
    const absl::Status status = stream.receive(absl::MakeSpan(answer), now() + kPatience);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
  }
  Stream stream = stranger(encode(good));
  WelcomeBytes welcome{};
  EXPECT_TRUE(stream.receive(absl::MakeSpan(welcome), now() + kPatience).ok());
}

// Random bytes (as from a port scanner) or silence do no harm to the ranks.
TEST_P(ServerTest, SurvivesGarbageAndSilentConnections) {
  std::mt19937 random(1);
  std::vector<Stream> strangers;
  for (size_t size = 0; size < 200; ++size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& each : bytes) each = static_cast<std::byte>(random());
    strangers.push_back(stranger(bytes));
    if (size % 20 == 0) {
      EXPECT_EQ(outcome(target()), Outcome::kConnected);
    }
  }
  const HelloBytes hello = encode(Hello{token_, 0, 1, 0, Service::kGreet});
  for (size_t size = 0; size < hello.size(); ++size) {
    HelloBytes wrong = hello;
    wrong[size] ^= std::byte{0x40};
    strangers.push_back(stranger(wrong));
    strangers.push_back(stranger(absl::MakeConstSpan(hello).first(size)));
  }
  EXPECT_EQ(outcome(target()), Outcome::kConnected);
}

TEST_P(ServerTest, EndsWhileItServes) {
  std::vector<Attempt> attempts;
  for (int service = 1; service < kServices; ++service) {
    attempts.push_back(connect_to(target(), static_cast<Service>(service), 0, now() + kPatience));
    EXPECT_EQ(attempts.back().outcome, Outcome::kConnected);
  }
  server_.reset();
}

TEST_P(ServerTest, RefusesAFrameThatIsTooLarge) {
  Attempt attempt = connect_to(target(), Service::kTakeFrame, 0, now() + kPatience);
  ASSERT_TRUE(attempt.stream.has_value());
  const std::vector<std::byte> head(4, std::byte{0xff});
  ASSERT_TRUE(attempt.stream->send(head, now() + kPatience).ok());
  std::vector<std::byte> answer(1);
  const absl::Status status = attempt.stream->receive(absl::MakeSpan(answer), now() + kPatience);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
}

TEST_P(ServerTest, MeasuresFramesAndSpeed) {
  const FrameSizes sizes = measure_frames(target(), 1500);
  for (const FrameSize& size : {sizes.there, sizes.back}) {
    EXPECT_GE(size.largest, 1500);
    EXPECT_FALSE(size.loses);
  }
  Path path;
  measure_speed(target(), path);
  EXPECT_EQ(path.error, "");
  EXPECT_GT(path.round_trip_us, 0);
  EXPECT_GT(path.gbps_there, 0);
  EXPECT_GT(path.gbps_back, 0);
}

// A peer that answers every hello with one welcome, sends `last`, and closes.
class FakeServer {
 public:
  explicit FakeServer(Welcome welcome, std::vector<std::byte> last = {})
      : welcome_(std::move(welcome)), last_(std::move(last)) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeServer() {
    shutdown(listener_.fd(), SHUT_RDWR);  // which ends accept()
    thread_.join();
  }

  Target target(const UniqueId& token) const {
    Target target{token, 0, 1, 0, "lo", address_, address_, "lo"};
    target.to.set_port(net::local_address(listener_.fd())->port());
    return target;
  }

 private:
  void run() {
    while (await_events(listener_.fd(), POLLIN, now() + kPatience)) {
      net::Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.fd() < 0) return;
      Stream stream(std::move(socket));
      HelloBytes hello{};
      if (!stream.receive(absl::MakeSpan(hello), now() + kPatience).ok()) continue;
      stream.send(encode(welcome_), now() + kPatience).IgnoreError();
      stream.send(last_, now() + kPatience).IgnoreError();
    }
  }

  const Welcome welcome_;
  const std::vector<std::byte> last_;
  const net::Address address_ = *net::Address::parse_host("127.0.0.1");
  const net::Socket listener_ = *net::listening_socket("lo", address_);
  std::thread thread_;
};

Outcome outcome_of_welcome(const UniqueId& token, const Welcome& welcome) {
  const FakeServer server(welcome);
  return connect_to(server.target(token), Service::kGreet, 0, now() + kPatience).outcome;
}

TEST(Connecting, KnowsThePeerByItsTokenAndRank) {
  const UniqueId token = UniqueId::random();
  EXPECT_EQ(outcome_of_welcome(token, {token, 1, "lo"}), Outcome::kConnected);
  EXPECT_EQ(outcome_of_welcome(token, {UniqueId::random(), 1, "lo"}), Outcome::kStranger);
  EXPECT_EQ(outcome_of_welcome(token, {token, 2, "lo"}), Outcome::kStranger);
}

TEST(Connecting, BelievesAPeerThatCannotTellTheInterface) {
  const UniqueId token = UniqueId::random();
  EXPECT_EQ(outcome_of_welcome(token, {token, 1, ""}), Outcome::kConnected);
}

TEST(Measuring, TellsOfConnectionsThatEndEarly) {
  const UniqueId token = UniqueId::random();
  const FakeServer server({token, 1, "lo"});
  Path path;
  measure_speed(server.target(token), path);
  EXPECT_NE(path.error, "");
}

// The first pings are answered; then the connection ends.
TEST(Measuring, TellsOfARoundTripThatEndsEarly) {
  const UniqueId token = UniqueId::random();
  const FakeServer server({token, 1, "lo"}, std::vector<std::byte>(64));
  Path path;
  measure_speed(server.target(token), path);
  EXPECT_NE(path.error, "");
}

// A connection that cannot be made is not reported as packet loss.
TEST(Measuring, ReportsNoPacketLossWithoutAConnection) {
  const UniqueId token = UniqueId::random();
  const FakeServer stranger({UniqueId::random(), 1, "lo"});
  const FakeServer closing({token, 1, "lo"});
  for (const FakeServer* server : {&stranger, &closing}) {
    const FrameSizes sizes = measure_frames(server->target(token), 1500);
    for (const FrameSize& size : {sizes.there, sizes.back}) {
      EXPECT_FALSE(size.loses);
      EXPECT_NE(size.error, "");
      EXPECT_EQ(size.largest, 0);
    }
  }
}

TEST(Greeting, RefusesMalformedWelcomes) {
  const WelcomeBytes welcome = encode(Welcome{UniqueId::random(), 1, "eth0"});
  ASSERT_TRUE(decode_welcome(welcome).has_value());
  EXPECT_EQ(decode_welcome(welcome)->interface, "eth0");
  WelcomeBytes changed = welcome;
  changed[0] ^= std::byte{1};
  EXPECT_FALSE(decode_welcome(changed).has_value());
  changed = welcome;
  changed[29] = std::byte{0x1b};  // an escape sequence in the name
  EXPECT_FALSE(decode_welcome(changed).has_value());
  std::fill(changed.begin() + 28, changed.end(), std::byte{'x'});  // a name without an end
  EXPECT_FALSE(decode_welcome(changed).has_value());
}

}  // namespace
}  // namespace nezha::check
