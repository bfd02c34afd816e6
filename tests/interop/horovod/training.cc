// SPDX-License-Identifier: Apache-2.0
// What Horovod does from its initialisation until its shutdown or its first error.
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>

#include "calls.h"
#include "store.h"

// The linker takes this from Gloo.
constexpr auto CreateDevice = gloo::transport::tcp::CreateDevice;

// One rank of a job. Horovod finds these values in the environment.
struct Place {
  int rank, size, local_rank, local_size, cross_rank, cross_size;
  const char* host;
  int id;  // of the process; it stays when ranks are renumbered
  const char *all_ids, *local_ids, *cross_ids;
};

namespace {

constexpr std::chrono::seconds kTimeout{60};

void report(const std::string& event, const std::string& members = "") {
  std::printf("{\"event\": \"%s\"%s}\n", event.c_str(), members.c_str());
  std::fflush(stdout);
}

std::string member(const std::string& name, const std::string& value) {
  std::string text;
  for (const char each : value) text += each == '"' || each == '\\' || each == '\n' ? ' ' : each;
  return ", \"" + name + "\": \"" + text + "\"";
}

std::shared_ptr<gloo::transport::Device> make_device(const std::string& interface) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = interface;
  attributes.ai_family = AF_UNSPEC;
  return CreateDevice(attributes);
}

Context connect(const std::string& folder, const std::string& prefix, int rank, int size,
                std::shared_ptr<gloo::transport::Device>& device) {
  FolderStore store(folder, prefix);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->setTimeout(kTimeout);
  context->connectFullMesh(store, device);
  gloo::BarrierOptions options(context);
  gloo::barrier(options);
  return context;
}

// The first context and those of the hosts and of equal places on hosts share one device. The
// context of a process set has another device, for which no interface is given.
void run(const Place& place, const std::string& folder, const std::string& stop_file,
         size_t elements) {
  const char* interface = std::getenv("HOROVOD_GLOO_IFACE");
  auto device = make_device(interface == nullptr ? "" : interface);
  auto set_device = make_device("");
  report("devices", member("first", device->str()) + member("second", set_device->str()));
  const Context all = connect(folder, "global", place.rank, place.size, device);
  const Context local = connect(folder, std::string("local_") + place.host, place.local_rank,
                                place.local_size, device);
  const Context cross = connect(folder, "cross_" + std::to_string(place.local_rank),
                                place.cross_rank, place.cross_size, device);
  const Context set = connect(folder, "set", place.rank, place.size, set_device);
  check_members(all, place.id, place.all_ids);
  check_members(local, place.id, place.local_ids);
  check_members(cross, place.id, place.cross_ids);
  for (const Context& each : {all, local, cross, set}) check_all_calls(each);
  report("checked", member("sums", sums_of_no_numbers(all)));
  for (int operation = 0; !any_rank(all, std::ifstream(stop_file).good()); ++operation) {
    const std::string number = ", \"operation\": " + std::to_string(operation);
    report("start", number);
    check_large_sum(all, elements);
    report("done", number);
  }
}

}  // namespace

// Returns 0 once one rank has found the stop file, and 1 after an error.
extern "C" int train(const Place* place, const char* folder, const char* stop_file,
                     size_t elements) {
  try {
    run(*place, folder, stop_file, elements);
    report("end");
    return 0;
  } catch (const std::exception& error) {
    report("error", member("text", error.what()));
    return 1;
  }
}
