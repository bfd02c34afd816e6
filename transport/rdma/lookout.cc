// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/lookout.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "common/shortage.h"

namespace nezha::rdma {

absl::StatusOr<Choice> choose_now(const Wish& wish, const Verbs& verbs) {
  const auto machine = Machine::look(verbs, wish.device);
  if (!machine.ok()) return machine.status();
  return choose(wish, *machine);
}

absl::StatusOr<std::unique_ptr<Lookout>> Lookout::create(Progress& progress, Wish wish,
                                                         const Verbs& verbs, Found found) {
  std::unique_ptr<Lookout> made(new Lookout(progress, std::move(wish), verbs, std::move(found)));
  net::Socket over(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (over.fd() < 0) return system_error(errno, "making an eventfd");
  absl::Status status = progress.add(over.fd(), made.get(), EPOLLIN);
  if (!status.ok()) return status;
  made->over_ = std::move(over);
  return made;
}

Lookout::~Lookout() {
  if (over_.fd() >= 0) progress_.remove(over_.fd());
  if (thread_.joinable()) thread_.join();
}

void Lookout::ask() {
  if (is_under_way_) {
    is_wanted_ = true;
    return;
  }
  is_under_way_ = true;
  auto thread = start_thread([this] {
    choice_ = choose_now(wish_, verbs_);
    eventfd_write(over_.fd(), 1);
  });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    choice_ = thread.status();
    eventfd_write(over_.fd(), 1);
  }
}

void Lookout::on_events(uint32_t) {
  eventfd_t looks = 0;
  if (eventfd_read(over_.fd(), &looks) != 0) return;
  if (thread_.joinable()) thread_.join();
  is_under_way_ = false;
  const absl::StatusOr<Choice> choice = std::move(choice_);
  if (std::exchange(is_wanted_, false)) return ask();
  found_(choice);
}

}  // namespace nezha::rdma
