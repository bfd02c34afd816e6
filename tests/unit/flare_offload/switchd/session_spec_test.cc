// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/switchd/session_spec.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"

namespace nezha::flare {
namespace {

const std::string kKey(64, '1');
const std::string kParentKey(64, '2');

std::string text() {
  return absl::StrCat(
      "session 7  # of the manager's\n"
      "generation 65535\n"
      "key ",
      kKey,
      "\n\n"
      "window 32\r\n"
      "\tpayload 1440\n"
      "child 10.0.0.1:7200 0\n"
      "child [fd00::2]:7100 1-4\n"
      "parent 10.0.0.9:7101 2 ",
      kParentKey, "\n");
}

std::string error_of(const std::string& before, const std::string& after) {
  const std::string changed = absl::StrReplaceAll(text(), {{before, after}});
  EXPECT_NE(changed, text()) << before;
  return std::string(parse_session(changed).status().message());
}

TEST(SessionSpec, HasWhatTheTextSays) {
  const auto spec = parse_session(text());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->session, 7);
  EXPECT_EQ(spec->generation, 65535);
  EXPECT_EQ(spec->key, *parse_key(kKey));
  EXPECT_EQ(spec->table.window, 32);
  EXPECT_EQ(spec->table.payload, 1440);
  EXPECT_FALSE(spec->table.reproducible);
  EXPECT_EQ(spec->table.children, (std::vector<RankRange>{{0, 1}, {1, 4}}));
  ASSERT_EQ(spec->children.size(), 2);
  EXPECT_EQ(spec->children[0].str(), "10.0.0.1:7200");
  EXPECT_EQ(spec->children[1].str(), "[fd00::2]:7100");
  ASSERT_TRUE(spec->parent.has_value());
  EXPECT_FALSE(spec->table.is_root);
  EXPECT_EQ(spec->parent->address.str(), "10.0.0.9:7101");
  EXPECT_EQ(spec->parent->child, 2);
  EXPECT_EQ(spec->parent->key, *parse_key(kParentKey));
}

TEST(SessionSpec, WithoutAParentTheSwitchIsTheRoot) {
  const std::string root = text().substr(0, text().find("parent"));
  const auto spec = parse_session(root + "reproducible");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->table.is_root);
  EXPECT_TRUE(spec->table.reproducible);
  EXPECT_FALSE(spec->parent.has_value());
}

TEST(SessionSpec, MayHaveAGroup) {
  EXPECT_FALSE(parse_session(text())->group);
  const auto spec = parse_session(text() + "group [ff18::1]:7200");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->group->str(), "[ff18::1]:7200");
  EXPECT_EQ(error_of("window 32", "group 10.0.0.1:7200"), "line 5: word 2 is no multicast address");
  EXPECT_EQ(error_of("window 32", "group 239.0.0.1"), "line 5: word 2 is no address and port");
}

TEST(SessionSpec, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> numbers[] = {{"session 7 ", "session 4294967296 "},
                                                         {"session 7 ", "session -1 "},
                                                         {"65535", "65536"},
                                                         {"65535", "x"}};
  for (const auto& [before, after] : numbers) {
    EXPECT_NE(error_of(before, after).find("is no number from 0 to"), std::string::npos);
  }
  EXPECT_EQ(error_of("65535", "65536"), "line 2: word 2 is no number from 0 to 65535");
  EXPECT_EQ(error_of("window 32", "window 32 33"), "line 5: 'window' takes 1 values, not 2");
  EXPECT_EQ(error_of("window 32", "windows 32"),
            "line 5: unknown word 1; nezha-switch --help says what lines have");
  EXPECT_EQ(error_of("window 32", "session 7"), "line 5: 'session' comes a second time");
  EXPECT_EQ(error_of(kKey, "abc"), "line 3: word 2 is no key of 64 hex digits");
  EXPECT_EQ(error_of("10.0.0.1:7200", "h0"), "line 7: word 2 is no address and port");
  for (const char* ranks : {"x", "4-1", "1-", "-1", "0-65535", "1-2-3"}) {
    EXPECT_EQ(error_of("1-4", ranks), "line 8: word 3 is no rank, nor ranks as 1-4");
  }
  EXPECT_EQ(error_of(" 2 " + kParentKey, " 64 " + kParentKey),
            "line 9: a switch has at most 64 children: 0 to 63");
  EXPECT_EQ(error_of(kParentKey, "2"), "line 9: word 4 is no key of 64 hex digits");
}

TEST(SessionSpec, ErrorsDoNotRepeatAKeyInAWrongPlace) {
  for (const char* place : {"session 7", "65535", "key ", "10.0.0.1:7200", "1-4", "2 "}) {
    for (const std::string& key : {kKey, absl::StrCat("key", kKey), absl::StrCat(kKey, "\n")}) {
      const std::string error = error_of(place, key);
      EXPECT_FALSE(error.empty()) << place;
      EXPECT_EQ(error.find("111"), std::string::npos) << error;
    }
  }
}

TEST(SessionSpec, ErrorsNameWhatIsMissing) {
  for (const char* line : {"session 7", "generation 65535", "window 32", "payload 1440"}) {
    const std::string name(line, std::string(line).find(' '));
    EXPECT_EQ(error_of(line, ""), absl::StrCat("there is no line '", name, "'"));
  }
  EXPECT_EQ(error_of("child", "# "), "there is no line 'child'");
  EXPECT_EQ(parse_session("").status().message(), "there is no line 'session'");
}

TEST(SessionSpec, TheTablesOptionsAreChecked) {
  EXPECT_EQ(error_of("window 32", "window 0"),
            "the window has 0 blocks; it must be a power of two up to 65536");
  EXPECT_NE(error_of("payload 1440", "payload 1441").find("the payload has 1441 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace nezha::flare
