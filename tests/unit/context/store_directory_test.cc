// SPDX-License-Identifier: Apache-2.0
#include "context/store_directory.h"

#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/hash_store.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/unit/context/stores/servers.h"

namespace nezha {
namespace {

constexpr absl::string_view kAdvice = "Each context takes a new one";

Record little_record() {
  Record record;
  record.process = {3, 4};
  record.publication = UniqueId::random();
  return record;
}

Record record_of(uint64_t process, const std::string& host, int pid) {
  Record record;
  record.process = {process, process};
  record.publication = {process, 1};
  record.host = host;
  record.pid = pid;
  return record;
}

void expect_both(const absl::Status& status) {
  EXPECT_TRUE(absl::StrContains(status.message(), "rank 1")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "pid 11 on host red")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "pid 22 on host blue")) << status;
}

class FailingStore final : public ::gloo::rendezvous::HashStore {
 public:
  // Sets the key nevertheless if `is_set`.
  explicit FailingStore(bool is_set) : is_set_(is_set) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    if (is_set_) HashStore::set(key, data);
    throw std::runtime_error("rename: No such file or directory");
  }

 private:
  const bool is_set_;
};

// The record is missing the first few times that the store is asked for it.
class LateStore final : public ::gloo::rendezvous::HashStore {
 public:
  using HashStore::wait;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    if (keys.front() == Record::key(0)) {
      asked_.push_back(now());
      if (asked_.size() >= kTimes) set(keys.front(), text_of(little_record()));
    }
    HashStore::wait(keys, timeout);
  }
  const std::vector<Nanos>& asked() const { return asked_; }

 private:
  static constexpr size_t kTimes = 7;
  static std::vector<char> text_of(const Record& record) {
    const std::string text = record.encode();
    return {text.begin(), text.end()};
  }
  std::vector<Nanos> asked_;
};

TEST(StoreDirectory, AsksTheStoreLessOftenTheLongerItWaits) {
  const auto store = std::make_shared<LateStore>();
  const auto never = [] { return absl::OkStatus(); };
  const auto record = StoreDirectory(store).read(0, now() + 60 * kSecond, never);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->process, little_record().process);
  const std::vector<Nanos>& asked = store->asked();
  ASSERT_GT(asked.size(), 4U);
  for (size_t i = 2; i < asked.size(); ++i) {
    const Nanos waited = asked[i - 1] - asked[0];
    EXPECT_GE(asked[i] - asked[i - 1], std::min(waited / 4, kSecond))
        << "after " << waited << " ns";
  }
}

TEST(StoreDirectory, PausesGrowAndShrinkTowardsTheDeadline) {
  constexpr Nanos kFar = 1000 * kSecond;
  EXPECT_EQ(pause_after(kSecond / 10, kFar), 0);
  EXPECT_EQ(pause_after(kSecond, kFar), kSecond / 4);
  EXPECT_EQ(pause_after(100 * kSecond, kFar), kSecond);
  EXPECT_LE(pause_after(100 * kSecond, kSecond), kSecond / 8)
      << "a rank that comes now is still in time";
  EXPECT_GT(pause_after(100 * kSecond, 0), 0);
}

TEST(StoreDirectory, GivesUpBetweenTwoQuestions) {
  const auto store = std::make_shared<LateStore>();
  const auto given_up = [&] {
    return store->asked().size() < 3 ? absl::OkStatus() : absl::CancelledError("enough");
  };
  const auto record = StoreDirectory(store).read(0, now() + 60 * kSecond, given_up);
  EXPECT_TRUE(absl::IsCancelled(record.status())) << record.status();
  EXPECT_EQ(store->asked().size(), 3U);
}

// A store that reports a key as present but cannot return its value.
class BrokenStore final : public ::gloo::rendezvous::HashStore {
 public:
  explicit BrokenStore(std::function<void()> fail) : fail_(std::move(fail)) {}
  std::vector<char> get(const std::string& key) override {
    fail_();
    return HashStore::get(key);
  }

 private:
  const std::function<void()> fail_;
};

absl::Status read_from(const std::shared_ptr<BrokenStore>& store) {
  store->set(Record::key(0), {'x'});
  const auto never = [] { return absl::OkStatus(); };
  return StoreDirectory(store).read(0, now() + 60 * kSecond, never).status();
}

TEST(StoreDirectory, StoreThatCannotGiveARecordIsNotAskedAgain) {
  int asked = 0;
  const absl::Status status = read_from(std::make_shared<BrokenStore>([&] {
    ++asked;
    throw std::runtime_error("a bad disk");
  }));
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(absl::StrContains(status.message(), "rank 0")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "a bad disk")) << status;
}

TEST(StoreDirectory, SaysThatThereIsNoMemoryForARecord) {
  const absl::Status status =
      read_from(std::make_shared<BrokenStore>([] { throw std::bad_alloc(); }));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "out of memory")) << status;
}

TEST(StoreDirectory, SaysWhatToDoIfItWasUsed) {
  const TemporaryFolder folder;
  const auto publish = [&](int rank) {
    StoreDirectory directory(std::make_shared<::gloo::rendezvous::FileStore>(folder.file("")));
    return directory.publish(rank, little_record());
  };
  ASSERT_TRUE(publish(0).ok());
  ASSERT_TRUE(publish(1).ok());
  const absl::Status status = publish(0);
  EXPECT_TRUE(absl::StrContains(status.message(), "has published rank 0 here already")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), kAdvice)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), folder.file(""))) << status;
}

TEST(StoreDirectory, SaysWhatToDoIfTheStoreCannotBeWritten) {
  auto folder = std::make_unique<TemporaryFolder>();
  StoreDirectory directory(std::make_shared<::gloo::rendezvous::FileStore>(folder->file("")));
  folder.reset();
  const absl::Status status = directory.publish(0, little_record());
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "publishing rank 0 in the store: the store cannot be written. Its "
                                "directory or its server must exist"))
      << status;
}

TEST(StoreDirectory, NamesBothProcessesThatAreOneRank) {
  StoreDirectory directory(std::make_shared<::gloo::rendezvous::HashStore>());
  ASSERT_TRUE(directory.publish(1, record_of(1, "red", 11)).ok());
  expect_both(directory.publish(1, record_of(2, "blue", 22)));
}

// If two processes set a key at the same time, the second writes over the value of the first. It
// leaves the rest of a longer value.
class ReplacingStore final : public ::gloo::rendezvous::HashStore {
 public:
  void set(const std::string& key, const std::vector<char>& data) override {
    std::vector<char>& value = values_[key];
    value.resize(std::max(value.size(), data.size()));
    std::copy(data.begin(), data.end(), value.begin());
  }
  std::vector<char> get(const std::string& key) override { return values_.at(key); }

 private:
  std::map<std::string, std::vector<char>> values_;
};

TEST(StoreDirectory, AReplacedProcessLearnsItsSuccessor) {
  StoreDirectory directory(std::make_shared<ReplacingStore>());
  const Record red = record_of(1, "red, the longer name", 11);
  const Record blue = record_of(2, "blue", 22);
  ASSERT_TRUE(directory.publish(1, red).ok());
  EXPECT_TRUE(directory.confirm(1, red).ok());
  ASSERT_TRUE(directory.publish(1, blue).ok());
  EXPECT_TRUE(directory.confirm(1, blue).ok());
  expect_both(directory.confirm(1, red));
}

// The other process, which the store gave no error, is the one that is told.
TEST(StoreDirectory, IsContentIfItsRecordIsThereInSpiteOfAnError) {
  StoreDirectory directory(std::make_shared<FailingStore>(true));
  const Record blue = record_of(2, "blue", 22);
  EXPECT_TRUE(directory.publish(1, blue).ok());
  EXPECT_TRUE(directory.confirm(1, blue).ok());
  expect_both(directory.confirm(1, record_of(1, "red", 11)));
}

class UnreadableStore final : public ::gloo::rendezvous::HashStore {
 public:
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {
    throw std::runtime_error("permission denied");
  }
};

// Otherwise this would be reported at once, as a rank that is late.
TEST(StoreDirectory, AFailingStoreIsNotReportedAsALateRank) {
  const auto store = std::make_shared<UnreadableStore>();
  const auto never = [] { return absl::OkStatus(); };
  const absl::Status status = StoreDirectory(store).read(0, now() + 60 * kSecond, never).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "permission denied")) << status;
  EXPECT_FALSE(absl::StrContains(status.message(), "has not appeared")) << status;
}

TEST(StoreDirectory, GivesNoSuchAdviceIfTheStoreFails) {
  const absl::Status status =
      StoreDirectory(std::make_shared<FailingStore>(false)).publish(0, little_record());
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_TRUE(absl::StrContains(status.message(), "publishing rank 0 in the store")) << status;
  EXPECT_FALSE(absl::StrContains(status.message(), kAdvice)) << status;
}

}  // namespace
}  // namespace nezha
