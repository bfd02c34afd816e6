// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/epochs/star.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace nezha::star {
namespace {

constexpr int kBeatMs = 50;
constexpr int kSilenceMs = 500;
constexpr auto kPause = std::chrono::milliseconds(20);

sockaddr_in address_of(const std::string& address, uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  inet_pton(AF_INET, address.c_str(), &to.sin_addr);
  return to;
}

std::string bytes_of(const Frame& frame, const std::byte* payload) {
  std::string bytes(reinterpret_cast<const char*>(&frame), sizeof frame);
  if (payload != nullptr) bytes.append(reinterpret_cast<const char*>(payload), frame.length);
  return bytes;
}

// Returns false if the connection has ended or stays silent.
bool read_exactly(int fd, void* to, size_t length) {
  auto* at = static_cast<char*>(to);
  while (length > 0) {
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, kSilenceMs) <= 0) return false;
    const ssize_t count = ::recv(fd, at, length, 0);
    if (count <= 0) return false;
    at += count;
    length -= static_cast<size_t>(count);
  }
  return true;
}

// ---- The star ----------------------------------------------------------------------------------

struct Client {
  int fd = -1;
  int rank = -1;
  std::string in, out;
};

class Star {
 public:
  explicit Star(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  void run(int listener) {
    for (;;) {
      std::vector<pollfd> ready{{listener, POLLIN, 0}};
      for (const Client& client : clients_) {
        ready.push_back(
            {client.fd, static_cast<short>(client.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      }
      const int count = poll(ready.data(), ready.size(), kBeatMs);
      if (count == 0) send_all({.kind = Kind::kBeat}, nullptr);
      const bool is_whole = serve(ready);
      if ((ready[0].revents & POLLIN) != 0) accept_one(listener);
      if (!is_whole) forget_all();
    }
  }

 private:
  void accept_one(int listener) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
    if (fd < 0) return;
    const int ms = kSilenceMs;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    clients_.push_back({fd, -1, {}, {}});
  }

  bool serve(const std::vector<pollfd>& ready) {
    for (size_t i = 1; i < ready.size(); ++i) {
      Client& client = clients_[i - 1];
      if ((ready[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        char bytes[1 << 16];
        const ssize_t count = ::recv(client.fd, bytes, sizeof bytes, 0);
        if (count <= 0) return false;
        client.in.append(bytes, static_cast<size_t>(count));
        take(client);
      }
    }
    for (Client& client : clients_) {
      if (client.out.empty()) continue;
      const ssize_t count = ::send(client.fd, client.out.data(), client.out.size(), MSG_NOSIGNAL);
      if (count < 0 && errno != EAGAIN) return false;
      if (count > 0) client.out.erase(0, static_cast<size_t>(count));
    }
    return true;
  }

  void take(Client& client) {
    size_t at = 0;
    while (client.in.size() - at >= sizeof(Frame)) {
      Frame frame;
      std::memcpy(&frame, &client.in[at], sizeof frame);
      if (client.in.size() - at < sizeof frame + frame.length) break;
      on_frame(client, frame, &client.in[at + sizeof frame]);
      at += sizeof frame + frame.length;
    }
    client.in.erase(0, at);
  }

  void on_frame(Client& client, const Frame& frame, const char* payload) {
    if (frame.kind == Kind::kHello) {
      client.rank = static_cast<int>(frame.rank);
      const bool are_there = clients_.size() == ranks_ &&
                             std::all_of(clients_.begin(), clients_.end(),
                                         [](const Client& each) { return each.rank >= 0; });
      if (are_there) send_all({.kind = Kind::kReady}, nullptr);
    } else if (frame.kind == Kind::kHas) {
      if (++have_[{frame.tag, frame.ordinal}] < ranks_) return;
      have_.erase({frame.tag, frame.ordinal});
      send_all({.kind = Kind::kSettled, .tag = frame.tag, .ordinal = frame.ordinal}, nullptr);
    } else if (frame.kind == Kind::kBlock) {
      add(frame, payload);
    }
  }

  void add(const Frame& frame, const char* payload) {
    const std::pair key{std::pair(frame.tag, frame.ordinal), frame.offset};
    auto& [count, sum] = sums_[key];
    sum.resize(frame.length / sizeof(float));
    for (size_t i = 0; i < sum.size(); ++i) {
      float value = 0;
      std::memcpy(&value, payload + i * sizeof value, sizeof value);
      sum[i] = count == 0 ? value : sum[i] + value;
    }
    if (++count < ranks_) return;
    send_all(frame, reinterpret_cast<const std::byte*>(sum.data()));
    sums_.erase(key);
  }

  void send_all(const Frame& frame, const std::byte* payload) {
    for (Client& client : clients_) client.out += bytes_of(frame, payload);
  }

  void forget_all() {
    for (const Client& client : clients_) close(client.fd);
    clients_.clear();
    sums_.clear();
    have_.clear();
  }

  size_t ranks_;
  std::vector<Client> clients_;
  std::map<std::pair<std::pair<uint32_t, uint64_t>, uint64_t>,
           std::pair<size_t, std::vector<float>>>
      sums_;
  std::map<std::pair<uint32_t, uint64_t>, size_t> have_;
};

}  // namespace

int serve(const std::string& address, uint16_t port, int ranks) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in at = address_of(address, port);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      listen(listener, ranks) != 0) {
    std::perror("star");
    return 1;
  }
  std::puts("serves");
  std::fflush(stdout);
  Star(ranks).run(listener);
  return 0;
}

// ---- A task ------------------------------------------------------------------------------------

class StarTask final : public Task {
 public:
  StarTask(StarEngine& engine, const Slice& slice, ChunkMap ranges, TaskOwner& owner)
      : Task(owner), engine_(engine), slice_(slice) {
    for (const Range& range : ranges) {
      for (size_t at = 0; at < range.length; at += StarEngine::kBlock) {
        blocks_.push_back({range.offset + at, std::min(StarEngine::kBlock, range.length - at)});
      }
    }
    has_.resize(blocks_.size());
  }
  ~StarTask() override { StarTask::detach(); }

  void start() {
    if (blocks_.empty()) return finish(State::kDone);
    if (!engine_.is_ready_) return lose();
    engine_.tasks_[key()] = this;
    for (size_t i = 0; i < std::min(StarEngine::kWindow, blocks_.size()); ++i) send(i);
  }
  void on_sum(const Frame& frame, const std::byte* payload) {
    const auto is_it = [&](const Range& block) { return block.offset == frame.offset; };
    const auto block = std::find_if(blocks_.begin(), blocks_.end(), is_it);
    const auto index = static_cast<size_t>(block - blocks_.begin());
    if (block == blocks_.end() || block->length != frame.length || has_[index]) return;
    std::memcpy(slice_.operation.output + block->offset, payload, block->length);
    has_[index] = true;
    ++engine_.blocks_;
    if (index + StarEngine::kWindow < blocks_.size()) send(index + StarEngine::kWindow);
    if (std::find(has_.begin(), has_.end(), false) == has_.end()) complete();
  }
  void lose() { finish(State::kLost, absl::UnavailableError("the star is gone")); }
  std::string describe() const override { return "star: waits for sums"; }

 private:
  StarEngine::Key key() const { return {slice_.operation.tag, slice_.operation.ordinal}; }
  Frame frame(Kind kind) const {
    return {.kind = kind, .tag = key().first, .ordinal = key().second, .rank = engine_.rank_};
  }
  void send(size_t index) {
    Frame block = frame(Kind::kBlock);
    block.offset = blocks_[index].offset;
    block.length = static_cast<uint32_t>(blocks_[index].length);
    engine_.send(block, slice_.operation.input + block.offset);
  }
  void complete() {
    auto& retained = engine_.retained_[key()];
    for (size_t i = blocks_.size() - std::min(blocks_.size(), StarEngine::kWindow);
         i < blocks_.size(); ++i) {
      const std::byte* data = slice_.operation.output + blocks_[i].offset;
      retained.push_back({key().first, key().second, slice_.lane, blocks_[i].offset,
                          std::vector(data, data + blocks_[i].length)});
    }
    engine_.send(frame(Kind::kHas));
    detach();
    finish(State::kDone);
  }
  void detach() override {
    const auto found = engine_.tasks_.find(key());
    if (found != engine_.tasks_.end() && found->second == this) engine_.tasks_.erase(found);
  }
  ChunkMap final_chunks() const override {
    ChunkMap map;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (has_[i]) add(map, blocks_[i]);
    }
    return map;
  }

  StarEngine& engine_;
  Slice slice_;
  std::vector<Range> blocks_;
  std::vector<bool> has_;
};

// ---- A rank's engine ---------------------------------------------------------------------------

StarEngine::StarEngine(std::string address, uint16_t port, int rank)
    : address_(std::move(address)), port_(port), rank_(static_cast<uint32_t>(rank)) {}

StarEngine::~StarEngine() { stop(); }

void StarEngine::start(ContextImpl& context, Progress& progress) {
  context_ = &context;
  progress_ = &progress;
  thread_ = std::thread([this] { run(); });
}

void StarEngine::stop() {
  stopping_ = true;
  close_connection();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<std::unique_ptr<Task>> StarEngine::start(const Group& group, const Slice& slice,
                                                        const EnginePlan& plan, TaskOwner& owner) {
  auto task = std::make_unique<StarTask>(
      *this, slice, ranges_of(slice.operation, slice.bounds, plan.schedule, group.size), owner);
  task->start();
  return task;
}

// What the star sends from now on belongs to no operation.
std::vector<Retained> StarEngine::take_retained() {
  is_ready_ = false;
  close_connection();
  std::vector<Retained> all;
  for (auto& [key, kept] : std::exchange(retained_, {})) {
    all.insert(all.end(), std::make_move_iterator(kept.begin()),
               std::make_move_iterator(kept.end()));
  }
  return all;
}

void StarEngine::close_connection() {
  const std::lock_guard lock(mutex_);
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
  outgoing_.clear();
  wake_.notify_all();
}

void StarEngine::run() {
  while (!stopping_) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const sockaddr_in to = address_of(address_, port_);
    connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    pollfd ready{fd, POLLOUT, 0};
    int error = 1;
    socklen_t size = sizeof error;
    if (poll(&ready, 1, kSilenceMs) > 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) {
      {
        const std::lock_guard lock(mutex_);
        fd_ = fd;
        outgoing_.clear();
        outgoing_.push_back(bytes_of({.kind = Kind::kHello, .rank = rank_}, nullptr));
      }
      std::thread writer([this, fd] { write_all(fd); });
      read_all();
      lose();
      {
        const std::lock_guard lock(mutex_);
        shutdown(fd, SHUT_RDWR);
        fd_ = -1;
        wake_.notify_all();
      }
      writer.join();
    }
    close(fd);
    std::this_thread::sleep_for(kPause);
  }
}

void StarEngine::write_all(int fd) {
  for (;;) {
    std::string next;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return fd_ != fd || stopping_ || !outgoing_.empty(); });
      if (fd_ != fd || stopping_) return;
      next = std::move(outgoing_.front());
      outgoing_.pop_front();
    }
    for (size_t done = 0; done < next.size();) {
      pollfd ready{fd, POLLOUT, 0};
      if (poll(&ready, 1, kSilenceMs) <= 0) break;  // the reader notices the failure
      const ssize_t count = ::send(fd, &next[done], next.size() - done, MSG_NOSIGNAL);
      if (count <= 0) return;
      done += static_cast<size_t>(count);
    }
  }
}

void StarEngine::read_all() {
  std::vector<std::byte> payload;
  Frame frame;
  while (read_exactly(fd_, &frame, sizeof frame)) {
    payload.resize(frame.length);
    if (!read_exactly(fd_, payload.data(), payload.size()) || stopping_) return;
    Progress::Guard guard(*progress_);
    on_frame(frame, payload.data());
    progress_->run_deferred();
  }
}

void StarEngine::on_frame(const Frame& frame, const std::byte* payload) {
  if (frame.kind == Kind::kReady) is_ready_ = true;
  if (!is_ready_) return;
  const Key key{frame.tag, frame.ordinal};
  if (frame.kind == Kind::kBlock) {
    const auto task = tasks_.find(key);
    if (task != tasks_.end()) task->second->on_sum(frame, payload);
  } else if (frame.kind == Kind::kSettled) {
    retained_.erase(key);
  } else {
    context_->regain_engine(*this);
  }
}

void StarEngine::send(const Frame& frame, const std::byte* payload) {
  const std::lock_guard lock(mutex_);
  if (fd_ < 0) return;
  outgoing_.push_back(bytes_of(frame, payload));
  wake_.notify_all();
}

void StarEngine::lose() {
  if (stopping_) return;
  Progress::Guard guard(*progress_);
  is_ready_ = false;
  ++losses_;
  for (const auto& [key, task] : std::exchange(tasks_, {})) task->lose();
  context_->lose_engine(*this);
  progress_->run_deferred();
}

}  // namespace nezha::star
