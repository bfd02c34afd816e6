// SPDX-License-Identifier: Apache-2.0
// Which objects keep a user's memory.
#include <gloo/rendezvous/hash_store.h>

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nezha/allgather.h"
#include "nezha/allreduce.h"
#include "nezha/context.h"
#include "nezha/errors.h"
#include "nezha/registered_memory.h"
#include "nezha/send_recv.h"
#include "tests/unit/transport/recording_holder.h"

namespace nezha {
namespace {

constexpr size_t kElements = 100'000;
using Vector = std::vector<float>;

std::shared_ptr<Context> alone() {
  ContextOptions options;
  options.rank = 0;
  options.size = 1;
  options.rails = {"tcp:lo"};
  return Context::create(std::make_shared<::gloo::rendezvous::HashStore>(), options);
}

class HeldByOperations : public ::testing::Test {
 protected:
  bool is_held(const Vector& vector) {
    return holder_.has(vector.data(), vector.size() * sizeof(float));
  }
  int comings(const Vector& vector) {
    return holder_.comings(vector.data(), vector.size() * sizeof(float));
  }
  Handle receive(Vector& vector) {
    RecvOptions options(context_);
    options.setSource(0);
    options.setOutput(vector.data(), vector.size());
    return recvAsync(options);
  }
  Handle send(const Vector& vector) {
    SendOptions options(context_);
    options.setDestination(0);
    options.setInput(vector.data(), vector.size());
    return sendAsync(options);
  }

  testing::RecordingHolder holder_;
  std::shared_ptr<Context> context_ = alone();
};

TEST_F(HeldByOperations, MessageMemoryIsHeldUntilTheMessageEnds) {
  Vector output(kElements);
  const Vector input(kElements, 3.0F);
  Handle receiving = receive(output);
  EXPECT_TRUE(is_held(output));
  EXPECT_FALSE(is_held(input));
  Handle sending = send(input);
  receiving.wait();
  sending.wait();
  EXPECT_EQ(output, input);
  EXPECT_EQ(comings(input), 1);
  EXPECT_FALSE(is_held(output));
  EXPECT_FALSE(is_held(input));
}

TEST_F(HeldByOperations, MessageMemoryIsHeldUntilCancellation) {
  Vector output(kElements);
  Handle receiving = receive(output);
  EXPECT_TRUE(is_held(output));
  receiving.cancel();
  EXPECT_FALSE(is_held(output));
}

TEST_F(HeldByOperations, MessageMemoryIsHeldUntilTheContextEnds) {
  Vector output(kElements);
  Handle receiving = receive(output);
  EXPECT_TRUE(is_held(output));
  context_.reset();
  EXPECT_FALSE(is_held(output));
}

TEST_F(HeldByOperations, CollectivesHoldTheirInputAndOutput) {
  const Vector input(kElements, 2.0F);
  Vector sum(kElements);
  AllreduceOptions reduction(context_);
  reduction.setInput(input.data(), input.size());
  reduction.setOutput(sum.data(), sum.size());
  allreduce(reduction);
  Vector gathered(kElements);
  AllgatherOptions gathering(context_);
  gathering.setInput(input.data(), input.size());
  gathering.setOutput(gathered.data(), gathered.size());
  allgather(gathering);
  EXPECT_EQ(comings(input), 2);
  EXPECT_EQ(comings(sum), 1);
  EXPECT_EQ(comings(gathered), 1);
  for (const Vector* vector :
       {&input, const_cast<const Vector*>(&sum), const_cast<const Vector*>(&gathered)}) {
    EXPECT_FALSE(is_held(*vector));
  }
}

TEST(RegisteredMemory, IsHeldAsLongAsTheObjectLives) {
  testing::RecordingHolder holder;
  const Vector vector(kElements);
  const size_t bytes = kElements * sizeof(float);
  const auto is_held = [&] { return holder.has(vector.data(), bytes); };
  {
    RegisteredMemory memory = registerMemory(vector.data(), bytes);
    EXPECT_TRUE(is_held());
    const RegisteredMemory again = registerMemory(vector.data(), bytes);
    RegisteredMemory moved = std::move(memory);
    moved = RegisteredMemory();
    EXPECT_TRUE(is_held()) << "it was registered twice";
  }
  EXPECT_FALSE(is_held());
}

TEST(RegisteredMemory, MustBeValidMemory) {
  EXPECT_THROW(registerMemory(nullptr, 1), InvalidArgument);
  const char byte = 0;
  EXPECT_THROW(registerMemory(&byte, SIZE_MAX), InvalidArgument);
  EXPECT_NO_THROW(registerMemory(nullptr, 0));
  EXPECT_NO_THROW(registerMemory(&byte, 1));
}

}  // namespace
}  // namespace nezha
