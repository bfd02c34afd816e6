// SPDX-License-Identifier: Apache-2.0
#include "context/memory.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

// Pages of this process.
class Pages {
 public:
  explicit Pages(size_t count)
      : bytes_(count * size()),
        begin_(static_cast<std::byte*>(
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Pages() { munmap(begin_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  static size_t size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  std::byte* page(size_t index) const { return begin_ + index * size(); }
  void protect(size_t index, int protection) const {
    ASSERT_EQ(mprotect(page(index), size(), protection), 0);
  }

 private:
  size_t bytes_;
  std::byte* begin_;
};

uintptr_t address(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }
MemoryRange input(uintptr_t begin, size_t bytes) { return {"input 3", begin, bytes, false}; }
MemoryRange input(const void* begin, size_t bytes) { return input(address(begin), bytes); }
MemoryRange output(const void* begin, size_t bytes) {
  return {"output 1", address(begin), bytes, true};
}

void expect_refused(const absl::Status& status, const std::vector<std::string>& texts) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  for (const std::string& text : texts) {
    EXPECT_NE(status.message().find(text), absl::string_view::npos)
        << "no '" << text << "' in: " << status;
  }
}

TEST(Memory, FineMemoryIsFine) {
  const Pages pages(4);
  pages.protect(1, PROT_READ);  // so that the map has several adjacent areas
  std::vector<float> heap(1'000'000);
  float stack[1000];
  static const float kConstant[] = {1, 2};
  EXPECT_EQ(
      check_memory({input(pages.page(0), 4 * Pages::size()),
                    output(pages.page(2) + 1, 2 * Pages::size() - 1),
                    output(heap.data(), heap.size() * sizeof(float)), output(stack, sizeof stack),
                    input(kConstant, sizeof kConstant), input(nullptr, 0)}),
      absl::OkStatus());
}

TEST(Memory, WhatIsNotMappedIsRefused) {
  const Pages pages(3);
  munmap(pages.page(1), Pages::size());
  expect_refused(check_memory({input(pages.page(1), 1)}), {"input 3", "1 bytes", "is not mapped"});
  expect_refused(check_memory({input(pages.page(0) + 10, 3 * Pages::size() - 10)}),
                 {"from byte " + std::to_string(Pages::size() - 10) + " on", "is not mapped"});
  EXPECT_EQ(check_memory({input(pages.page(0), Pages::size())}), absl::OkStatus());
  EXPECT_EQ(check_memory({input(pages.page(2), Pages::size())}), absl::OkStatus());
  // The last page of the address space is not mapped.
  expect_refused(check_memory({input(~uintptr_t{0} - 10, 5)}), {"is not mapped"});
  expect_refused(check_memory({input(uintptr_t{16}, 5)}), {"at 0x10,"});
}

TEST(Memory, WhatMayNotBeUsedIsRefused) {
  const Pages pages(3);
  pages.protect(1, PROT_NONE);
  pages.protect(2, PROT_READ);
  expect_refused(check_memory({input(pages.page(0), 2 * Pages::size())}),
                 {"from byte " + std::to_string(Pages::size()) + " on may not be read"});
  expect_refused(check_memory({output(pages.page(2), 1)}), {"output 1", "may not be written to"});
  EXPECT_EQ(check_memory({input(pages.page(2), Pages::size())}), absl::OkStatus());
  static const int kConstant = 1;
  expect_refused(check_memory({input(&kConstant, 4), output(&kConstant, 4)}),
                 {"output 1", "may not be written to (/", "is mapped there"});
}

// Lines in the format of proc_pid_maps(5), with the files through which drivers map memory.
TEST(Memory, MappingsOfADriverAreDeviceMemory) {
  const std::vector<MemoryArea> areas = parse_memory_map(
      "1000-2000 rw-p 00000000 00:00 0 \n"
      "2000-3000 rw-s 00000000 00:06 400                        /dev/nvidia-uvm\n"
      "3000-4000 ---p 00000000 00:06 401                        /dev/nvidia0\n"
      "4000-5000 rw-s 100000000 00:06 402                       /dev/dri/renderD128\n"
      "5000-6000 rw-s 00000000 00:06 403                        /dev/kfd\n"
      "6000-7000 rw-s 00000000 00:01 404                        /dev/zero (deleted)\n"
      "nonsense\n"
      "ffff8000-ffff9000 r--p 00000000 08:01 9                  /a file\n");
  ASSERT_EQ(areas.size(), 7u);
  EXPECT_EQ(areas[5].file, "/dev/zero (deleted)");
  EXPECT_EQ(areas[6].begin, 0xffff8000u);
  EXPECT_FALSE(areas[6].writable);
  const auto check = [&](uintptr_t begin, size_t bytes, DriverSays driver) {
    return check_memory(input(begin, bytes), areas, driver);
  };
  EXPECT_EQ(check(0x1000, 0x1000, DriverSays::kNothing), absl::OkStatus());
  EXPECT_EQ(check(0x6000, 0x1000, DriverSays::kNothing), absl::OkStatus()) << "pinned memory";
  for (const char* file : {"/dev/nvidia-uvm", "/dev/nvidia0", "/dev/dri/renderD128", "/dev/kfd"}) {
    for (const MemoryArea& area : areas) {
      if (area.file != file) continue;
      expect_refused(check(area.begin, 16, DriverSays::kNothing),
                     {"a device's memory", file, "copy it to memory of the host"});
    }
  }
  expect_refused(check(0x1ff0, 0x20, DriverSays::kNothing), {"from byte 16 on is a device's"});
  EXPECT_EQ(check(0x2000, 0x1000, DriverSays::kUsableByHost), absl::OkStatus()) << "managed memory";
  expect_refused(check(0x1000, 16, DriverSays::kDeviceMemory), {"the CUDA driver says so"});
}

// stand_in_cuda.cc says what it replaces and what this cannot test.
TEST(Memory, TheDriverIsAskedIfTheProgramHasLoadedIt) {
  std::vector<std::byte> memory(100);
  EXPECT_EQ(check_memory({output(memory.data(), 100)}), absl::OkStatus());
  void* driver = dlopen(STAND_IN_CUDA, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  const auto set =
      reinterpret_cast<void (*)(const std::byte*, bool)>(dlsym(driver, "stand_in_set"));
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(check_memory({output(memory.data(), 100)}), absl::OkStatus()) << "unknown to it";
  set(memory.data(), false);
  expect_refused(check_memory({output(memory.data(), 100)}), {"output 1", "a device's memory"});
  set(memory.data(), true);
  EXPECT_EQ(check_memory({output(memory.data(), 100)}), absl::OkStatus()) << "managed";
  dlclose(driver);
  EXPECT_EQ(check_memory({output(memory.data(), 100)}), absl::OkStatus()) << "unloaded";
}

}  // namespace
}  // namespace nezha
