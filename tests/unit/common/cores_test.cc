// SPDX-License-Identifier: Apache-2.0
#include "common/cores.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/cpus.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

// A folder that holds a kernel's files: /proc, and cgroups in folders that /proc names.
class CoresTest : public ::testing::Test {
 protected:
  CoresTest() : root_(std::filesystem::temp_directory_path() / "nezha-cores.XXXXXX") {
    if (mkdtemp(root_.data()) == nullptr) std::abort();
    write("proc/sys/kernel/random/boot_id", "6f1c\n");
  }
  ~CoresTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(root_) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // Mounts version 2 with the root `mounted`, and puts the process into `cgroup`.
  void is_in(const std::string& cgroup, const std::string& mounted = "/") const {
    write("proc/self/cgroup", "0::" + cgroup + "\n");
    write("proc/self/mountinfo",
          "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n30 23 0:26 " + mounted + " " +
              folder("cg2") + " rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  std::string folder(const std::string& path) const { return root_ + "/" + path; }
  std::string proc() const { return folder("proc"); }

 private:
  std::string root_;
};

TEST_F(CoresTest, ThereMayBeNoLimit) {
  EXPECT_FALSE(cpu_quota(proc())) << "no files at all";
  is_in("/user/job");
  EXPECT_FALSE(cpu_quota(proc())) << "a cgroup without the controller";
  write("cg2/user/job/cpu.max", "max 100000\n");
  write("cg2/user/cpu.max", "max 100000\n");
  EXPECT_FALSE(cpu_quota(proc()));
}

TEST_F(CoresTest, TheTightestLimitFromTheProcessUpCounts) {
  is_in("/user/job/step");
  write("cg2/user/job/step/cpu.max", "800000 100000\n");
  write("cg2/user/cpu.max", "250000 100000\n");
  write("cg2/user/other/cpu.max", "100000 100000\n");
  const auto quota = cpu_quota(proc());
  ASSERT_TRUE(quota);
  EXPECT_EQ(quota->cores, 2.5);
  EXPECT_EQ(quota->cgroup, folder("cg2/user"));
}

TEST_F(CoresTest, AContainerSeesItsOwnPartOfTheTree) {
  write("cg2/cpu.max", "300000 100000\n");
  is_in("/docker/5e", "/docker/5e");
  EXPECT_EQ(cpu_quota(proc()).value_or(CpuQuota()).cores, 3);
  is_in("/");  // in a namespace of cgroups
  EXPECT_EQ(cpu_quota(proc()).value_or(CpuQuota()).cores, 3);
  is_in("/../../other");  // in a cgroup that the namespace lacks
  EXPECT_EQ(cpu_quota(proc()).value_or(CpuQuota()).cores, 3);
  is_in("/docker/77", "/docker/5e");
  EXPECT_EQ(cpu_quota(proc()).value_or(CpuQuota()).cores, 3);
}

TEST_F(CoresTest, Version1HasATreeOfItsOwnForCpuTime) {
  write("proc/self/cgroup", "5:cpuset:/a\n4:cpu,cpuacct:/docker/5e\n0::/\n");
  write("proc/self/mountinfo", "31 23 0:28 / " + folder("cpuset") +
                                   " rw - cgroup cgroup rw,cpuset\n32 23 0:29 /docker/5e " +
                                   folder("cpu") + " rw - cgroup cgroup rw,cpu,cpuacct\n");
  write("cpuset/cpu.cfs_quota_us", "100000\n");
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "50000\n");
  EXPECT_FALSE(cpu_quota(proc()));
  write("cpu/cpu.cfs_quota_us", "75000\n");
  EXPECT_EQ(cpu_quota(proc()).value_or(CpuQuota()).cores, 1.5);
}

TEST_F(CoresTest, MalformedLimitsAreIgnored) {
  is_in("/job");
  for (const char* text : {"", "\n", "100000", "x y", "-5 100000", "100000 0", "1 2 3"}) {
    write("cg2/job/cpu.max", text);
    EXPECT_FALSE(cpu_quota(proc())) << text;
  }
  write("proc/self/cgroup", "nonsense\n0:\n");
  write("proc/self/mountinfo", "1 2 3\n - \n1 2 3 4 5 6 - cgroup2\n");
  EXPECT_FALSE(cpu_quota(proc()));
}

TEST_F(CoresTest, AProcessMayUseTheCoresThatTheKernelAllows) {
  const auto allowed = static_cast<double>(allowed_cpus().size());
  const Cores all = usable_cores(proc());
  EXPECT_EQ(all.count, allowed);
  EXPECT_EQ(all.pool, usable_cores(proc()).pool);
  is_in("/job");
  write("cg2/job/cpu.max", "10000000000 100000\n");
  EXPECT_EQ(usable_cores(proc()).count, allowed) << "a limit beyond the cores is none";
  EXPECT_EQ(usable_cores(proc()).pool, all.pool);
  write("proc/sys/kernel/random/boot_id", "77aa\n");
  EXPECT_NE(usable_cores(proc()).pool, all.pool) << "another machine";
}

TEST_F(CoresTest, CgroupsWithLimitsOfTheirOwnShareNoCores) {
  write("cg2/a/cpu.max", "50000 100000\n");
  write("cg2/b/cpu.max", "50000 100000\n");
  is_in("/a");
  const Cores one = usable_cores(proc());
  EXPECT_EQ(one.count, 0.5);
  is_in("/b");
  EXPECT_NE(usable_cores(proc()).pool, one.pool);
  is_in("/a/step");  // below the limit
  EXPECT_EQ(usable_cores(proc()).pool, one.pool);
}

TEST(RailThreads, AreAsManyAsTheProcessHasCoresOfItsOwn) {
  EXPECT_EQ(rail_threads({16, 4}), 4);
  EXPECT_EQ(rail_threads({16, 1}), 16);
  EXPECT_EQ(rail_threads({7.9, 2}), 3);
  EXPECT_EQ(rail_threads({4, 2}), 2);
  EXPECT_EQ(rail_threads({3.9, 2}), 0) << "one core is the caller's";
  EXPECT_EQ(rail_threads({2, 4}), 0);
  EXPECT_EQ(rail_threads({0.5, 1}), 0);
}

}  // namespace
}  // namespace nezha
