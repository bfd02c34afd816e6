// SPDX-License-Identifier: Apache-2.0
#include "context/context_impl.h"

#include <gloo/rendezvous/hash_store.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nezha/context.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST(Context, ARailThatIsWrongIsNamedOnce) {
  ContextOptions options;
  options.rank = 0;
  options.size = 1;
  for (const std::vector<std::string>& rails :
       std::vector<std::vector<std::string>>{{"lo"},
                                             {"tcp:lo?speed=1"},
                                             {"rdma:lo"},
                                             {"tcp:no-such-if"},
                                             {"tcp:lo?rail=a", "tcp:lo?rail=a&family=4"},
                                             {"tcp:lo", "tcp:lo"}}) {
    options.rails = rails;
    try {
      Context::create(std::make_shared<::gloo::rendezvous::HashStore>(), options);
      ADD_FAILURE() << "no exception: " << rails.back();
    } catch (const InvalidArgument& error) {
      const std::string what = error.what();
      EXPECT_EQ(count(what, absl::StrCat("rail '", rails.back(), "'")), 1u) << what;
      EXPECT_EQ(count(what, absl::StrCat("'", rails.back(), "'")), 1u) << what;
    }
  }
}

}  // namespace
}  // namespace nezha
