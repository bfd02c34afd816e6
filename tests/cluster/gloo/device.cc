// SPDX-License-Identifier: Apache-2.0
#include "cluster/gloo/device.h"

#include <dlfcn.h>
#include <gloo/transport/tcp/device.h>

#include <stdexcept>

namespace nezha::gloo_cases {
namespace {

using Maker = std::shared_ptr<gloo::transport::Device> (*)(const char* rails);

// The library stays loaded, because its threads may outlive every device.
Maker load_maker(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW);
  void* maker = library == nullptr ? nullptr : dlsym(library, "nezha_gloo_device");
  if (maker == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Maker>(maker);
}

}  // namespace

std::shared_ptr<gloo::transport::Device> make_device(const Options& options) {
  if (!options.device_library.empty()) {
    static const Maker maker = load_maker(options.device_library);
    return maker(options.rails.c_str());
  }
  gloo::transport::tcp::attr attributes;
  attributes.iface = options.interface;
  return gloo::transport::tcp::CreateDevice(attributes);
}

}  // namespace nezha::gloo_cases
