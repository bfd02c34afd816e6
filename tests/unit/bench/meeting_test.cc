// SPDX-License-Identifier: Apache-2.0
// Ranks that meet in a shared directory. Each is a thread of this process.
#include "bench/meeting/meeting.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace nezha::bench {
namespace {

constexpr int kMeetingRanks = 3;

class MeetingTest : public ::testing::Test {
 protected:
  MeetingTest() {
    std::string pattern = ::testing::TempDir() + "nezha-meeting-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~MeetingTest() override { std::filesystem::remove_all(path_); }

  Rendezvous options(int rank, std::chrono::milliseconds timeout = std::chrono::seconds(30)) const {
    Rendezvous options;
    options.rank = rank;
    options.size = kMeetingRanks;
    options.shared_path = path_;
    options.prefix = "run";
    options.timeout = timeout;
    return options;
  }
  // Returns what the ranks throw; empty where a rank throws nothing.
  std::vector<std::string> run(const std::function<void(Meeting&, int rank)>& program) const {
    std::vector<std::string> errors(kMeetingRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kMeetingRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const Rendezvous own = options(rank);
        try {
          Meeting meeting(own, "test");
          program(meeting, rank);
        } catch (const std::runtime_error& error) {
          errors[static_cast<size_t>(rank)] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
  static std::vector<std::string> none() { return std::vector<std::string>(kMeetingRanks); }

  std::string path_;
};

TEST_F(MeetingTest, AllRanksGetRank0sValues) {
  const auto errors = run([](Meeting& meeting, int rank) {
    const std::vector<std::string> own{std::to_string(rank), "b"};
    EXPECT_EQ(meeting.of_rank_0("values", own), (std::vector<std::string>{"0", "b"}));
  });
  EXPECT_EQ(errors, none());
}

TEST_F(MeetingTest, GathersTheTextsOfAllRanks) {
  const auto errors = run([](Meeting& meeting, int rank) {
    const std::vector<std::string> all{"of 0", "of 1\nin two lines", ""};
    const auto& own = all[static_cast<size_t>(rank)];
    EXPECT_EQ(meeting.gather("texts", own), all);
    EXPECT_EQ(meeting.at_rank_0("others", own), rank == 0 ? all : std::vector<std::string>{});
  });
  EXPECT_EQ(errors, none());
}

TEST_F(MeetingTest, TheUnionHasEachNameOnce) {
  const auto errors = run([](Meeting& meeting, int rank) {
    EXPECT_EQ(meeting.union_of("rails", {"eth0", "eth" + std::to_string(rank)}),
              (std::vector<std::string>{"eth0", "eth1", "eth2"}));
  });
  EXPECT_EQ(errors, none());
}

TEST_F(MeetingTest, SettingsThatDifferAreNamedOnEveryRank) {
  const auto errors = run([](Meeting& meeting, int rank) {
    meeting.agree("settings", {{"--plan", "auto"}, {"--type", rank == 2 ? "int8" : "float32"}});
  });
  EXPECT_EQ(errors[0],
            "the ranks' command lines differ: --type is float32 here and int8 at rank 2");
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_EQ(errors[2],
            "the ranks' command lines differ: --type is int8 here and float32 at rank 0");
}

TEST_F(MeetingTest, AFailureIsToldToThoseThatWait) {
  const auto errors = run([](Meeting& meeting, int rank) {
    if (rank == 1) return meeting.tell_failure("no such rail");
    meeting.gather("texts", "here");
  });
  EXPECT_EQ(errors[0], "another rank has failed: no such rail");
  EXPECT_EQ(errors[1], "");
  EXPECT_EQ(errors[2], errors[0]);
}

TEST_F(MeetingTest, RanksThatDoNotComeAreNamed) {
  const Rendezvous own = options(0, std::chrono::milliseconds(50));
  Meeting meeting(own, "test");
  try {
    meeting.gather("texts", "here");
    ADD_FAILURE() << "nobody else has come";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("ranks 1, 2 have not come"), std::string::npos)
        << error.what();
  }
}

TEST_F(MeetingTest, APrefixServesOneRun) {
  const Rendezvous own = options(0);
  Meeting first(own, "test");
  first.publish("topic", "text");
  EXPECT_EQ(first.read("topic", 0), "text");
  Meeting second(own, "test");
  try {
    second.publish("topic", "text");
    ADD_FAILURE() << "the first run has used the prefix";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("take a new --prefix"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace nezha::bench
