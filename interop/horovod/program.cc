// SPDX-License-Identifier: Apache-2.0
// Horovod, which this file and those of interop/takeover are linked into.
#include "interop/takeover/program.h"

#include <gloo/math.h>
#include <gloo/types.h>

#include <array>
#include <cstdlib>
#include <string>

#include "interop/takeover/rails.h"
#include "nezha/gloo.h"

namespace nezha::takeover {
namespace {

using Function = void(void*, const void*, const void*, size_t);

struct Known {
  Function* function;
  Reduction reduction;
};

// Horovod's calls of Gloo's templates and these are one function each, as the linker keeps one copy
// of a template's instance in a library.
template <typename T>
constexpr std::array<Known, 4> known_of(DataType type) {
  return {{{&::gloo::sum<T>, {type, ReduceOperation::kSum}},
           {&::gloo::product<T>, {type, ReduceOperation::kProduct}},
           {&::gloo::min<T>, {type, ReduceOperation::kMin}},
           {&::gloo::max<T>, {type, ReduceOperation::kMax}}}};
}

const std::array<std::array<Known, 4>, 11> kKnown = {
    known_of<float>(DataType::kFloat32),           known_of<double>(DataType::kFloat64),
    known_of<::gloo::float16>(DataType::kFloat16), known_of<int8_t>(DataType::kInt8),
    known_of<uint8_t>(DataType::kUint8),           known_of<int16_t>(DataType::kInt16),
    known_of<uint16_t>(DataType::kUint16),         known_of<int32_t>(DataType::kInt32),
    known_of<uint32_t>(DataType::kUint32),         known_of<int64_t>(DataType::kInt64),
    known_of<uint64_t>(DataType::kUint64),
};

// Returns the interfaces that Horovod is told to use. It forgets them for its process sets, whose
// device it makes without an interface.
std::vector<std::string> interfaces_of(const ::gloo::transport::tcp::attr& attributes) {
  if (!attributes.iface.empty()) return split(attributes.iface);
  const char* named = std::getenv("HOROVOD_GLOO_IFACE");
  return split(named == nullptr ? "" : named);
}

}  // namespace

// NEZHA_RAILS goes before Horovod's own choice. Where neither names a network, Gloo looks for one
// by the name of the host.
std::shared_ptr<::gloo::transport::Device> device_for(
    const ::gloo::transport::tcp::attr& attributes) {
  if (environment_names_rails()) return glooDevice();
  GlooDeviceOptions options;
  for (const std::string& name : interfaces_of(attributes)) options.rails.push_back("tcp:" + name);
  return options.rails.empty() ? nullptr : glooDevice(options);
}

std::optional<Reduction> recognise(const ReduceFunction& function) {
  const auto* const target = function.target<Function*>();
  if (target == nullptr) return std::nullopt;
  for (const auto& of_type : kKnown) {
    for (const Known& known : of_type) {
      if (known.function == *target) return known.reduction;
    }
  }
  return std::nullopt;
}

}  // namespace nezha::takeover
