// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/reduction.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h, which includes this file once for each target.
#include <cstdint>
#include <cstring>
#include <limits>

#include "collectives/integer_division.h"
#include "collectives/reduction.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace nezha::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// ---- Operations --------------------------------------------------------------------------------
// These work on vectors of numbers that the CPU computes with.

template <class V>
constexpr bool kIsFloat = hwy::IsFloat<hn::TFromV<V>>();

struct Sum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    [[maybe_unused]] const hn::DFromV<V> d;
    if constexpr (sizeof(hn::TFromV<V>) > 1 || HWY_TARGET == HWY_SCALAR) {
      return hn::Mul(a, b);
    } else {  // CPUs lack it: even and odd bytes apart, in 16 bits
      const hn::Repartition<uint16_t, decltype(d)> d16;
      const auto low = hn::Set(d16, 0xff);
      const auto a16 = hn::BitCast(d16, a);
      const auto b16 = hn::BitCast(d16, b);
      const auto even = hn::And(hn::Mul(a16, b16), low);
      const auto odd = hn::Mul(hn::ShiftRight<8>(a16), hn::AndNot(low, b16));
      return hn::BitCast(d, hn::Or(even, odd));
    }
  }
};

// Returns `b` if either is NaN or if both are zeros, like x86's instruction, which Highway uses on
// x86.
template <class V>
HWY_INLINE V smaller(V a, V b) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(a, b);
#else
  return hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
}

// IEEE 754-2019, 9.6: minimum and maximum. smaller(a, b) and smaller(b, a) have the same bits, with
// two exceptions: Or turns +0 and -0 into -0, and keeps a NaN a NaN.
struct Min {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (kIsFloat<V>) {
      return hn::Or(smaller(a, b), smaller(b, a));
    } else {
      return hn::Min(a, b);
    }
  }
};

struct Max {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (kIsFloat<V>) {
      return hn::Neg(Min()(hn::Neg(a), hn::Neg(b)));
    } else {
      return hn::Max(a, b);
    }
  }
};

struct Quotient {
  int divisor;
  template <class V>
  HWY_INLINE V operator()(V v) const {
    return hn::Div(v, hn::Set(hn::DFromV<V>(), static_cast<hn::TFromV<V>>(divisor)));
  }
};

// ---- Formats -----------------------------------------------------------------------------------
// A format says how elements lie in memory, and applies f to vectors of them.

// Replaces every NaN by the same one: which of two NaNs an addition returns depends on the CPU, and
// on the compiler, which may swap them.
template <class V>
HWY_INLINE V one_nan(V v) {
  const auto nan = hn::Set(hn::DFromV<V>(), std::numeric_limits<hn::TFromV<V>>::quiet_NaN());
  return hn::IfThenElse(hn::IsNaN(v), nan, v);
}

template <typename T>
struct Plain {
  using Tag = hn::ScalableTag<T>;
  template <class F, class V, class... Vs>
  static HWY_INLINE V apply(const F& f, V v, Vs... vs) {
    if constexpr (kIsFloat<V>) {
      return one_nan(f(v, vs...));
    } else {
      return f(v, vs...);
    }
  }
};

using Float = hn::ScalableTag<float>;
using FloatBits = hn::ScalableTag<uint32_t>;
using Short = hn::Rebind<uint16_t, Float>;  // as many of them as of floats
using Floats = hn::Vec<Float>;
using Words = hn::Vec<FloatBits>;
using Shorts = hn::Vec<Short>;

// 16-bit floating-point numbers, computed as floats.
template <class Conversion>
struct Converted {
  using Tag = Short;
  template <class F, class... Vs>
  static HWY_INLINE Shorts apply(const F& f, Vs... vs) {
    return Conversion::from_float(one_nan(f(Conversion::to_float(vs)...)));
  }
};

HWY_INLINE Shorts narrow(Words words) {
  return hn::DemoteTo(Short(), hn::BitCast(hn::RebindToSigned<FloatBits>(), words));
}

#if HWY_TARGET == HWY_SCALAR
struct BrainConversion {
  static HWY_INLINE Floats to_float(Shorts brains) {
    return hn::BitCast(Float(), hn::ShiftLeft<16>(hn::PromoteTo(FloatBits(), brains)));
  }
  // This is our own arithmetic, because Highway's truncates.
  static HWY_INLINE Shorts from_float(Floats value) {
    const FloatBits d;
    const Words bits = hn::BitCast(d, value);
    const Words is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    // Rounding up does not carry into the exponent of the NaN that one_nan() makes.
    const Words rounded = hn::Add(bits, hn::Add(is_odd, hn::Set(d, 0x7fff)));
    return narrow(hn::ShiftRight<16>(rounded));
  }
};
using Brain = Converted<BrainConversion>;
#else
// Computes in pairs: each number stays in its half of a word, which is faster than moving numbers
// between lanes. They are rounded as 16-bit numbers again, which takes the work of one vector, not
// two.
struct Brain {
  using Tag = hn::ScalableTag<uint16_t>;
  template <class F, class... Vs>
  static HWY_INLINE hn::Vec<Tag> apply(const F& f, Vs... vs) {
    return rounded_pairs(f, loaded(vs)...);
  }

 private:
  template <class F, class... Vs>
  static HWY_INLINE hn::Vec<Tag> rounded_pairs(const F& f, Vs... vs) {
    const Words even = hn::BitCast(FloatBits(), f(even_of(vs)...));
    const Words odd = hn::BitCast(FloatBits(), f(odd_of(vs)...));
    const Tag d;
    const hn::RebindToSigned<Tag> signed_d;
    const auto upper = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<16>(even)));
    const auto lower = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<16>(odd)), hn::BitCast(d, even));
    // Rounds to the nearest, ties to even: up if `lower` is more than half, or half and `upper`
    // odd.
    const auto one = hn::Set(d, 1);
    const auto is_up = hn::Gt(hn::SaturatedAdd(lower, hn::And(upper, one)), hn::Set(d, 0x8000));
    const auto rounded = hn::IfThenElse(is_up, hn::Add(upper, one), upper);
    // The upper half shows every NaN: an operand has only that half, and a NaN that the CPU makes
    // is quiet.
    const auto magnitude = hn::BitCast(signed_d, hn::And(upper, hn::Set(d, 0x7fff)));
    const auto is_nan = hn::RebindMask(d, hn::Gt(magnitude, hn::Set(signed_d, 0x7f80)));
    return hn::IfThenElse(is_nan, hn::Set(d, 0x7fc0), rounded);
  }

  // Keeps `v` in a register: otherwise the compiler loads it for each of its two uses, and such
  // loads often cross a cache line.
  template <class V>
  static HWY_INLINE V loaded(V v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
    asm("" : "+v"(v.raw));
#endif
    return v;
  }
  template <class V>
  static HWY_INLINE Floats even_of(V v) {
    return hn::BitCast(Float(), hn::ShiftLeft<16>(hn::BitCast(FloatBits(), v)));
  }
  template <class V>
  static HWY_INLINE Floats odd_of(V v) {
    const Words words = hn::BitCast(FloatBits(), v);
    return hn::BitCast(Float(), hn::And(words, hn::Set(FloatBits(), 0xffff0000U)));
  }
};
#endif

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
// The CPU converts, and rounds to the nearest, ties to even.
struct HalfConversion {
  using Tag = hn::Rebind<hwy::float16_t, Float>;
  static HWY_INLINE Floats to_float(Shorts halves) {
    return hn::PromoteTo(Float(), hn::BitCast(Tag(), halves));
  }
  static HWY_INLINE Shorts from_float(Floats value) {
    return hn::BitCast(Short(), hn::DemoteTo(Tag(), value));
  }
};
#else
// Our own arithmetic, the same as nezha::Float16's: where the CPU has no such instruction,
// Highway's conversion truncates, and turns infinities and NaNs into finite numbers.
struct HalfConversion {
  static HWY_INLINE Floats to_float(Shorts halves) {
    const FloatBits d;
    const Float df;
    const Words bits = hn::PromoteTo(d, halves);
    const Words magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(d, 0x7fff)));
    const Words sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d, 0x8000)));
    const Floats value = hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p112F));
    const Floats infinity = hn::Set(df, std::numeric_limits<float>::infinity());
    const auto is_special = hn::Ge(value, hn::Set(df, 0x1p16F));
    const Floats all = hn::Or(value, hn::IfThenElseZero(is_special, infinity));
    return hn::Or(all, hn::BitCast(df, sign));
  }
  static HWY_INLINE Shorts from_float(Floats value) {
    const FloatBits d;
    const Float df;
    const Words bits = hn::BitCast(d, value);
    const Words sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000));
    const Words magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
    const Words is_odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
    const Words bias = hn::Set(d, 0xfff - 0x38000000U);
    const Words normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(is_odd, bias)));
    const Floats absolute = hn::BitCast(df, magnitude);
    const Words subnormal =
        hn::And(hn::BitCast(d, hn::Add(absolute, hn::Set(df, 0.5F))), hn::Set(d, 0x7fffff));
    const auto is_subnormal = hn::RebindMask(d, hn::Lt(absolute, hn::Set(df, 0x1p-14F)));
    const Words finite = hn::IfThenElse(is_subnormal, subnormal, normal);
    const Words number = hn::Min(finite, hn::Set(d, 0x7c00));  // infinity if it is too large
    const auto is_nan = hn::RebindMask(d, hn::IsNaN(value));
    return narrow(hn::Or(sign, hn::IfThenElse(is_nan, hn::Set(d, 0x7e00), number)));
  }
};
#endif

using Half = Converted<HalfConversion>;

// ---- Kernels -----------------------------------------------------------------------------------

// Loads the first `count` lanes; the others are zero.
template <class D>
HWY_INLINE hn::Vec<D> load_part(D d, const hn::TFromD<D>* from, size_t count) {
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)] = {};
  std::memcpy(buffer, from, count * sizeof *from);
  return hn::Load(d, buffer);
}

template <class D>
HWY_INLINE void store_part(hn::Vec<D> v, D d, hn::TFromD<D>* to, size_t count) {
  HWY_ALIGN hn::TFromD<D> buffer[hn::MaxLanes(d)];
  hn::Store(v, d, buffer);
  std::memcpy(to, buffer, count * sizeof *to);
}

// Inputs are prefetched this many bytes ahead: the CPU's own prefetching leaves the memory idle
// while a kernel computes. Half or twice the distance is slower, and so is prefetching the output.
constexpr size_t kAhead = 512;

// out[i] = f(in[i]...)
template <class Format, class F, typename T, typename... In>
HWY_INLINE void map(const F& f, T* out, size_t elements, const In*... in) {
  const typename Format::Tag d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    (hwy::Prefetch(in + i + kAhead / sizeof(In)), ...);
    hn::StoreU(Format::apply(f, hn::LoadU(d, in + i)...), d, out + i);
  }
  const size_t rest = elements - i;
  if (rest == 0) return;
  store_part(Format::apply(f, load_part(d, in + i, rest)...), d, out + i, rest);
}

template <class Format>
using Lane = hn::TFromD<typename Format::Tag>;

template <class Format, class F>
void reduce(void* out, const void* a, const void* b, size_t elements) {
  using T = Lane<Format>;
  map<Format>(F(), static_cast<T*>(out), elements, static_cast<const T*>(a),
              static_cast<const T*>(b));
}

template <class Format>
void divide_by(void* out, const void* in, size_t elements, int divisor) {
  using T = Lane<Format>;
  map<Format>(Quotient{divisor}, static_cast<T*>(out), elements, static_cast<const T*>(in));
}

// `Wrapping` is the format for operations that may overflow: unsigned, so that overflow is defined.
template <class Format, class Wrapping = Format>
Reduction reduction_of(ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::kSum:
    case ReduceOperation::kAverage:
      return &reduce<Wrapping, Sum>;
    case ReduceOperation::kProduct:
      return &reduce<Wrapping, Product>;
    case ReduceOperation::kMin:
      return &reduce<Format, Min>;
    case ReduceOperation::kMax:
      return &reduce<Format, Max>;
    case ReduceOperation::kCustom:
      break;
  }
  return nullptr;
}

Reduction find_reduction(DataType type, ReduceOperation operation) {
  switch (type) {
    case DataType::kUint8:
      return reduction_of<Plain<uint8_t>>(operation);
    case DataType::kInt8:
      return reduction_of<Plain<int8_t>, Plain<uint8_t>>(operation);
    case DataType::kUint16:
      return reduction_of<Plain<uint16_t>>(operation);
    case DataType::kInt16:
      return reduction_of<Plain<int16_t>, Plain<uint16_t>>(operation);
    case DataType::kUint32:
      return reduction_of<Plain<uint32_t>>(operation);
    case DataType::kInt32:
      return reduction_of<Plain<int32_t>, Plain<uint32_t>>(operation);
    case DataType::kUint64:
      return reduction_of<Plain<uint64_t>>(operation);
    case DataType::kInt64:
      return reduction_of<Plain<int64_t>, Plain<uint64_t>>(operation);
    case DataType::kFloat16:
      return reduction_of<Half>(operation);
    case DataType::kBFloat16:
      return reduction_of<Brain>(operation);
    case DataType::kFloat32:
      return reduction_of<Plain<float>>(operation);
    case DataType::kFloat64:
      return reduction_of<Plain<double>>(operation);
  }
  return nullptr;
}

using Division = void (*)(void* out, const void* in, size_t elements, int divisor);

// Returns the division for a floating-point type, and null for others.
Division find_division(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return &divide_by<Half>;
    case DataType::kBFloat16:
      return &divide_by<Brain>;
    case DataType::kFloat32:
      return &divide_by<Plain<float>>;
    case DataType::kFloat64:
      return &divide_by<Plain<double>>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace nezha::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nezha {
namespace {

HWY_EXPORT(find_reduction);
HWY_EXPORT(find_division);

}  // namespace

Reduction reduction(DataType type, ReduceOperation operation) {
  return HWY_DYNAMIC_DISPATCH(find_reduction)(type, operation);
}

void divide(DataType type, void* out, const void* in, size_t elements, int ranks) {
  if (const auto division = HWY_DYNAMIC_DISPATCH(find_division)(type)) {
    division(out, in, elements, ranks);
  } else {
    divide_integers(type, out, in, elements, ranks);
  }
}

}  // namespace nezha
#endif
