// SPDX-License-Identifier: Apache-2.0
#include "common/command_line/command_line.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace nezha {
namespace {

using Strings = std::vector<std::string>;

// A program with the options --size N (-s), --site NAME, --quiet and --help (-h).
class Program {
 public:
  // Returns the words that are not options. `given` then has the options in their order.
  Strings read(const Strings& arguments) {
    Strings all = {"program"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& each : all) argv.push_back(each.data());
    argv.push_back(nullptr);
    given.clear();
    return read_options(table_, static_cast<int>(all.size()), argv.data(), [&](const auto& bad) {
      refused = bad;
      return "described";
    });
  }

  std::string error(const Strings& arguments) {
    try {
      read(arguments);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "none";
  }

  // What the description of the error is made from: OPTION, needs or not, LETTER, WORD.
  std::string refusal(const Strings& arguments) {
    EXPECT_EQ(error(arguments), "described");
    return (refused.option == nullptr ? "-" : refused.option->name) +
           (refused.needs_value ? " needs " : " ") + (refused.letter == 0 ? '-' : refused.letter) +
           " " + refused.word;
  }

  Strings given;
  BadOption refused;

 private:
  std::function<void(const std::string&)> note(const std::string& name) {
    return [this, name](const std::string& value) {
      if (value == "bad") throw BadValue("not good");
      if (value == "worse") throw UsageError("a whole sentence");
      given.push_back(name + "=" + value);
    };
  }

  const OptionTable table_ = {{0, "", "", "A heading", {}},
                              {'s', "size", "N", "", note("size")},
                              {0, "site", "NAME", "", note("site")},
                              {0, "quiet", "", "", note("quiet")},
                              {'h', "help", "", "", note("help")}};
};

TEST(ReadOptions, OptionsHaveValuesBesideOrBehindThem) {
  Program program;
  EXPECT_EQ(program.read({"--size", "1", "--site=a=b", "-s2", "-s", "3", "--site="}), Strings());
  EXPECT_EQ(program.given, Strings({"size=1", "site=a=b", "size=2", "size=3", "site="}));
}

TEST(ReadOptions, WordsMayBeBetweenOptions) {
  Program program;
  EXPECT_EQ(program.read({"one", "--quiet", "two", "-h", "--", "--size"}),
            Strings({"one", "two", "--size"}));
  EXPECT_EQ(program.given, Strings({"quiet=", "help="}));
}

TEST(ReadOptions, NamesMayBeAbbreviated) {
  Program program;
  program.read({"--siz", "1", "--sit=2", "--q"});
  EXPECT_EQ(program.given, Strings({"size=1", "site=2", "quiet="}));
  EXPECT_EQ(program.refusal({"--si", "1"}), "- - --si");
}

TEST(ReadOptions, ABadOptionIsDescribed) {
  Program program;
  EXPECT_EQ(program.refusal({"--none=1"}), "- - --none=1");
  EXPECT_EQ(program.refusal({"-q"}), "- q -q");
  EXPECT_EQ(program.refusal({"--quiet", "--siz"}), "size needs - --siz");
  EXPECT_EQ(program.refusal({"-s"}), "size needs - -s");
  EXPECT_EQ(program.refusal({"--quiet=1"}), "quiet - --quiet=1");
  EXPECT_EQ(program.refusal({"--help=1"}), "help - --help=1");
}

TEST(ReadOptions, ABadValueIsNamed) {
  Program program;
  EXPECT_EQ(program.error({"--quiet", "--si=1", "--site", "bad"}), "described");
  EXPECT_EQ(program.error({"--quiet", "--sit", "bad", "--none"}), "--site 'bad': not good");
  EXPECT_EQ(program.given, Strings({"quiet="}));
  EXPECT_EQ(program.error({"-sbad"}), "--size 'bad': not good");
  EXPECT_EQ(program.error({"-sworse"}), "a whole sentence");
}

TEST(RefuseUsage, NamesTheProgramAndItsHelp) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(refuse_usage("a-program", UsageError("--size is missing")), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "a-program: --size is missing\nTry a-program --help.\n");
}

}  // namespace
}  // namespace nezha
