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

/// What the options of send and recv have in common. Use SendOptions or RecvOptions.
class PointToPointOptions {
 public:
  /// On this context, which must not be null.
  explicit PointToPointOptions(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  /// Tells messages apart: a receive takes a message of its own tag only. Any number below 2^62.
  /// Sends and receives have their tags to themselves: none meets a collective, whatever its tag.
  /// Default: 0.
  void setTag(uint64_t tag) { tag_ = tag; }

  /// The deadline of the whole operation, from the call on: more than 0, or the operation is
  /// InvalidArgument; and a year if it is longer. Default: the context's.
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
    size_t bytes = 0;        ///< as large as a size_t can be where they cannot be counted
    bool is_set = false;     ///< whether the caller has given it
  };

  /// That many elements at `data`. Their size is 0 if their type is no DataType.
  template <typename Pointer>
  static Memory<Pointer> memory(Pointer data, size_t elements, size_t element_size) {
    const size_t most = std::numeric_limits<size_t>::max();
    const bool is_countable = element_size > 0 && elements <= most / element_size;
    return {data, is_countable ? elements * element_size : most, true};
  }
};

/// One send. The input's memory belongs to the caller, must stay valid and unwritten until the
/// operation is over, and is not written.
///
/// A message is a number of bytes: the types of its elements go with it neither to the receiver nor
/// into any check. May be used again, also while an operation that was started with it runs. Not
/// thread-safe itself.
class SendOptions : public PointToPointOptions {
 public:
  using PointToPointOptions::PointToPointOptions;

  /// The rank that the message goes to, which may be this one. Must be given.
  void setDestination(int rank) { destination_ = rank; }

  /// What is sent: `elements` elements at `data`, of any trivially copyable type.
  template <typename T>
  void setInput(const T* data, size_t elements) {
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied byte by byte");
    input_ = memory<const void*>(data, elements, sizeof(T));
  }
  /// Likewise, of a type that is known at run time only.
  void setInput(DataType type, const void* data, size_t elements) {
    input_ = memory(data, elements, sizeOf(type));
  }
  /// Likewise, of bytes.
  void setInput(const void* data, size_t bytes) { input_ = memory(data, bytes, 1); }

 private:
  friend class RequestMaker;

  int destination_ = -1;
  Memory<const void*> input_;
};

/// One receive. The output's memory belongs to the caller, and must stay valid and untouched until
/// the operation is over; it is undefined after an error.
///
/// May be used again, also while an operation that was started with it runs. Not thread-safe
/// itself.
class RecvOptions : public PointToPointOptions {
 public:
  using PointToPointOptions::PointToPointOptions;

  /// The rank that the message comes from, which may be this one. This, setSources or setAnySource
  /// must be called; the last of them counts.
  void setSource(int rank) { setSources({rank}); }

  /// The message may come from any of these ranks. There must be one, and none may be there twice.
  /// The receive starts once all of them are in the store. Until then, receives that are called
  /// later and name one of these ranks and the same tag wait behind it, because they match in
  /// order. So do collectives, and sends and receives that take a rank which no operation of this
  /// rank has taken yet in this context. Others go on.
  void setSources(std::vector<int> ranks) {
    sources_ = std::move(ranks);
    is_any_ = false;
  }

  /// The message may come from any rank, this one included. The receive starts once all ranks are
  /// in the store. Until then the same operations wait behind it as with setSources.
  void setAnySource() {
    sources_.clear();
    is_any_ = true;
  }

  /// Whether the message may be shorter than the output, which keeps its contents behind it;
  /// Handle::bytes of an operation that was started says how long it is. Default: no, the message
  /// must have exactly the output's size. One that is longer is an error in either case.
  void setMayBeShorter(bool may_be_shorter) { may_be_shorter_ = may_be_shorter; }

  /// Where the message goes: `elements` elements at `data`, of any trivially copyable type. The
  /// message must have exactly that size (but see setMayBeShorter).
  template <typename T>
  void setOutput(T* data, size_t elements) {
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied byte by byte");
    output_ = memory<void*>(data, elements, sizeof(T));
  }
  /// Likewise, of a type that is known at run time only.
  void setOutput(DataType type, void* data, size_t elements) {
    output_ = memory(data, elements, sizeOf(type));
  }
  /// Likewise, of bytes.
  void setOutput(void* data, size_t bytes) { output_ = memory(data, bytes, 1); }

 private:
  friend class RequestMaker;

  std::vector<int> sources_;
  bool is_any_ = false;
  bool may_be_shorter_ = false;
  Memory<void*> output_;
};

/// Sends one message. Returns when the input may be used again, which does not say that the
/// destination has asked for the message: about 2 MiB from one rank to another wait there until it
/// does (a small message counts as 256 bytes). What is more waits here, and so does a message to
/// this rank itself, until a receive asks for it. A destination that closes the context drops what
/// it has not asked for, and to send to it afterwards is an IoError. A rank may have begun 65,536
/// messages that another one has not asked for; with more the connections between the two break,
/// and are made again, until it asks for some.
///
/// Messages from one rank to another match the receives there in the order of the calls, tag by
/// tag; calls of several threads that use one tag are in no order. The message goes over all rails
/// of the context, by stripes. Thread-safe.
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried. Each of them breaks the context, as it does of a
/// collective. A rail that dies is no error while another one joins the two ranks.
///
/// A receive that asks for another size (or, if the message may be shorter there, for less) breaks
/// the context, too, and both ranks get an error. The send throws this error only if it is still
/// waiting. If the message was small enough to wait at the destination, the send has returned by
/// then, and a later call on this context throws.
NEZHA_EXPORT void send(const SendOptions& options);

/// Starts one send and returns. It goes on by itself, and throws InvalidArgument (nothing was
/// started), and IoError if the context is broken.
[[nodiscard]] NEZHA_EXPORT Handle sendAsync(const SendOptions& options);

/// Receives one message, and returns the rank that it has come from. Receives that were started
/// take messages in the order of their calls: a message goes to the first of its tag that takes it
/// from its rank, also if that one takes it from others, too. (So does MPI.) If several ranks'
/// messages wait, those of any of them may come first. Thread-safe.
///
/// A receive from several ranks connects to all of them. It fails if one of them dies or cannot be
/// reached, but not if one that it is connected to leaves the context in good order, as long as
/// another one is left. A rank leaves in good order if it destroys the context, or if its process
/// ends by exit().
///
/// Throws InvalidArgument (nothing was started), or IoError / TimeoutError (see there), which name
/// the rank, the rail and what was tried; also if the message has another size, which both ranks
/// hear. Each of them breaks the context, as it does of a collective. A rail that dies is no error
/// while another one joins the two ranks.
NEZHA_EXPORT int recv(const RecvOptions& options);

/// Starts one receive and returns. It goes on by itself, and throws InvalidArgument (nothing was
/// started), and IoError if the context is broken. Handle::source has the rank that the message has
/// come from.
[[nodiscard]] NEZHA_EXPORT Handle recvAsync(const RecvOptions& options);

}  // namespace nezha
