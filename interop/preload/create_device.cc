// SPDX-License-Identifier: Apache-2.0
// Where a program that links libgloo makes its device, it gets nezha's.
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>

#include "interop/preload/notice.h"
#include "interop/preload/original.h"
#include "nezha/gloo.h"

namespace gloo::transport::tcp {

// NEZHA_RAILS says whether there is anything to take over.
__attribute__((visibility("default"))) std::shared_ptr<::gloo::transport::Device> CreateDevice(
    const struct attr& attr) {
  nezha::preload::note_use();
  const char* rails = std::getenv("NEZHA_RAILS");
  if (rails != nullptr && *rails != '\0') return nezha::glooDevice();
  using Create = std::shared_ptr<::gloo::transport::Device>(const struct attr&);
  return nezha::preload::original<Create>(nezha::preload::kCreateDevice)(attr);
}

}  // namespace gloo::transport::tcp

// For programs that load this library by name: its symbol is just that. `rails`: as NEZHA_RAILS has
// them; null or empty: NEZHA_RAILS.
__attribute__((visibility("default"))) std::shared_ptr<::gloo::transport::Device> nezha_gloo_device(
    const char* rails) __asm__("nezha_gloo_device");

std::shared_ptr<::gloo::transport::Device> nezha_gloo_device(const char* rails) {
  nezha::preload::note_use();
  nezha::GlooDeviceOptions options;
  std::istringstream list(rails == nullptr ? "" : rails);
  for (std::string rail; std::getline(list, rail, ',');) options.rails.push_back(rail);
  return nezha::glooDevice(options);
}
