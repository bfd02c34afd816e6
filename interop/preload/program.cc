// SPDX-License-Identifier: Apache-2.0
// A program that is linked to libgloo.so, with libnezha_gloo.so preloaded.
#include "interop/takeover/program.h"

#include "interop/preload/notice.h"
#include "interop/takeover/rails.h"
#include "nezha/gloo.h"

namespace nezha::takeover {

// The device is taken over if NEZHA_RAILS names rails.
std::shared_ptr<::gloo::transport::Device> device_for(
    const ::gloo::transport::tcp::attr& /*attributes*/) {
  preload::note_use();
  return environment_names_rails() ? glooDevice() : nullptr;
}

// The program has its own copy of gloo::sum and the others, at addresses that this library cannot
// know.
std::optional<Reduction> recognise(const ReduceFunction& /*function*/) { return std::nullopt; }

}  // namespace nezha::takeover

// Returns the device for programs that load this library and look up this symbol, whose name is not
// mangled. `rails` is a list as in NEZHA_RAILS; if it is null or empty, NEZHA_RAILS itself is used.
std::shared_ptr<::gloo::transport::Device> nezha_gloo_device(const char* rails) __asm__(
    "nezha_gloo_device");

std::shared_ptr<::gloo::transport::Device> nezha_gloo_device(const char* rails) {
  nezha::preload::note_use();
  nezha::GlooDeviceOptions options;
  if (rails != nullptr) options.rails = nezha::takeover::split(rails);
  return nezha::glooDevice(options);
}
