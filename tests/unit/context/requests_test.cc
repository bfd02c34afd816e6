// SPDX-License-Identifier: Apache-2.0
// The requests that rank 1 of 4 makes.
#include "context/requests.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "context/split.h"
#include "gtest/gtest.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

class RequestMakerTest : public ::testing::Test {
 protected:
  static constexpr size_t kElements = 4;

  static ContextOptions options() {
    ContextOptions options;
    options.rank = 1;
    options.size = 4;
    options.timeout = std::chrono::seconds(30);
    return options;
  }
  AllreduceOptions allreduce() {
    AllreduceOptions options(nullptr);
    options.setOutput(out_.data(), kElements);
    return options;
  }
  template <typename Options>
  std::string refusal(const Options& options) const {
    try {
      maker_.make(options);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()).find("nezha: rank 1 of 4"), 0U)
          << "who refuses comes first";
      return error.what();
    }
    return "";
  }
  template <typename Options>
  void expect_refusal(const Options& options, const std::string& why) const {
    EXPECT_NE(refusal(options).find(why), std::string::npos)
        << refusal(options) << " has no " << why;
  }
  static const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }

  std::array<float, kElements> one_{1, 2, 3, 4};
  std::array<float, kElements> other_{10, 20, 30, 40};
  std::array<float, 2 * kElements> out_{};
  nezha::Setup setup_{*Endpoint::create(), nullptr, options(), UniqueId{7, 7}};
  Loopback loopback_;
  RequestMaker maker_{setup_, loopback_};
};

TEST_F(RequestMakerTest, AnOutputAloneIsReducedInPlace) {
  AllreduceOptions options = allreduce();
  options.setTag(5);
  const Request request = maker_.make(options);
  EXPECT_EQ(request.operation.input, bytes(out_.data()));
  EXPECT_EQ(request.operation.output, request.operation.input);
  EXPECT_EQ(request.operation.elements, kElements);
  EXPECT_EQ(request.operation.tag, 5);
  EXPECT_TRUE(request.copies.empty());
  EXPECT_TRUE(request.is_by_size) << "no algorithm was asked for";
}

TEST_F(RequestMakerTest, SeveralInputsAreReducedToOneFirst) {
  AllreduceOptions options = allreduce();
  options.setInputs(std::vector<const float*>{one_.data(), other_.data()}, kElements);
  const Request request = maker_.make(options);
  ASSERT_TRUE(request.prepared.ok()) << request.prepared;
  const auto* input = reinterpret_cast<const float*>(request.operation.input);
  for (size_t i = 0; i < kElements; ++i) EXPECT_EQ(input[i], one_[i] + other_[i]);
  EXPECT_EQ(one_[0], 1) << "the caller's inputs stay";
}

TEST_F(RequestMakerTest, FurtherOutputsGetCopies) {
  AllreduceOptions options = allreduce();
  options.setInput(one_.data(), kElements);
  options.setOutputs(std::vector<float*>{out_.data(), out_.data() + kElements}, kElements);
  const Request request = maker_.make(options);
  ASSERT_EQ(request.copies.size(), 1U);
  EXPECT_EQ(request.copies[0], bytes(out_.data() + kElements));
}

TEST_F(RequestMakerTest, AnOperationHasTheContextsTimeoutOrItsOwn) {
  AllreduceOptions options = allreduce();
  EXPECT_EQ(maker_.make(options).timeout, std::chrono::seconds(30));
  options.setTimeout(std::chrono::milliseconds(70));
  EXPECT_EQ(maker_.make(options).timeout, std::chrono::milliseconds(70));
}

TEST_F(RequestMakerTest, RefusesVectorsThatCannotBeReduced) {
  expect_refusal(AllreduceOptions(nullptr), "allreduce: there is no output; set one");
  AllreduceOptions options = allreduce();
  options.setInput(one_.data(), kElements - 1);
  expect_refusal(options, "the inputs have 3 elements and the outputs have 4");
  options = allreduce();
  options.setInput(reinterpret_cast<const int32_t*>(one_.data()), kElements);
  expect_refusal(options, "different element types");
  options = allreduce();
  options.setInput(static_cast<const float*>(nullptr), kElements);
  expect_refusal(options, "input 0 is a null pointer");
  options.setInput(out_.data() + 1, kElements);
  expect_refusal(options, "input 0 and output 0 overlap without being the same");
  options = allreduce();
  options.setOutputs(std::vector<float*>{out_.data(), out_.data() + 3}, kElements);
  expect_refusal(options, "outputs 0 and 1 overlap");
  options = allreduce();
  options.setOutput(out_.data(), std::numeric_limits<size_t>::max() / 2);
  expect_refusal(options, "more than memory has");
  options.setOutput(static_cast<DataType>(99), out_.data(), kElements);
  expect_refusal(options, "there is no type 99");
}

TEST_F(RequestMakerTest, RefusesWhatNoRankCanDo) {
  AllreduceOptions options = allreduce();
  options.setTimeout(std::chrono::milliseconds(0));
  expect_refusal(options, "the timeout is 0 ms; give a positive one");
  options = allreduce();
  options.setOperation(ReduceOperation::kCustom);
  expect_refusal(options, "has no reduce function; set one");
  options.setOperation(static_cast<ReduceOperation>(99));
  expect_refusal(options, "there is no operation 99");
  options = allreduce();
  options.setAlgorithm(Algorithm::kBruck);
  expect_refusal(options, "it cannot use the algorithm bruck");
}

TEST_F(RequestMakerTest, TheRootIsOneOfTheRanks) {
  for (const int root : {-1, 4}) {
    BroadcastOptions options(nullptr);
    options.setOutput(out_.data(), kElements);
    options.setRoot(root);
    expect_refusal(options, "set one of 0 to 3");
  }
}

TEST_F(RequestMakerTest, OnlyTheRootOfAReduceNeedsAnOutput) {
  ReduceOptions options(nullptr);
  options.setInput(one_.data(), kElements);
  options.setRoot(2);
  const Request request = maker_.make(options);
  EXPECT_EQ(request.operation.input, bytes(one_.data()));
  EXPECT_EQ(request.operation.output, nullptr);
  options.setRoot(1);
  expect_refusal(options, "reduce: there is no output; set one");
}

TEST_F(RequestMakerTest, TheOutputOfABroadcastsRootIsACopy) {
  BroadcastOptions options(nullptr);
  options.setRoot(1);
  options.setInput(one_.data(), kElements);
  options.setOutput(out_.data(), kElements);
  const Request request = maker_.make(options);
  EXPECT_EQ(request.operation.output, nullptr);
  ASSERT_EQ(request.copies.size(), 1U);
  EXPECT_EQ(request.copies[0], bytes(out_.data()));
}

TEST_F(RequestMakerTest, BlocksThatAreExchangedInPlaceAreSentFromACopy) {
  AlltoallOptions options(nullptr);
  out_[0] = 3;
  options.setInput(out_.data(), kElements);
  options.setOutput(out_.data(), kElements);
  const Request request = maker_.make(options);
  EXPECT_NE(request.operation.input, bytes(out_.data()));
  EXPECT_EQ(*reinterpret_cast<const float*>(request.operation.input), 3);
}

TEST_F(RequestMakerTest, AReceiveNamesItsSources) {
  RecvOptions options(nullptr);
  options.setOutput(out_.data(), kElements);
  expect_refusal(options, "recv: there is no source; set one, several or any");
  options.setSources({0, 3, 0});
  expect_refusal(options, "rank 0 is a source twice; name it once");
  options.setSource(4);
  expect_refusal(options, "the source is rank 4 of 4; set one of 0 to 3");
  options.setAnySource();
  const Request request = maker_.make(options);
  EXPECT_EQ(request.exchange->terms().peers, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(request.operation.bytes(), kElements * sizeof(float));
}

TEST_F(RequestMakerTest, ASendNamesItsDestinationAndMemory) {
  SendOptions options(nullptr);
  options.setDestination(2);
  expect_refusal(options, "send: there is no input; set one");
  options.setInput(static_cast<const float*>(nullptr), kElements);
  expect_refusal(options, "the input is a null pointer");
  options.setInput(one_.data(), kElements);
  EXPECT_EQ(maker_.make(options).exchange->terms().peers, std::vector<int>{2});
}

TEST_F(RequestMakerTest, SomeTagsAreNezhasOwn) {
  AllreduceOptions collective = allreduce();
  collective.setTag(kOwnTag - 1);
  EXPECT_NO_THROW(maker_.check_tag(collective));
  collective.setTag(kOwnTag);
  EXPECT_THROW(maker_.check_tag(collective), InvalidArgument);
  SendOptions send(nullptr);
  send.setTag(kEndOfExchangeTags - 1);
  EXPECT_NO_THROW(maker_.check_tag(send));
  send.setTag(kEndOfExchangeTags);
  EXPECT_THROW(maker_.check_tag(send), InvalidArgument);
}

TEST_F(RequestMakerTest, OptionsNeedAContext) {
  EXPECT_THROW(RequestMaker::context_of(allreduce()), InvalidArgument);
  EXPECT_THROW(RequestMaker::context_of(SendOptions(nullptr)), InvalidArgument);
}

}  // namespace
}  // namespace nezha
