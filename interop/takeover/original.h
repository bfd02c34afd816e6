// SPDX-License-Identifier: Apache-2.0
// Access to the functions of Gloo's that the functions of this folder replace.
#pragma once

namespace nezha::takeover {

// The name of gloo::transport::tcp::CreateDevice.
inline constexpr const char* kCreateDevice = "_ZN4gloo9transport3tcp12CreateDeviceERKNS1_4attrE";

// Returns the function of that mangled name. Throws gloo::InvalidOperationException if libgloo has
// none.
void* find_original(const char* name);

template <typename Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(find_original(name));
}

}  // namespace nezha::takeover
