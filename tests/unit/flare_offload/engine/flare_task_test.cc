// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/flare_task.h"

#include <gtest/gtest.h>

#include "nezha/types.h"

namespace nezha::flare {
namespace {

Operation of(Collective collective) {
  Operation op;
  op.collective = collective;
  op.elements = 3;
  op.element_size = 4;
  return op;
}

TEST(FlareTaskTest, KnowsWhatASwitchCannotDo) {
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast}) {
    EXPECT_TRUE(FlareTask::supports(of(collective)).ok());
    Operation nothing = of(collective);
    nothing.elements = 0;
    EXPECT_FALSE(FlareTask::supports(nothing).ok());
    Operation custom = of(collective);
    custom.operation = ReduceOperation::kCustom;
    Operation ordered = of(collective);
    ordered.commutative = false;
    const bool adds_nothing_up = collective == Collective::kBroadcast;
    EXPECT_EQ(FlareTask::supports(custom).ok(), adds_nothing_up);
    EXPECT_EQ(FlareTask::supports(ordered).ok(), adds_nothing_up);
  }
  Operation barrier = of(Collective::kBarrier);
  barrier.elements = 0;
  EXPECT_TRUE(FlareTask::supports(barrier).ok());
}

}  // namespace
}  // namespace nezha::flare
