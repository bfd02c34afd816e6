// SPDX-License-Identifier: Apache-2.0
// Two framed links over an in-memory stream that accepts and returns a few bytes at a time.
#include "transport/framed_link.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/net/socket.h"
#include "gtest/gtest.h"
#include "transport/progress.h"

namespace nezha {
namespace {

using Bytes = std::deque<std::byte>;

// One end of the stream. Its descriptor is always readable and writable.
class SlowStream final : public ByteStream {
 public:
  SlowStream(std::shared_ptr<Bytes> in, std::shared_ptr<Bytes> out, uint32_t seed)
      : in_(std::move(in)), out_(std::move(out)), random_(seed) {}

  int fd() const override { return ready_.fd(); }
  ssize_t receive(absl::Span<const iovec> parts) override {
    return for_some(parts, in_->size(), [this](std::byte* to, size_t bytes) {
      std::copy_n(in_->begin(), bytes, to);
      in_->erase(in_->begin(), in_->begin() + static_cast<ptrdiff_t>(bytes));
    });
  }
  ssize_t send(absl::Span<const iovec> parts) override {
    return for_some(parts, SIZE_MAX, [this](const std::byte* from, size_t bytes) {
      out_->insert(out_->end(), from, from + bytes);
    });
  }
  void stop() noexcept override {}
  void finish() override {}
  void abandon() override {}
  uint64_t queued() const override { return out_->size(); }
  size_t largest_packet() const override { return 0; }
  Link::Health health() const override { return {}; }

 private:
  // Moves a random number of bytes, at most `most`.
  template <typename Move>
  ssize_t for_some(absl::Span<const iovec> parts, size_t most, const Move& move) {
    const size_t likes[] = {0, 1 + random_() % 8, 1 + random_() % 300, 1 + random_() % 20'000};
    const size_t total = std::min(most, likes[random_() % 4]);
    if (total == 0) {
      errno = EAGAIN;
      return -1;
    }
    size_t done = 0;
    for (const iovec& part : parts) {
      const size_t bytes = std::min(total - done, part.iov_len);
      move(static_cast<std::byte*>(part.iov_base), bytes);
      done += bytes;
    }
    return static_cast<ssize_t>(done);
  }

  std::shared_ptr<Bytes> in_, out_;
  std::mt19937 random_;
  net::Socket ready_{eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
};

class FramedLinkTest : public ::testing::TestWithParam<uint32_t>, public LinkOwner {
 protected:
  FramedLinkTest() : progress_(std::move(*Progress::create())) {
    const auto there = std::make_shared<Bytes>(), back = std::make_shared<Bytes>();
    const Progress::Guard guard(*progress_);
    sender_ = make(back, there);
    receiver_ = make(there, back);
  }
  ~FramedLinkTest() override {
    const Progress::Guard guard(*progress_);
    progress_->run_deferred();
    sender_.reset();
    receiver_.reset();
  }

  std::unique_ptr<FramedLink> make(std::shared_ptr<Bytes> in, std::shared_ptr<Bytes> out) {
    auto stream = std::make_unique<SlowStream>(std::move(in), std::move(out), GetParam());
    auto link = std::make_unique<FramedLink>(*progress_, nullptr, std::move(stream), counters_);
    link->start(this, 0, 1);
    return link;
  }
  void submit(size_t length) {
    OutSegment& segment = segments_.emplace_back();
    auto& data = contents_.emplace_back(length);
    for (auto& byte : data) byte = static_cast<std::byte>(random_());
    segment.data = data.data();
    segment.length = static_cast<uint32_t>(length);
    segment.header.info.total = length;
    segment.header.number = segments_.size();
    sender_->submit(segment);
  }
  bool comes_true(const std::function<bool()>& what) {
    for (int i = 0; i < 10'000; ++i) {
      {
        const Progress::Guard guard(*progress_);
        if (what()) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  absl::StatusOr<std::byte*> on_segment(Link&, const wire::FrameHeader& frame,
                                        const wire::DataHeader&) override {
    return arrived_.emplace_back(frame.length).data();
  }
  void on_landed(Link& link, bool /*is_digested*/) override {
    ++landed_;
    progress_->defer([&link] { link.flush_ack(); });
  }
  void on_written(Link&, OutSegment& segment) override { segment.written = true; }
  void on_acked(Link&, OutSegment& segment) override {
    EXPECT_TRUE(segment.written);
    acked_.push_back(&segment);
  }
  void on_frame(Link&, const wire::FrameHeader& frame, absl::Span<const std::byte> body) override {
    if (frame.type != wire::FrameType::kAbort) return;
    bodies_.emplace_back(reinterpret_cast<const char*>(body.data()), body.size());
  }
  void on_failed(Link&, const absl::Status& why) override { ADD_FAILURE() << why; }
  uint64_t credit() const override { return 0; }

  std::shared_ptr<Progress> progress_;
  RailCounters counters_;
  std::mt19937 random_{GetParam()};
  std::list<OutSegment> segments_;
  std::list<std::vector<std::byte>> contents_, arrived_;
  std::vector<OutSegment*> acked_;
  std::vector<std::string> bodies_;
  size_t landed_ = 0;
  std::unique_ptr<FramedLink> sender_, receiver_;
};

TEST_P(FramedLinkTest, AllArrivesInOrderHoweverItIsCut) {
  constexpr size_t kSegments = 60;
  std::vector<std::string> said;
  {
    const Progress::Guard guard(*progress_);
    for (size_t i = 0; i < kSegments; ++i) {
      submit(i % 5 == 0 ? 100'000 + random_() % 100 : random_() % 3000);
      said.push_back(
          std::string(random_() % wire::kMaxControlBody, static_cast<char>('a' + i % 26)));
      sender_->send(wire::FrameType::kAbort, said.back());
    }
  }
  EXPECT_TRUE(comes_true([&] { return acked_.size() == kSegments; }));
  EXPECT_TRUE(comes_true([&] { return sender_->has_arrived(); }));
  const Progress::Guard guard(*progress_);
  EXPECT_EQ(landed_, kSegments);
  EXPECT_TRUE(arrived_ == contents_);
  EXPECT_TRUE(bodies_ == said);
  size_t index = 0;
  for (const OutSegment& segment : segments_) EXPECT_EQ(acked_[index++], &segment);
  EXPECT_TRUE(sender_->unacked().empty());
  EXPECT_EQ(counters_.bytes_sent, counters_.bytes_received);
}

INSTANTIATE_TEST_SUITE_P(Seeds, FramedLinkTest, ::testing::Range(1u, 9u));

}  // namespace
}  // namespace nezha
