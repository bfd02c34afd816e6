#include "context/directory.h"

#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/hash_store.h>

#include <memory>
#include <stdexcept>
#include <string>
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
  return record;
}

class FailingStore final : public ::gloo::rendezvous::HashStore {
 public:
  explicit FailingStore(bool is_late) : is_late_(is_late) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    if (is_late_) HashStore::set(key, data);  // by the other process that sets it
    throw std::runtime_error("rename: No such file or directory");
  }

 private:
  const bool is_late_;
};

TEST(Directory, SaysWhatToDoIfItWasUsed) {
  const TemporaryFolder folder;
  const auto publish = [&](int rank) {
    Directory directory(std::make_shared<::gloo::rendezvous::FileStore>(folder.file("")));
    return directory.publish(rank, little_record());
  };
  ASSERT_TRUE(publish(0).ok());
  ASSERT_TRUE(publish(1).ok());
  const absl::Status status = publish(0);
  EXPECT_TRUE(absl::StrContains(status.message(), kAdvice)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), folder.file(""))) << status;
}

TEST(Directory, SaysSoOfTwoProcessesThatComeAtTheSameTime) {
  const absl::Status status =
      Directory(std::make_shared<FailingStore>(true)).publish(0, little_record());
  EXPECT_TRUE(absl::StrContains(status.message(), kAdvice)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "rename")) << status;
}

TEST(Directory, SaysNothingOfItIfTheStoreFails) {
  const absl::Status status =
      Directory(std::make_shared<FailingStore>(false)).publish(0, little_record());
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_FALSE(absl::StrContains(status.message(), kAdvice)) << status;
}

}  // namespace
}  // namespace nezha
