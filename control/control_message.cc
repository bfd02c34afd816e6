// SPDX-License-Identifier: Apache-2.0
#include "control/control_message.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/hosts/choice.h"
#include "transport/wire.h"

namespace nezha::control_message {
namespace {

constexpr size_t kWordBytes = 8;
constexpr size_t kUsual = 1 << 10;  // bytes of a usual message, which has ten readings

class Writer {
 public:
  explicit Writer(size_t kind) {
    bytes_.reserve(kUsual);
    put(kind);
  }

  void put(uint64_t word) {
    for (size_t i = 0; i < kWordBytes; ++i) {
      bytes_.push_back(static_cast<char>(static_cast<uint8_t>(word >> (8 * i))));
    }
  }
  void put(const OperationId& operation) {
    put(operation.tag);
    put(operation.ordinal);
  }
  void put(const Range& range) {
    put(range.offset);
    put(range.length);
  }
  void put(const ChunkMap& map) {
    put(map.size());
    for (const Range& range : map) put(range);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads words. A read past the end, or of a value that its type cannot hold, returns 0 and sets
// bad().
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes), bad_(bytes.size() % kWordBytes != 0) {}

  template <typename T = uint64_t>
  T get() {
    if (words_left() == 0) return refuse<T>();
    uint64_t word = 0;
    for (size_t i = 0; i < kWordBytes; ++i) {
      word |= uint64_t{static_cast<uint8_t>(bytes_[i])} << (8 * i);
    }
    bytes_.remove_prefix(kWordBytes);
    return word > uint64_t{std::numeric_limits<T>::max()} ? refuse<T>() : static_cast<T>(word);
  }
  OperationId get_operation() {
    OperationId operation;
    operation.tag = get<uint32_t>();
    operation.ordinal = get();
    return operation;
  }
  std::vector<OperationId> get_operations() {
    std::vector<OperationId> operations;
    operations.reserve(words_left() / 2);
    while (words_left() > 0) operations.push_back(get_operation());
    return operations;
  }
  int get_lane(int lanes) {
    const auto lane = get<int>();
    require(lane < lanes);
    return lane;
  }
  // Reads the number of items that follow, each of which has at least `words` words.
  size_t get_count(size_t words) {
    const auto count = get<size_t>();
    require(count <= words_left() / words);
    return bad_ ? 0 : count;
  }
  Range get_range() {
    Range range;
    range.offset = get<size_t>();
    range.length = get<size_t>();
    require(range.length > 0 && range.offset <= wire::kMaxMessage &&
            range.length <= wire::kMaxMessage);
    return range;
  }
  ChunkMap get_map() {
    ChunkMap map;
    for (size_t left = get_count(2); left > 0; --left) {
      const Range range = get_range();
      require(map.empty() || map.back().offset + map.back().length < range.offset);
      map.push_back(range);
    }
    return map;
  }
  void require(bool holds) { bad_ |= !holds; }

  size_t words_left() const { return bad_ ? 0 : bytes_.size() / kWordBytes; }
  bool bad() const { return bad_; }

 private:
  template <typename T>
  T refuse() {
    bad_ = true;
    return 0;
  }

  absl::string_view bytes_;
  bool bad_;
};

// ---- Each kind ---------------------------------------------------------------------------------

void write(Writer& out, const Lanes& lanes) { out.put(lanes.live); }

void write(Writer& out, const Readings& message) {
  for (const Reading& reading : message.readings) {
    out.put(reading.operation);
    out.put(reading.bytes);
    out.put(reading.allocation);
    for (const Nanos time : reading.lanes) out.put(static_cast<uint64_t>(time));
    out.put(static_cast<uint64_t>(reading.idle));
  }
}

void write(Writer& out, const Prepare& prepare) { out.put(prepare.plan); }

void write(Writer& out, const Report& report) {
  out.put(report.plan);
  for (const OperationId& operation : report.operations) out.put(operation);
}

void write(Writer& out, const Commit& commit) {
  out.put(commit.plan);
  out.put(commit.engines);
  out.put(commit.changes.size());
  for (const AllocationChange& change : commit.changes) {
    out.put(change.size_class);
    out.put(change.number);
    for (const uint32_t part : change.allocation) out.put(part);
    out.put(static_cast<uint64_t>(change.algorithm));
    out.put(uint64_t{change.is_return});
  }
  for (const OperationId& operation : commit.keep) out.put(operation);
}

void write(Writer& out, const Lost& lost) { out.put(static_cast<uint64_t>(lost.lane)); }

void write(Writer& out, const Freeze& freeze) {
  out.put(freeze.epoch);
  out.put(static_cast<uint64_t>(freeze.lane));
}

void write(Writer& out, const Frozen& frozen) {
  out.put(frozen.epoch);
  for (const FrozenPart& part : frozen.parts) {
    out.put(part.operation);
    out.put(part.final);
    out.put(part.missing);
  }
}

void write(Writer& out, const Recover& recover) {
  out.put(recover.epoch);
  for (const Repair& repair : recover.repairs) {
    out.put(repair.operation);
    out.put(repair.pieces.size());
    for (const Repair::Piece& piece : repair.pieces) {
      out.put(piece.range);
      out.put(static_cast<uint64_t>(piece.source) + 1);  // 0: nobody
    }
  }
}

Lanes read_lanes(Reader& in, int lanes) {
  Lanes message;
  message.live = in.get<LaneSet>();
  in.require((message.live & ~all_lanes(lanes)) == 0);
  return message;
}

Readings read_readings(Reader& in, int lanes) {
  Readings message;
  while (in.words_left() > 0) {
    Reading reading;
    reading.operation = in.get_operation();
    reading.bytes = in.get();
    reading.allocation = in.get<uint32_t>();
    for (int lane = 0; lane < lanes; ++lane) reading.lanes.push_back(in.get<Nanos>());
    reading.idle = in.get<Nanos>();
    message.readings.push_back(std::move(reading));
  }
  return message;
}

Report read_report(Reader& in) {
  Report message;
  message.plan = in.get<uint32_t>();
  message.operations = in.get_operations();
  return message;
}

AllocationChange read_change(Reader& in, int lanes) {
  AllocationChange change;
  change.size_class = in.get<SizeClass>();
  change.number = in.get<uint32_t>();
  for (int lane = 0; lane < lanes; ++lane) change.allocation.push_back(in.get<uint32_t>());
  change.algorithm = static_cast<Algorithm>(in.get<uint8_t>());
  in.require(change.algorithm == Algorithm::kAuto || sums_over_tree(change.algorithm));
  change.is_return = in.get<bool>();
  const auto sum = std::accumulate(change.allocation.begin(), change.allocation.end(), uint64_t{0});
  in.require(change.size_class < kSizeClasses && change.number > 0 && sum == SliceBounds::kWhole);
  return change;
}

Commit read_commit(Reader& in, int lanes) {
  Commit message;
  message.plan = in.get<uint32_t>();
  message.engines = in.get<LaneSet>();
  in.require((message.engines & ~all_lanes(lanes)) == 0);
  const auto changes = in.get();
  in.require(changes <= in.words_left());
  for (uint64_t i = 0; i < changes && !in.bad(); ++i) {
    message.changes.push_back(read_change(in, lanes));
  }
  message.keep = in.get_operations();
  return message;
}

Freeze read_freeze(Reader& in, int lanes) {
  Freeze message;
  message.epoch = in.get<uint32_t>();
  message.lane = in.get_lane(lanes);
  return message;
}

Frozen read_frozen(Reader& in) {
  Frozen message;
  message.epoch = in.get<uint32_t>();
  while (in.words_left() > 0) {
    FrozenPart& part = message.parts.emplace_back();
    part.operation = in.get_operation();
    part.final = in.get_map();
    part.missing = in.get_map();
  }
  return message;
}

Recover read_recover(Reader& in) {
  Recover message;
  message.epoch = in.get<uint32_t>();
  while (in.words_left() > 0) {
    Repair& repair = message.repairs.emplace_back();
    repair.operation = in.get_operation();
    size_t end = 0;
    for (size_t left = in.get_count(3); left > 0; --left) {
      Repair::Piece& piece = repair.pieces.emplace_back();
      piece.range = in.get_range();
      piece.source = in.get<int>() - 1;
      in.require(piece.range.offset >= end);
      end = piece.range.offset + piece.range.length;
    }
  }
  return message;
}

}  // namespace

std::string encode(const Message& message) {
  Writer out(message.index());
  std::visit([&](const auto& kind) { write(out, kind); }, message);
  return out.take();
}

absl::StatusOr<Message> decode(absl::string_view bytes, int lanes) {
  Reader in(bytes);
  const auto kind = in.get();
  Message message;
  switch (kind) {
    case 0:
      message = read_lanes(in, lanes);
      break;
    case 1:
      message = read_readings(in, lanes);
      break;
    case 2:
      message = Prepare{in.get<uint32_t>()};
      break;
    case 3:
      message = read_report(in);
      break;
    case 4:
      message = read_commit(in, lanes);
      break;
    case 5:
      message = Lost{in.get_lane(lanes)};
      break;
    case 6:
      message = read_freeze(in, lanes);
      break;
    case 7:
      message = read_frozen(in);
      break;
    case 8:
      message = read_recover(in);
      break;
    default:
      in.require(false);
  }
  if (!in.bad() && in.words_left() == 0) return message;
  return absl::InvalidArgumentError(absl::StrCat("it sent a malformed control message of kind ",
                                                 kind, " and ", bytes.size(), " bytes"));
}

}  // namespace nezha::control_message
