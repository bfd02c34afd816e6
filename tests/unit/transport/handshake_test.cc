// SPDX-License-Identifier: Apache-2.0
// Connections of a device whose ends exchange greetings, over real sockets on loopback.
#include "transport/handshake.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/log_lines.h"
#include "tests/unit/transport/stranger.h"
#include "tests/unit/transport/virtual_clock.h"
#include "transport/framed_link.h"
#include "transport/interface_device.h"
#include "transport/tcp/device.h"
#include "transport/tcp/stream.h"

namespace nezha {
namespace {

using testing::Stranger;

constexpr size_t kGreeting = 1000;  // bytes

// How the ends of one side behave, and what they were called with.
struct Conduct {
  std::string greeting;
  absl::Status at_new_end, at_check, at_make;
  std::vector<std::string> checks;                  // the greetings of the peer
  std::vector<std::pair<std::string, bool>> links;  // the greeting, and is_accepting
  std::function<void()> at_call = [] {};            // of `make`
  std::function<void()> later;  // makes the link, if that takes longer than the call
  bool makes_later = false;
};

class GreetingDevice final : public InterfaceDevice {
 public:
  static std::unique_ptr<GreetingDevice> create(Progress& progress, Acceptor& acceptor,
                                                Conduct& conduct) {
    std::unique_ptr<GreetingDevice> device(new GreetingDevice(progress, acceptor, conduct));
    EXPECT_TRUE(device->open().ok());
    return device;
  }

 private:
  class End final : public LinkEnd {
   public:
    explicit End(GreetingDevice& device) : device_(device) {}
    std::string greeting() override { return device_.conduct_.greeting; }
    absl::Status check(absl::string_view peers_greeting) const override {
      device_.conduct_.checks.emplace_back(peers_greeting);
      return device_.conduct_.at_check;
    }
    void make(net::Socket socket, absl::string_view peers_greeting, bool is_accepting,
              Made made) override {
      Conduct& conduct = device_.conduct_;
      conduct.at_call();
      conduct.links.emplace_back(std::string(peers_greeting), is_accepting);
      socket_ = std::move(socket);
      made_ = std::move(made);
      if (conduct.makes_later) {
        conduct.later = [this] { end(); };
      } else {
        end();
      }
    }

   private:
    void end() {
      const Made made = std::move(made_);
      if (!device_.conduct_.at_make.ok()) return made(device_.conduct_.at_make);
      made(std::make_unique<FramedLink>(device_.progress(), nullptr,
                                        std::make_unique<tcp::TcpStream>(std::move(socket_)),
                                        device_.counters()));
    }

    GreetingDevice& device_;
    net::Socket socket_;
    Made made_;
  };

  GreetingDevice(Progress& progress, Acceptor& acceptor, Conduct& conduct)
      : InterfaceDevice(progress, acceptor, 3, {.interface = "lo", .rail = "blue"}),
        conduct_(conduct) {}
  absl::string_view kind() const override { return "greet"; }
  size_t greeting_size() const override { return kGreeting; }
  absl::StatusOr<std::unique_ptr<LinkEnd>> new_end() override {
    if (!conduct_.at_new_end.ok()) return conduct_.at_new_end;
    return std::make_unique<End>(*this);
  }

  Conduct& conduct_;
};

// Answers each hello with the code, and stores the links.
struct KeepingAcceptor final : Acceptor {
  wire::WelcomeCode code = wire::WelcomeCode::kAccepted;
  std::vector<wire::Hello> hellos;
  std::vector<std::unique_ptr<Link>> links;
  wire::Welcome on_hello(Rail rail, const wire::Hello& hello) override {
    EXPECT_EQ(rail, 3);
    hellos.push_back(hello);
    return {code, wire::kVersion, hello.generation};
  }
  void on_accepted(Rail rail, const wire::Hello& hello, std::unique_ptr<Link> link) override {
    EXPECT_EQ(rail, 3);
    EXPECT_EQ(hello.link_id, hellos.back().link_id);
    links.push_back(std::move(link));
  }
  void on_carrier(Rail, bool, absl::string_view) override {}
};

struct FrameCounter final : LinkOwner {
  int frames = 0;
  absl::StatusOr<std::byte*> on_segment(Link&, const wire::FrameHeader&,
                                        const wire::DataHeader&) override {
    return absl::InternalError("no segment is sent");
  }
  void on_landed(Link&, bool /*is_digested*/) override {}
  void on_written(Link&, OutSegment&) override {}
  void on_acked(Link&, OutSegment&) override {}
  void on_frame(Link&, const wire::FrameHeader&, absl::Span<const std::byte>) override { ++frames; }
  void on_failed(Link&, const absl::Status& why) override { ADD_FAILURE() << why; }
  uint64_t credit() const override { return 0; }
};

std::string greeting_of(char letter) {
  std::string text(kGreeting, letter);
  text.back() = '.';
  return text;
}

wire::Hello hello() {
  return {.job = {1, 2},
          .source = {3, 4},
          .target = {5, 6},
          .link_id = 77,
          .generation = 9,
          .rail = "blue"};
}

template <typename Bytes>
std::string text_of(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// The test's thread drives everything, so that events happen only in settle() and until(). The
// clock is virtual.
class HandshakeTest : public ::testing::Test {
 protected:
  struct Outcome {
    std::unique_ptr<Device::Attempt> attempt;
    std::optional<absl::StatusOr<std::unique_ptr<Link>>> link;
    uint32_t generation = 0;
    absl::Status status() const { return link ? link->status() : absl::UnknownError("not over"); }
  };

  HandshakeTest() {
    here_.greeting = greeting_of('h');
    there_.greeting = greeting_of('t');
    near_ = GreetingDevice::create(*progress_, acceptor_, here_);
    far_ = GreetingDevice::create(*progress_, acceptor_, there_);
  }
  bool until(const std::function<bool()>& is_so) {
    for (int i = 0; i < 100'000 && !is_so(); ++i) drive();
    return is_so();
  }
  // Handles everything that has arrived.
  void settle() {
    for (int i = 0; i < 20; ++i) drive();
  }
  std::unique_ptr<Outcome> begin(Device& device, const std::string& address) {
    auto outcome = std::make_unique<Outcome>();
    outcome->attempt = device.connect(
        address, hello(),
        [&it = *outcome](absl::StatusOr<std::unique_ptr<Link>> link, uint32_t generation) {
          EXPECT_FALSE(it.link.has_value()) << "told twice";
          it.link = std::move(link);
          it.generation = generation;
        });
    EXPECT_FALSE(outcome->link.has_value()) << "told inside of the call";
    return outcome;
  }
  std::unique_ptr<Outcome> connect(Device& device, const std::string& address) {
    auto outcome = begin(device, address);
    EXPECT_TRUE(until([&] { return outcome->link.has_value(); }));
    return outcome;
  }
  std::string plain(const Device& device) const {  // its address
    const std::string address = device.address();
    EXPECT_EQ(address.substr(0, 6), "greet:");
    return address.substr(6);
  }

  testing::VirtualClock clock_;
  testing::LogLines log_;
  std::unique_ptr<Progress> progress_ = *Progress::create();
  Progress::Guard guard_{*progress_};
  KeepingAcceptor acceptor_;
  Conduct here_, there_;
  std::unique_ptr<GreetingDevice> near_, far_;

 private:
  void drive() {
    Waiter tick;
    progress_->wait(guard_, tick, now() + kMicrosecond);
  }
};

TEST_F(HandshakeTest, BothEndsGetTheOthersGreetingAndALink) {
  const auto outcome = connect(*near_, far_->address());
  ASSERT_TRUE(outcome->status().ok()) << outcome->status();
  EXPECT_EQ(outcome->generation, 9u);
  using Links = std::vector<std::pair<std::string, bool>>;
  EXPECT_EQ(there_.links, (Links{{greeting_of('h'), true}}));
  EXPECT_EQ(here_.links, (Links{{greeting_of('t'), false}}));
  ASSERT_EQ(acceptor_.links.size(), 1u);
  // The links find no bytes of the greetings.
  FrameCounter near_owner, far_owner;
  (**outcome->link)->start(&near_owner, 3, 77);
  acceptor_.links[0]->start(&far_owner, 3, 77);
  (**outcome->link)->send(wire::FrameType::kPing, "");
  acceptor_.links[0]->send(wire::FrameType::kPing, "");
  EXPECT_TRUE(until([&] { return near_owner.frames > 0 && far_owner.frames > 0; }));
  EXPECT_EQ(log_.take(), std::vector<std::string>());
}

TEST_F(HandshakeTest, GreetingsMayComeInPieces) {
  Stranger stranger(plain(*near_));
  const std::string said = text_of(wire::encode(hello())) + greeting_of('s');
  constexpr size_t kPiece = 47;
  for (size_t done = 0; done < said.size(); done += kPiece) {
    stranger.write(said.data() + done, std::min(kPiece, said.size() - done));
    settle();
  }
  EXPECT_EQ(stranger.welcome()->code, wire::WelcomeCode::kAccepted);
  EXPECT_EQ(stranger.read(kGreeting), greeting_of('h'));
  ASSERT_EQ(here_.links.size(), 1u);
  EXPECT_EQ(here_.links[0].first, greeting_of('s'));
}

TEST_F(HandshakeTest, ALinkMayTakeLongToMake) {
  here_.makes_later = there_.makes_later = true;
  const auto outcome = begin(*near_, far_->address());
  ASSERT_TRUE(until([&] { return here_.later != nullptr && there_.later != nullptr; }));
  clock_.advance(60 * kSecond);
  settle();
  EXPECT_FALSE(outcome->link.has_value());
  EXPECT_TRUE(acceptor_.links.empty());
  there_.later();
  EXPECT_EQ(acceptor_.links.size(), 1u);
  EXPECT_EQ(acceptor_.hellos.back().link_id, 77u);
  here_.later();
  EXPECT_TRUE(outcome->status().ok()) << outcome->status();
}

TEST_F(HandshakeTest, TheConnectingEndSaysWhyItHasNoLink) {
  here_.at_make = absl::UnavailableError("the peer's queue is no queue");
  EXPECT_EQ(connect(*near_, far_->address())->status(),
            absl::AbortedError("the peer's queue is no queue"))
      << "the peer has refused nothing";
  here_.at_new_end = absl::NotFoundError("no queue is left");
  EXPECT_EQ(connect(*near_, far_->address())->status(), absl::AbortedError("no queue is left"));
  EXPECT_EQ(here_.links.size(), 1u);
  EXPECT_EQ(acceptor_.hellos.size(), 1u) << "nothing was said the second time";
}

TEST_F(HandshakeTest, BothEndsSayWhyTheyDoNotFit) {
  here_.at_check = absl::FailedPreconditionError("theirs is another network");
  there_.at_check = absl::FailedPreconditionError("ours is another network");
  EXPECT_EQ(connect(*near_, far_->address())->status(), here_.at_check);
  EXPECT_EQ(log_.take("closed").size(), 1u);
  EXPECT_EQ(here_.checks, std::vector<std::string>{greeting_of('t')});
  EXPECT_EQ(there_.checks, std::vector<std::string>{greeting_of('h')});
  EXPECT_TRUE(here_.links.empty() && there_.links.empty());
  EXPECT_TRUE(acceptor_.links.empty());
}

TEST_F(HandshakeTest, TheAcceptingEndWarnsOnceAndHangsUpIfItHasNoLink) {
  const auto warning = [](const std::string& why) {
    return std::vector<std::string>{
        "warning: blue: the connection of a process at 127.0.0.1 was closed, because no link came "
        "of "
        "it: " +
        why};
  };
  there_.at_make = absl::AbortedError("the peer's queue is no queue");
  for (int i = 0; i < 3; ++i) connect(*near_, far_->address());
  EXPECT_EQ(log_.take(), warning("the peer's queue is no queue"));
  EXPECT_EQ(there_.links.size(), 3u);
  there_.at_new_end = absl::ResourceExhaustedError("no queue is left; raise the limit");
  EXPECT_TRUE(absl::IsAborted(connect(*near_, far_->address())->status()));
  EXPECT_EQ(log_.take(), warning("no queue is left; raise the limit"));
  EXPECT_EQ(there_.links.size(), 3u);
  EXPECT_TRUE(acceptor_.links.empty());
  there_.at_make = absl::UnavailableError("the peer has left");
  there_.at_new_end = absl::OkStatus();
  connect(*near_, far_->address());
  EXPECT_EQ(log_.take(), std::vector<std::string>());
  there_.at_make = absl::OkStatus();
  EXPECT_TRUE(connect(*near_, far_->address())->status().ok());
  there_.at_new_end = absl::ResourceExhaustedError("no queue is left; raise the limit");
  EXPECT_TRUE(absl::IsAborted(connect(*near_, far_->address())->status()));
  EXPECT_EQ(log_.take(), warning("no queue is left; raise the limit")) << "again, after a link";
}

TEST_F(HandshakeTest, AnIncompleteGreetingEndsTheConnection) {
  const std::string half = text_of(wire::encode(hello())) + std::string(kGreeting / 2, 's');
  Stranger silent(plain(*near_));
  silent.write(half.data(), half.size());
  {
    Stranger gone(plain(*near_));
    gone.write(half.data(), half.size());
  }
  settle();
  clock_.advance(6 * kSecond);
  settle();
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(acceptor_.hellos.empty());
  EXPECT_TRUE(here_.links.empty());
}

TEST_F(HandshakeTest, AnIncompleteAnswerFailsTheAttempt) {
  const net::Socket listener(socket(AF_INET, SOCK_STREAM, 0));
  net::Address any = *net::Address::parse_host("127.0.0.1");
  ASSERT_EQ(bind(listener.fd(), any.sockaddr_ptr(), any.length()), 0);
  ASSERT_EQ(listen(listener.fd(), 4), 0);
  const std::string address = absl::StrCat("greet:", net::local_address(listener.fd())->str());
  const std::string half =
      text_of(wire::encode(wire::Welcome{.generation = 9})) + std::string(kGreeting / 2, 's');
  const std::string said = text_of(wire::encode(hello())) + greeting_of('h');
  {
    const auto outcome = begin(*near_, address);
    settle();
    {
      Stranger closing(accept(listener.fd(), nullptr, nullptr));
      EXPECT_EQ(closing.read(said.size()), said);
      closing.write(half.data(), half.size());
    }
    EXPECT_TRUE(until([&] { return outcome->link.has_value(); }));
    EXPECT_TRUE(absl::IsAborted(outcome->status())) << outcome->status();
  }
  const auto outcome = begin(*near_, address);
  settle();
  Stranger silent(accept(listener.fd(), nullptr, nullptr));
  silent.write(half.data(), half.size());
  settle();
  EXPECT_FALSE(outcome->link.has_value());
  clock_.advance(6 * kSecond);
  settle();
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome->status())) << outcome->status();
  EXPECT_TRUE(here_.links.empty());
}

TEST_F(HandshakeTest, OtherProgramsAreRefusedBeforeTheirGreeting) {
  Stranger garbage(plain(*near_));
  garbage.write(std::string(wire::kHelloSize, 'G').data(), wire::kHelloSize);
  Stranger other(plain(*near_));
  wire::HelloBytes bytes = wire::encode(hello());
  bytes[8] = std::byte{wire::kVersion + 1};
  other.write(bytes);
  settle();
  EXPECT_TRUE(garbage.is_closed());
  EXPECT_EQ(other.welcome()->code, wire::WelcomeCode::kWrongVersion);
  EXPECT_TRUE(other.is_closed());
  EXPECT_TRUE(acceptor_.hellos.empty());
}

TEST_F(HandshakeTest, ARefusalHasNoGreeting) {
  acceptor_.code = wire::WelcomeCode::kDuplicate;
  Stranger stranger(plain(*near_));
  const std::string said = text_of(wire::encode(hello())) + greeting_of('s');
  stranger.write(said.data(), said.size());
  settle();
  EXPECT_EQ(stranger.welcome()->code, wire::WelcomeCode::kDuplicate);
  EXPECT_TRUE(stranger.is_closed());
  EXPECT_TRUE(absl::IsAlreadyExists(connect(*near_, far_->address())->status()));
  EXPECT_TRUE(here_.links.empty());
  EXPECT_TRUE(there_.links.empty());
  EXPECT_TRUE(acceptor_.links.empty());
}

TEST_F(HandshakeTest, RailsOfTwoKindsDoNotReachEachOther) {
  tcp::DeviceOptions options;
  options.interface = "lo";
  options.rail = "blue";
  const auto tcp = *tcp::TcpDevice::create(*progress_, acceptor_, 3, options);
  EXPECT_TRUE(net::Address::parse(tcp->address()).ok()) << "without the kind";
  EXPECT_TRUE(tcp->can_reach(tcp->address()).ok());
  EXPECT_TRUE(near_->can_reach(far_->address()).ok());
  struct Case {
    Device& from;
    std::string to, says;
  };
  for (const Case& it : {Case{*near_, tcp->address(), "the peer's rail blue is of kind tcp"},
                         Case{*tcp, far_->address(), "the peer's rail blue is of kind greet"}}) {
    const absl::Status status = it.from.can_reach(it.to);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), it.says)) << status;
    const auto outcome = connect(it.from, it.to);
    EXPECT_TRUE(absl::StrContains(outcome->status().message(), it.says)) << outcome->status();
  }
  EXPECT_TRUE(acceptor_.hellos.empty());
  for (const char* nonsense :
       {"", "greet", "greet:", "greet:10.0.0.1", "greeting:10.0.0.1:1", ":"}) {
    EXPECT_FALSE(near_->can_reach(nonsense).ok()) << nonsense;
  }
}

}  // namespace
}  // namespace nezha
