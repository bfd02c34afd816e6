// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/device.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "interop/gloo/context.h"
#include "interop/gloo/pair.h"
#include "nezha/gloo.h"

namespace nezha {

std::shared_ptr<::gloo::transport::Device> glooDevice(const GlooDeviceOptions& options) {
  return std::make_shared<interop::GlooDevice>(options.rails);
}

std::shared_ptr<Context> glooContext(::gloo::Context& context) {
  for (int rank = 0; rank < context.size; ++rank) {
    if (rank == context.rank) continue;
    const auto* pair = dynamic_cast<const interop::Pair*>(context.getPair(rank).get());
    return pair == nullptr ? nullptr : pair->member()->context();
  }
  return nullptr;
}

namespace interop {

std::string GlooDevice::str() const {
  return absl::StrCat("nezha, rails=", rails_.empty() ? "NEZHA_RAILS" : absl::StrJoin(rails_, ","));
}

// Nothing is opened before there is a context, because a program may not expect an error when it
// makes its device. Horovod does not.
std::shared_ptr<::gloo::transport::Context> GlooDevice::createContext(int rank, int size) {
  return std::make_shared<GlooContext>(shared_from_this(), rank, size, rails_);
}

}  // namespace interop
}  // namespace nezha
