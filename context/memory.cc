// SPDX-License-Identifier: Apache-2.0
#include "context/memory.h"

#include <dlfcn.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/descriptor.h"

namespace nezha {
namespace {

// The files by which the drivers of NVIDIA's and AMD's devices (and others under the kernel's
// direct rendering manager) map memory.
constexpr absl::string_view kDeviceFiles[] = {"/dev/nvidia", "/dev/kfd", "/dev/dri/"};

bool is_device_file(absl::string_view file) {
  return std::any_of(std::begin(kDeviceFiles), std::end(kDeviceFiles),
                     [&](absl::string_view prefix) { return absl::StartsWith(file, prefix); });
}

// The part of CUDA's driver API that is needed here (cuda.h: CUpointer_attribute, CUmemorytype).
constexpr int kSuccess = 0;
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeIsManaged = 8;
constexpr uint32_t kMemoryTypeDevice = 2;
using GetPointerAttribute = int (*)(void* value, int attribute, unsigned long long pointer);

DriverSays ask_cuda(uintptr_t pointer) {
  // Does not load the driver: if the program has not loaded it, it has no device memory of CUDA's.
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return DriverSays::kNothing;
  const auto get = reinterpret_cast<GetPointerAttribute>(dlsym(driver, "cuPointerGetAttribute"));
  const auto ask = [&](int attribute, uint32_t& value) {
    return get != nullptr && get(&value, attribute, pointer) == kSuccess;
  };
  uint32_t type = 0;
  uint32_t is_managed = 0;
  DriverSays answer = DriverSays::kNothing;
  if (ask(kAttributeMemoryType, type)) {
    const bool managed = ask(kAttributeIsManaged, is_managed) && is_managed != 0;
    answer = type == kMemoryTypeDevice && !managed ? DriverSays::kDeviceMemory
                                                   : DriverSays::kUsableByHost;
  }
  dlclose(driver);
  return answer;
}

std::string read_own_map() { return read_file("/proc/self/maps").value_or(""); }

}  // namespace

std::vector<MemoryArea> parse_memory_map(absl::string_view text) {
  std::vector<MemoryArea> areas;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    // begin-end permissions offset device inode    file
    const std::vector<absl::string_view> fields =
        absl::StrSplit(line, absl::MaxSplits(' ', 5), absl::AllowEmpty());
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(fields[0], absl::MaxSplits('-', 1));
    uint64_t begin = 0;
    uint64_t end = 0;
    if (fields.size() < 5 || fields[1].size() < 2 || !absl::SimpleHexAtoi(ends.first, &begin) ||
        !absl::SimpleHexAtoi(ends.second, &end)) {
      continue;
    }
    const absl::string_view file =
        fields.size() < 6 ? absl::string_view() : absl::StripAsciiWhitespace(fields[5]);
    areas.push_back({begin, end, fields[1][0] == 'r', fields[1][1] == 'w', std::string(file)});
  }
  return areas;
}

absl::Status check_memory(const MemoryRange& range, const std::vector<MemoryArea>& areas,
                          DriverSays driver) {
  if (range.bytes == 0) return absl::OkStatus();
  const uintptr_t begin = range.begin;
  uintptr_t good_until = begin;
  const auto refuse = [&](absl::string_view what) {
    const std::string where =
        good_until == begin ? "" : absl::StrCat(" from byte ", good_until - begin, " on");
    return absl::InvalidArgumentError(
        absl::StrFormat("%s, %d bytes at %#x,%s %s", range.name, range.bytes, begin, where, what));
  };
  const auto refuse_device = [&](absl::string_view why) {
    return refuse(absl::StrCat("is a device's memory (", why,
                               "); copy it to memory of the host, and reduce that"));
  };
  if (driver == DriverSays::kDeviceMemory) return refuse_device("the CUDA driver says so");
  auto area =
      std::upper_bound(areas.begin(), areas.end(), begin,
                       [](uintptr_t address, const MemoryArea& a) { return address < a.end; });
  for (; good_until - begin < range.bytes; good_until = area->end, ++area) {
    if (area == areas.end() || area->begin > good_until) {
      return refuse(
          "is not mapped; was it freed, or is it a number of bytes where elements are "
          "counted?");
    }
    const std::string mapped =
        area->file.empty() ? "" : absl::StrCat(" (", area->file, " is mapped there)");
    if (is_device_file(area->file) && driver != DriverSays::kUsableByHost) {
      return refuse_device(absl::StrCat(area->file, " is mapped there"));
    }
    if (!area->readable) {
      return refuse(absl::StrCat("may not be read", mapped, "; give memory that may"));
    }
    if (range.is_written && !area->writable) {
      return refuse(absl::StrCat("may not be written to", mapped, "; give memory that may"));
    }
  }
  return absl::OkStatus();
}

absl::Status check_memory(const std::vector<MemoryRange>& ranges) {
  const std::vector<MemoryArea> areas = parse_memory_map(read_own_map());
  for (const MemoryRange& range : ranges) {
    if (absl::Status status = check_memory(range, areas, ask_cuda(range.begin)); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace nezha
