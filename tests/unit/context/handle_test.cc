// SPDX-License-Identifier: Apache-2.0
// Handles of operations of one rank, which sends to itself.
#include "nezha/handle.h"

#include <gloo/rendezvous/hash_store.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nezha/context.h"
#include "nezha/errors.h"
#include "nezha/send_recv.h"

namespace nezha {
namespace {

class HandleTest : public ::testing::Test {
 protected:
  HandleTest() {
    ContextOptions options;
    options.rank = 0;
    options.size = 1;
    options.rails = {"tcp:lo"};
    context_ = Context::create(std::make_shared<::gloo::rendezvous::HashStore>(), options);
  }

  Handle receive() {
    RecvOptions options(context_);
    options.setSource(0);
    options.setOutput(&received_, 1);
    return recvAsync(options);
  }
  void send(uint32_t value) {
    SendOptions options(context_);
    options.setDestination(0);
    options.setInput(&value, 1);
    nezha::send(options);
  }

  std::shared_ptr<Context> context_;
  uint32_t received_ = 0;
};

TEST_F(HandleTest, WithoutAnOperationItIsOver) {
  Handle handle;
  EXPECT_TRUE(handle.test());
  EXPECT_NO_THROW(handle.wait());
  EXPECT_EQ(handle.error(), nullptr);
  EXPECT_EQ(handle.source(), -1);
  EXPECT_EQ(handle.bytes(), 0U);
  int calls = 0;
  handle.notify([&] { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_NO_THROW(handle.cancel());
}

TEST_F(HandleTest, TellsWhatAReceiveHasTaken) {
  Handle handle = receive();
  int calls = 0;
  handle.notify([&] { ++calls; });
  EXPECT_FALSE(handle.test());
  EXPECT_FALSE(handle.wait(std::chrono::milliseconds(1)));
  EXPECT_EQ(handle.source(), -1);
  EXPECT_EQ(calls, 0);
  send(42);
  handle.wait();
  EXPECT_EQ(received_, 42U);
  EXPECT_TRUE(handle.test());
  EXPECT_EQ(handle.source(), 0);
  EXPECT_EQ(handle.bytes(), sizeof received_);
  EXPECT_EQ(calls, 1);
}

TEST_F(HandleTest, CallsOneFunctionOnly) {
  Handle handle = receive();
  EXPECT_THROW(handle.notify(nullptr), InvalidArgument);
  handle.notify([] {});
  EXPECT_THROW(handle.notify([] {}), InvalidArgument);
  send(1);
  handle.wait();
}

TEST_F(HandleTest, MovesWithItsOperation) {
  Handle first = receive();
  Handle second = std::move(first);
  Handle third;
  third = std::move(second);
  EXPECT_FALSE(third.test());
  send(7);
  third.wait();
  EXPECT_EQ(received_, 7U);
}

TEST_F(HandleTest, CancellingGivesTheBufferBackAndIsAnError) {
  Handle handle = receive();
  handle.cancel();
  EXPECT_TRUE(handle.test());
  EXPECT_NE(handle.error(), nullptr);
  EXPECT_THROW(handle.wait(), IoError);
}

TEST_F(HandleTest, AllOfSeveralAreAwaited) {
  std::vector<Handle> handles;
  handles.push_back(receive());
  handles.emplace_back();
  EXPECT_FALSE(waitAll(handles, std::chrono::milliseconds(1)));
  send(9);
  waitAll(handles);
  EXPECT_EQ(received_, 9U);
  EXPECT_TRUE(waitAll(handles, std::chrono::milliseconds(0)));
}

}  // namespace
}  // namespace nezha
