// SPDX-License-Identifier: Apache-2.0
// The ranks are threads, connected by two rails of the loopback interface.
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nezha/allreduce.h"
#include "nezha/errors.h"
#include "nezha/gloo.h"
#include "tests/unit/interop/gloo/gloo_ranks.h"
#include "tests/unit/transport/recording_holder.h"

namespace nezha {
namespace {

class DeviceTest : public GlooRanks {};

TEST_F(DeviceTest, ABuffersMemoryIsHeldAsLongAsTheBufferLives) {
  testing::RecordingHolder holder;
  run(2, [&](std::shared_ptr<GlooContext>& context) {
    std::vector<char> memory(100'000);
    const auto is_held = [&] { return holder.has(memory.data(), memory.size()); };
    auto buffer = context->createUnboundBuffer(memory.data(), memory.size());
    EXPECT_TRUE(is_held());
    buffer.reset();
    EXPECT_FALSE(is_held());
    const auto& pair = context->getPair(1 - context->rank);
    auto bound = context->rank == 0 ? pair->createSendBuffer(3, memory.data(), memory.size())
                                    : pair->createRecvBuffer(3, memory.data(), memory.size());
    EXPECT_TRUE(is_held());
    bound.reset();
    EXPECT_FALSE(is_held());
  });
}

TEST_F(DeviceTest, NezhasOwnContextIsBesideGloos) {
  run(3, [](std::shared_ptr<GlooContext>& context) {
    const auto own = glooContext(*context);
    ASSERT_NE(own, nullptr);
    EXPECT_EQ(own->rank(), context->rank);
    EXPECT_EQ(own->size(), 3);
    EXPECT_EQ(own->rails().size(), 2u);
    // A Gloo message and a nezha operation with the same tag are in flight at once.
    const int next = (context->rank + 1) % 3;
    std::string word = std::to_string(context->rank);
    const auto out = context->createUnboundBuffer(word.data(), word.size());
    out->send(next, 7);
    float sum = static_cast<float>(context->rank);
    AllreduceOptions options(own);
    options.setOutput(&sum, 1);
    options.setTag(7);
    allreduce(options);
    EXPECT_EQ(sum, 3.0F);
    const int previous = (context->rank + 2) % 3;
    EXPECT_EQ(receive(context, previous, 7, 1), std::to_string(previous));
    out->waitSend();
  });
}

TEST_F(DeviceTest, NezhasOwnContextOutlivesGloos) {
  run(2, [](std::shared_ptr<GlooContext>& context) {
    const auto own = glooContext(*context);
    context.reset();
    int32_t sum = 1;
    AllreduceOptions options(own);
    options.setOutput(&sum, 1);
    allreduce(options);
    EXPECT_EQ(sum, 2);
  });
}

TEST_F(DeviceTest, ThereIsNoOwnContextOfOneRank) {
  run(1, [](std::shared_ptr<GlooContext>& context) { EXPECT_EQ(glooContext(*context), nullptr); });
}

// The failed receive withdraws its tickets at the other ranks; a later receive gets the message.
TEST_F(DeviceTest, AMessageThatIsTooLongFailsAReceiveFromAnyOfSeveral) {
  run(3, [](std::shared_ptr<GlooContext>& context) {
    if (context->rank == 0) {
      receive(context, 1, 1, 1);  // so the message that rank 1 sent before has arrived
      std::string word(2, '.');
      const auto buffer = context->createUnboundBuffer(word.data(), word.size());
      EXPECT_THROW(
          {
            buffer->recv({1, 2}, 0);
            buffer->waitRecv();
          },
          ::gloo::Exception);
      EXPECT_EQ(receive(context, 2, 1, 1), "x");
      EXPECT_EQ(receive(context, 2, 0, 4), "late");
      return;
    }
    if (context->rank == 2) {
      send(context, 0, 1, "x");
      send(context, 0, 0, "late");
      return;
    }
    std::string word = "long";
    const auto buffer = context->createUnboundBuffer(word.data(), word.size());
    buffer->send(0, 0);
    try {
      send(context, 0, 1, "x");
      buffer->waitSend();
    } catch (const ::gloo::IoException&) {  // rank 0 has given up its pair with this rank
    }
  });
}

TEST_F(DeviceTest, AChildOfForkMayDestroyWhatItHasInherited) {
  run(2, [](std::shared_ptr<GlooContext>& context) {
    char byte = 0;
    auto buffer = context->createUnboundBuffer(&byte, 1);
    if (context->rank == 0) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        alarm(20);  // ends the child in any case
        bool is_refused = false;
        try {
          buffer->send(1, 0);
        } catch (const InvalidArgument&) {
          is_refused = true;
        }
        buffer.reset();
        context.reset();
        _exit(is_refused ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
      send(context, 1, 0, "p");
      return;
    }
    EXPECT_EQ(receive(context, 0, 0, 1), "p");
  });
}

TEST_F(DeviceTest, AWrongRailFailsTheConnectionNotTheDevice) {
  GlooDeviceOptions options;
  options.rails = {"tcp:no-such-interface"};
  auto device = glooDevice(options);
  ::gloo::rendezvous::HashStore store;
  GlooContext context(0, 1);
  EXPECT_THROW(context.connectFullMesh(store, device), InvalidArgument);
}

}  // namespace
}  // namespace nezha
