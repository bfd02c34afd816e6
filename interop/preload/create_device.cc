// SPDX-License-Identifier: Apache-2.0
// Where a program that links libgloo makes its device, it gets nezha's.
#include <dlfcn.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "nezha/gloo.h"

namespace {

using Device = ::gloo::transport::Device;
using Create = std::shared_ptr<Device> (*)(const ::gloo::transport::tcp::attr&);

// Gloo's own, which this library stands in front of.
Create original() {
  static void* const found = dlsym(RTLD_NEXT, "_ZN4gloo9transport3tcp12CreateDeviceERKNS1_4attrE");
  return reinterpret_cast<Create>(found);
}

}  // namespace

namespace gloo::transport::tcp {

// NEZHA_RAILS says whether there is anything to take over.
__attribute__((visibility("default"))) std::shared_ptr<::gloo::transport::Device> CreateDevice(
    const struct attr& attr) {
  const char* rails = std::getenv("NEZHA_RAILS");
  if (rails != nullptr && *rails != '\0') return nezha::glooDevice();
  return original()(attr);
}

}  // namespace gloo::transport::tcp

// For programs that load this library by name. `rails`: as NEZHA_RAILS has them; null or empty:
// NEZHA_RAILS.
extern "C" std::shared_ptr<Device> nezha_gloo_device(const char* rails);

extern "C" __attribute__((visibility("default"))) std::shared_ptr<Device> nezha_gloo_device(
    const char* rails) {
  nezha::GlooDeviceOptions options;
  std::istringstream list(rails == nullptr ? "" : rails);
  for (std::string rail; std::getline(list, rail, ',');) options.rails.push_back(rail);
  return nezha::glooDevice(options);
}
