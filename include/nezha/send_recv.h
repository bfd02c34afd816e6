// SPDX-License-Identifier: Apache-2.0
/// send and recv: one message from one rank to another.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "nezha/context.h"
#include "nezha/export.h"
#include "nezha/handle.h"
#include "nezha/types.h"

namespace nezha {

/// The options that send and recv have in common. Use SendOptions or RecvOptions.
class PointToPointOptions {
 public:
  /// Options of an operation on this context, which must not be null.
  explicit PointToPointOptions(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  /// Sets the tag, which tells messages apart: a receive takes messages of its own tag only. It may
  /// be any number below 2^62. Sends and receives have tags of their own and never match a
  /// collective, whatever its tag. Default: 0.
  void setTag(uint64_t tag) { tag_ = tag; }

  /// Sets the deadline of the whole operation, counted from the call. It must be more than 0, or
  /// the call throws InvalidArgument; more than a year counts as a year. Default: the context's.
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

 private:
  friend class RequestMaker;

  std::shared_ptr<Context> context_;
  uint64_t tag_ = 0;
  std::optional<std::chrono::milliseconds> timeout_;

 protected:
  /// The caller's memory.
  template <typename Pointer>
  struct Memory {
    Pointer data = nullptr;  ///< where it begins
    size_t bytes = 0;        ///< the largest size_t if the number cannot be computed
    bool is_set = false;     ///< whether the caller has given it
  };

  /// Returns the memory of `elements` elements at `data`. `element_size` is 0 if their type is no
  /// DataType.
  template <typename Pointer>
  static Memory<Pointer> memory(Pointer data, size_t elements, size_t element_size) {
    const size_t most = std::numeric_limits<size_t>::max();
    const bool is_countable = element_size > 0 && elements <= most / element_size;
    return {data, is_countable ? elements * element_size : most, true};
  }
};

/// One send. The input's memory belongs to the caller. It must stay valid and unwritten until the
/// operation is over, and nezha does not write to it.
///
/// A message is a number of bytes. The types of its elements are neither sent to the receiver nor
/// checked. The options may be used again, even while an operation that was started with them runs.
/// They are not thread-safe.
class SendOptions : public PointToPointOptions {
 public:
  using PointToPointOptions::PointToPointOptions;

  /// Sets the rank that the message goes to, which may be this rank itself. It must be given.
  void setDestination(int rank) { destination_ = rank; }

  /// Sets the message: `elements` elements at `data`, of any trivially copyable type.
  template <typename T>
  void setInput(const T* data, size_t elements) {
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied byte by byte");
    input_ = memory<const void*>(data, elements, sizeof(T));
  }
  /// Sets an input of a type that is known at run time only.
  void setInput(DataType type, const void* data, size_t elements) {
    input_ = memory(data, elements, sizeOf(type));
  }
  /// Sets an input of `bytes` bytes.
  void setInput(const void* data, size_t bytes) { input_ = memory(data, bytes, 1); }

 private:
  friend class RequestMaker;

  int destination_ = -1;
  Memory<const void*> input_;
};

/// One receive. The output's memory belongs to the caller. It must stay valid, and the caller must
/// not read or write it, until the operation is over. Its contents are undefined after an error.
///
/// The options may be used again, even while an operation that was started with them runs. They are
/// not thread-safe.
class RecvOptions : public PointToPointOptions {
 public:
  using PointToPointOptions::PointToPointOptions;

  /// Sets the rank that the message comes from, which may be this rank itself. One of setSource,
  /// setSources and setAnySource must be called; the last call counts.
  void setSource(int rank) { setSources({rank}); }

  /// The message may come from any of these ranks. The list must not be empty, and must not contain
  /// a rank twice.
  ///
  /// The receive starts once all these ranks are in the store. Until then, later receives that name
  /// one of these ranks and the same tag wait behind it, because receives match in order.
  /// Collectives also wait behind it, and so do sends and receives that involve a rank with which
  /// this rank has had no operation yet in this context. Other operations go on.
  void setSources(std::vector<int> ranks) {
    sources_ = std::move(ranks);
    is_any_ = false;
  }

  /// The message may come from any rank, including this one. The receive starts once all ranks are
  /// in the store. Until then the same operations wait behind it as with setSources.
  void setAnySource() {
    sources_.clear();
    is_any_ = true;
  }

  /// Sets whether the message may be shorter than the output. The rest of the output then keeps its
  /// contents, and Handle::bytes says how long the message is if the receive was started by
  /// recvAsync. By default the message must have exactly the output's size. A longer message is an
  /// error in either case.
  void setMayBeShorter(bool may_be_shorter) { may_be_shorter_ = may_be_shorter; }

  /// Sets where the message goes: `elements` elements at `data`, of any trivially copyable type.
  /// The message must have exactly this size (but see setMayBeShorter).
  template <typename T>
  void setOutput(T* data, size_t elements) {
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied byte by byte");
    output_ = memory<void*>(data, elements, sizeof(T));
  }
  /// Sets an output of a type that is known at run time only.
  void setOutput(DataType type, void* data, size_t elements) {
    output_ = memory(data, elements, sizeOf(type));
  }
  /// Sets an output of `bytes` bytes.
  void setOutput(void* data, size_t bytes) { output_ = memory(data, bytes, 1); }

 private:
  friend class RequestMaker;

  std::vector<int> sources_;
  bool is_any_ = false;
  bool may_be_shorter_ = false;
  Memory<void*> output_;
};

/// Sends one message. Returns when the input may be used again. That does not mean that the
/// destination has asked for the message: about 2 MiB of messages from one rank to another wait at
/// the destination until it does (a small message counts as 256 bytes). Further messages wait at
/// the sender until a receive asks for them, and so does a message to this rank itself. A
/// destination that closes the context drops the messages that it has not asked for, and a send to
/// it afterwards is an IoError. A rank may have begun up to 65,536 messages that another rank has
/// not asked for. With more, the connections between the two break, and are made again, until the
/// other rank asks for some.
///
/// Messages from one rank to another match the receives there in the order of the calls, separately
/// for each tag. Calls of several threads with one tag have no defined order. The message goes over
/// all rails of the context, by stripes. Thread-safe.
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried. Each of these two breaks the context, as in a
/// collective. A rail that dies is no error while another rail joins the two ranks.
///
/// A receive that asks for another size (or, if the message may be shorter there, for less) breaks
/// the context, too, and both ranks get an error. The send throws this error only if it is still
/// waiting. If the message was small enough to wait at the destination, the send has returned by
/// then, and a later call on this context throws.
NEZHA_EXPORT void send(const SendOptions& options);

/// Starts one send and returns; the send continues by itself. Throws InvalidArgument (nothing was
/// started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle sendAsync(const SendOptions& options);

/// Receives one message, and returns the rank that it has come from. Receives take messages in the
/// order in which they were started. A message goes to the first receive of its tag that takes
/// messages from its rank, even if that receive takes messages from other ranks, too. (MPI does the
/// same.) If messages from several ranks are waiting, those of any of these ranks may come first.
/// Thread-safe.
///
/// A receive from several ranks connects to all of them. It fails if one of them dies or cannot be
/// reached. It does not fail if a rank that it is connected to leaves the context in good order, as
/// long as another rank is left. A rank leaves in good order if it destroys the context, or if its
/// process ends by exit().
///
/// Throws InvalidArgument (nothing was started). Throws IoError or TimeoutError (nezha/errors.h),
/// which name the rank, the rail and what was tried, also if the message has another size (the
/// sender learns of that, too). Each of these two breaks the context, as in a collective. A rail
/// that dies is no error while another rail joins the two ranks.
NEZHA_EXPORT int recv(const RecvOptions& options);

/// Starts one receive and returns; the receive continues by itself. Throws InvalidArgument (nothing
/// was started), and IoError if the context is broken. Handle::source is the rank that the message
/// has come from.
[[nodiscard]] NEZHA_EXPORT Handle recvAsync(const RecvOptions& options);

}  // namespace nezha
