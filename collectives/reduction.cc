#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/reduction.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h, which includes this file once for each target.
#include "collectives/reduction.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace nezha::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void sum_float32(void* out, const void* a, const void* b, size_t elements) {
  const hn::ScalableTag<float> tag;
  auto* to = static_cast<float*>(out);
  const auto* x = static_cast<const float*>(a);
  const auto* y = static_cast<const float*>(b);
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + 4 * lanes <= elements; i += 4 * lanes) {
    const auto s0 = hn::Add(hn::LoadU(tag, x + i), hn::LoadU(tag, y + i));
    const auto s1 = hn::Add(hn::LoadU(tag, x + i + lanes), hn::LoadU(tag, y + i + lanes));
    const auto s2 = hn::Add(hn::LoadU(tag, x + i + 2 * lanes), hn::LoadU(tag, y + i + 2 * lanes));
    const auto s3 = hn::Add(hn::LoadU(tag, x + i + 3 * lanes), hn::LoadU(tag, y + i + 3 * lanes));
    hn::StoreU(s0, tag, to + i);
    hn::StoreU(s1, tag, to + i + lanes);
    hn::StoreU(s2, tag, to + i + 2 * lanes);
    hn::StoreU(s3, tag, to + i + 3 * lanes);
  }
  for (; i + lanes <= elements; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(tag, x + i), hn::LoadU(tag, y + i)), tag, to + i);
  }
  for (; i < elements; ++i) to[i] = x[i] + y[i];
}

}  // namespace
}  // namespace nezha::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nezha {
namespace {

HWY_EXPORT(sum_float32);

void sum_float32_dispatched(void* out, const void* a, const void* b, size_t elements) {
  HWY_DYNAMIC_DISPATCH(sum_float32)(out, a, b, elements);
}

}  // namespace

Reduction reduction(DataType, ReduceOperation) { return &sum_float32_dispatched; }

}  // namespace nezha
#endif
