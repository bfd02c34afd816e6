// SPDX-License-Identifier: Apache-2.0
// A library to preload. It makes a program that polls epoll without waiting give its core away
// whenever it finds nothing. UCX polls like that and has no option for it; where ranks share cores,
// a rank that spins keeps the others from doing what it waits for.
#include <dlfcn.h>
#include <sched.h>
#include <sys/epoll.h>

extern "C" __attribute__((visibility("default"))) int epoll_wait(int epfd, epoll_event* events,
                                                                 int maxevents, int timeout) {
  static const auto kReal = reinterpret_cast<decltype(&epoll_wait)>(dlsym(RTLD_NEXT, "epoll_wait"));
  const int found = kReal(epfd, events, maxevents, timeout);
  if (found == 0 && timeout == 0) sched_yield();
  return found;
}
