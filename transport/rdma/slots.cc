// SPDX-License-Identifier: Apache-2.0
#include "transport/rdma/slots.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"

namespace nezha::rdma {
namespace {

constexpr std::align_val_t kPage{4096};

}  // namespace

absl::StatusOr<std::unique_ptr<Slots>> Slots::create(std::shared_ptr<Adapter> adapter) {
  std::unique_ptr<Slots> slots(new Slots(std::move(adapter)));
  if (absl::Status status = slots->open(); !status.ok()) return status;
  return slots;
}

absl::Status Slots::open() {
  const std::string& device = adapter_->choice().device;
  memory_ = static_cast<std::byte*>(::operator new(kBytes, kPage, std::nothrow));
  if (memory_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat(device, ": there is no memory left for a link"));
  }
  region_ = adapter_->verbs().reg_mr(adapter_->domain(), memory_, kBytes, adapter_->sink_access());
  if (region_ != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      device, ": registering ", kBytes >> 10, " KiB of memory for a link: ", strerror(errno),
      "; raise the limit of locked memory (ulimit -l unlimited, or LimitMEMLOCK=infinity in the "
      "service)"));
}

Slots::~Slots() {
  if (region_ != nullptr) adapter_->verbs().dereg_mr(region_);
  ::operator delete(memory_, kPage);
}

}  // namespace nezha::rdma
