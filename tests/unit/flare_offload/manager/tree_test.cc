// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/manager/tree.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "flare_offload/manager/admission.h"

namespace nezha::flare {
namespace {

// Two spines connect two leaves with two hosts each.
constexpr absl::string_view kTwoLevels = R"(
switch leaf0 10.0.1.0:7100 10.0.1.0:7101
switch leaf1 10.0.1.1:7100 10.0.1.1:7101
switch spine0 10.0.1.2:7100 10.0.1.2:7101
switch spine1 10.0.1.3:7100 10.0.1.3:7101
link leaf0 spine0
link leaf0 spine1
link leaf1 spine0   # comments are allowed
link leaf1 spine1
host 10.0.0.0 leaf0
host 10.0.0.1 leaf0
host 10.0.0.2 leaf1
host 10.0.0.3 leaf1
)";

Fabric two_levels() { return *parse_fabric(kTwoLevels); }

std::vector<Address> hosts(const std::vector<int>& numbers) {
  std::vector<Address> all;
  for (const int number : numbers) {
    all.push_back(*Address::parse(absl::StrCat("10.0.0.", number, ":", 5000 + number)));
  }
  return all;
}

absl::StatusOr<Tree> build(const std::vector<int>& numbers, const std::set<int>& without = {}) {
  return build_tree(two_levels(), hosts(numbers),
                    [&](int number) { return !without.contains(number); });
}

// The tree as text, such as "spine0(leaf0(0 1) leaf1(2 3))".
std::string str(const Tree& tree, int node = 0) {
  const TreeNode& it = tree[static_cast<size_t>(node)];
  std::string text = absl::StrCat(two_levels().switches[static_cast<size_t>(it.number)].name, "(");
  for (const TreeNode::Child& child : it.children) {
    absl::StrAppend(&text, text.back() == '(' ? "" : " ",
                    child.node < 0 ? absl::StrCat(child.rank) : str(tree, child.node));
  }
  return text + ")";
}

TEST(TreeTest, TakesOneSwitchWhereOneIsEnough) {
  EXPECT_EQ(str(*build({0, 1})), "leaf0(0 1)");
  EXPECT_EQ(str(*build({3, 2})), "leaf1(0 1)");
}

TEST(TreeTest, JoinsLeavesWithoutMoreSwitchesThanItTakes) {
  // A leaf can be the root, because a spine between the leaves would only forward.
  const Tree tree = *build({0, 1, 2, 3});
  EXPECT_EQ(str(tree), "leaf0(0 1 leaf1(2 3))");
  EXPECT_EQ(tree[1].parent, 0);
  EXPECT_EQ(tree[1].place, 2);
  EXPECT_EQ(tree[0].ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(tree[1].ranks, (std::vector<int>{2, 3}));
}

TEST(TreeTest, OrdersChildrenByTheirLowestRank) {
  EXPECT_EQ(str(*build({2, 0, 3, 1})), "leaf0(leaf1(0 2) 1 3)");
}

TEST(TreeTest, GoesAroundSwitchesThatCannotBeUsed) {
  EXPECT_TRUE(build({0, 2}, {2}).ok());
  EXPECT_TRUE(build({0, 2}, {3}).ok());
  const auto none = build({0, 2}, {2, 3});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(none.status().message(),
            "no switches that can be used join the hosts 10.0.0.0, 10.0.0.2");
  EXPECT_FALSE(build({0, 1}, {0}).ok());
}

TEST(TreeTest, NamesAHostThatTheFabricLacks) {
  const auto tree = build({0, 9});
  EXPECT_EQ(tree.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tree.status().message(),
            "the fabric has no host 10.0.0.9; add it to the manager's fabric file, or take another "
            "interface");
}

TEST(TreeTest, NoSwitchHasMoreChildrenThanItCan) {
  std::string text = "switch only 10.0.1.0:1 10.0.1.0:2\n";
  std::vector<int> numbers;
  for (int i = 0; i < 65; ++i) {
    absl::StrAppend(&text, "host 10.0.0.", i, " only\n");
    numbers.push_back(i);
  }
  const Fabric fabric = *parse_fabric(text);
  const auto any = [](int) { return true; };
  EXPECT_EQ(build_tree(fabric, hosts(numbers), any).status().message(),
            "a switch would have more than 64 children");
  numbers.pop_back();
  EXPECT_TRUE(build_tree(fabric, hosts(numbers), any).ok());
}

TEST(FabricTest, NamesTheLineAndWhatIsWrong) {
  const auto error = [](absl::string_view text) {
    return std::string(parse_fabric(text).status().message());
  };
  const std::string one = "switch a 10.0.0.1:1 10.0.0.1:2\n";
  EXPECT_EQ(error(""), "there is no line 'switch'");
  EXPECT_EQ(error("swich a"), "line 1: 'swich' is none of: switch, host, link, multicast");
  EXPECT_EQ(error("switch a 10.0.0.1:1"), "line 1: 'switch' takes 3 values, not 2");
  EXPECT_EQ(error(one + one), "line 2: 'a' is there already");
  EXPECT_EQ(error(one + "host x a"), "line 2: 'x' is no address of a host");
  EXPECT_EQ(error(one + "host 10.0.0.2 b"), "line 2: 'b' is no switch of a line above");
  EXPECT_EQ(error(one + "link a a"), "line 2: 'a' is linked to itself");
  EXPECT_EQ(error(one + "host 10.0.0.2 a\nhost 10.0.0.2 a"),
            "line 3: '10.0.0.2' is linked to it already");
  const std::string groups = "multicast 239.255.255.0:7200 256\n";
  EXPECT_EQ(error(one + groups), "");
  EXPECT_EQ(error(one + groups + groups), "line 3: 'multicast' is there already");
  EXPECT_EQ(error(one + "multicast 239.255.255.0 256"),
            "line 2: '239.255.255.0' is not an address and port");
  for (const char* count : {"0", "x", "65537"}) {
    EXPECT_EQ(error(one + "multicast 239.0.0.0:1 " + count),
              absl::StrCat("line 2: '", count, "' is no number from 1 to 65536"));
  }
  for (const char* range :
       {"239.255.255.1:1 256", "223.255.255.255:1 2", "[ff18::ffff:ffff]:1 2"}) {
    EXPECT_NE(error(one + "multicast " + range)
                  .find("does not begin a range of that many multicast addresses"),
              std::string::npos)
        << range;
  }
  EXPECT_EQ(error("multicast [ff18::1]:1 2\n" + one),
            "'a' is of another address family than the multicast addresses");
}

TEST(FabricTest, HasMulticastAddresses) {
  EXPECT_FALSE(two_levels().groups);
  const Fabric fabric = *parse_fabric(absl::StrCat(kTwoLevels, "multicast 239.192.0.0:7200 3\n"));
  EXPECT_EQ(fabric.groups->first.str(), "239.192.0.0:7200");
  EXPECT_EQ(fabric.groups->count, 3);
}

TEST(FabricTest, KnowsHostsByAnyPort) {
  const Fabric fabric = *parse_fabric("switch a [fd00::1]:1 [fd00::1]:2\nhost fd00:0::2 a\n");
  EXPECT_NE(fabric.host(*Address::parse("[fd00::2]:99")), nullptr);
  EXPECT_EQ(fabric.host(*Address::parse("[fd00::3]:99")), nullptr);
}

TEST(AdmissionTest, CountsSessionsAndSaysWhyThereIsNoRoom) {
  Admission admission(two_levels(), 4);
  EXPECT_EQ(*admission.why_not(0, 1), "leaf0 has not answered yet");
  admission.came_up(0, 1 << 20, {100});
  EXPECT_FALSE(admission.why_not(0, 3));
  EXPECT_EQ(*admission.why_not(0, 4),
            "leaf0 is full: 1 of its 4 sessions are taken, and 4 are asked for");
  admission.take(0, 7, 3);
  EXPECT_TRUE(admission.has(0, 9));
  EXPECT_FALSE(admission.is_free(100));
  EXPECT_TRUE(admission.is_free(10));
  EXPECT_TRUE(admission.why_not(0, 1));
  admission.release(0, 100);
  EXPECT_FALSE(admission.why_not(0, 1));
  admission.went_down(0, "is on fire");
  EXPECT_EQ(*admission.why_not(0, 1), "leaf0 is on fire");
}

TEST(AdmissionTest, TakesTheLargestWindowThatFitsAPartOfEverySwitch) {
  const Tree tree = *build({0, 1, 2, 3});
  Admission admission(two_levels(), 2);
  admission.came_up(0, 4 << 20, {});
  admission.came_up(1, 4 << 20, {});
  EXPECT_EQ(admission.window(tree, 64, 1440, false), 64u);
  EXPECT_EQ(admission.window(tree, 100, 1440, false), 64u);
  admission.came_up(1, 400 << 10, {});  // 200 KiB: less than 2 x 64 blocks and what they take more
  const uint32_t window = admission.window(tree, 1024, 1440, false);
  EXPECT_TRUE(window == 32 || window == 64) << window;
  // The root has three children, so a reproducible sum takes two buffers where others take one.
  for (const int leaf : {0, 1}) admission.came_up(leaf, 300 << 10, {});
  EXPECT_EQ(admission.window(tree, 1024, 1440, false), 32u);
  EXPECT_EQ(admission.window(tree, 1024, 1440, true), 16u);
  admission.came_up(1, 2048, {});
  EXPECT_EQ(admission.window(tree, 64, 1440, false), 0u);
}

}  // namespace
}  // namespace nezha::flare
