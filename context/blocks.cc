// SPDX-License-Identifier: Apache-2.0
#include "context/blocks.h"

#include <limits>
#include <memory>
#include <numeric>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/recycled.h"

namespace nezha {
namespace {

using Counts = RecycledVector<size_t>;

bool takes_block(const Operation& op) { return traits(op.collective).takes_block; }
bool gives_block(const Operation& op) { return traits(op.collective).gives_block; }
bool is_exchange(const Operation& op) { return !takes_block(op) && !gives_block(op); }

absl::Status refused(const std::string& why) { return absl::InvalidArgumentError(why); }

// Which of the two vectors this rank has.
struct Use {
  bool input = false;
  bool output = false;
};

// In a gather only the root has an output, and in a scatter only the root has an input. If an input
// is not given, the output's contents are the input. A scatter's root needs no output.
absl::StatusOr<Use> use_of(const GivenVector& input, const GivenVector& output, int rank,
                           const Operation& op) {
  const bool is_rooted = traits(op.collective).to_root != nullptr;
  const bool is_root = !is_rooted || rank == op.root;
  const bool has_input = takes_block(op) || is_root;
  const bool has_output = gives_block(op) || is_root;
  const Use use{has_input && input.is_set, has_output && output.is_set};
  const bool is_in_place = has_output && !gives_block(op);
  if (has_input && !use.input && !is_in_place) return refused("there is no input; set one");
  const bool needs_output = has_output && !(is_rooted && is_root && gives_block(op));
  if (needs_output && !use.output) return refused("there is no output; set one");
  return use;
}

absl::StatusOr<Counts> counts_of(const GivenVector& vector, absl::string_view what, size_t ranks) {
  if (vector.has_counts) {
    if (vector.counts.size() == ranks) return Counts(vector.counts.begin(), vector.counts.end());
    return refused(
        absl::StrCat("the ", what, " has counts for ", vector.counts.size(), " ranks of ", ranks));
  }
  if (vector.elements % ranks == 0) return Counts(ranks, vector.elements / ranks);
  return refused(absl::StrCat("the ", what, " has ", vector.elements,
                              " elements, which cannot be divided into equal blocks for ", ranks,
                              " ranks; give a multiple of ", ranks, ", or counts"));
}

// Returns the counts that are known to a rank which sees only its own block.
Counts own_count(const Operation& op, size_t elements, size_t rank, size_t ranks) {
  Counts counts(ranks, traits(op.collective).is_length_known ? elements : 0);
  counts[rank] = elements;
  return counts;
}

// Sets the vector's length, and returns where its blocks are.
absl::StatusOr<std::shared_ptr<const Blocks>> blocks_of(const Counts& counts, Operation& op) {
  const size_t most = std::numeric_limits<ptrdiff_t>::max() / op.element_size;
  op.elements = 0;
  for (const size_t count : counts) {
    if (count > most - op.elements) return refused("the blocks are more than memory has");
    op.elements += count;
  }
  return std::allocate_shared<const Blocks>(RecyclingAllocator<Blocks>(), counts, op.element_size);
}

absl::Status check_block(const GivenVector& vector, absl::string_view what, size_t count) {
  if (vector.elements == count) return absl::OkStatus();
  return refused(absl::StrCat("the ", what, " has ", vector.elements,
                              " elements, and this rank's block has ", count));
}

// An alltoall has two vectors of blocks.
absl::Status set_exchanged(const GivenVector& input, const GivenVector& output, size_t rank,
                           size_t ranks, Operation& op) {
  const auto received = counts_of(output, "output", ranks);
  if (!received.ok()) return received.status();
  auto blocks = blocks_of(*received, op);
  if (!blocks.ok()) return blocks.status();
  op.blocks = op.received_blocks = *blocks;
  if (!input.is_set) return absl::OkStatus();
  const size_t elements = op.elements;
  const auto sent = counts_of(input, "input", ranks);
  if (!sent.ok()) return sent.status();
  blocks = blocks_of(*sent, op);
  if (!blocks.ok()) return blocks.status();
  op.blocks = *blocks;
  if (traits(op.collective).is_length_known && op.elements != elements) {
    return refused(absl::StrCat("the input has ", op.elements, " elements and the output has ",
                                elements, "; give both the same number"));
  }
  if ((*sent)[rank] == (*received)[rank]) return absl::OkStatus();
  return refused(absl::StrCat("by its counts this rank sends itself ", (*sent)[rank],
                              " elements but receives ", (*received)[rank],
                              " from itself; give the same count for both"));
}

// Returns an error if the vector has counts although it may not.
absl::Status check_counts(const GivenVector& vector, absl::string_view what, bool is_block,
                          const Operation& op) {
  if (!vector.has_counts) return absl::OkStatus();
  if (is_block)
    return refused(absl::StrCat("the ", what, " is a single block, which takes no counts"));
  if (traits(op.collective).has_counts) return absl::OkStatus();
  return refused(absl::StrCat("the ", what, " has counts, but only ", traits(op.collective).name,
                              "v takes counts"));
}

absl::Status set_blocks(const GivenVector& input, const GivenVector& output, const Use& use,
                        size_t rank, size_t ranks, Operation& op) {
  absl::Status status;
  if (use.input) status.Update(check_counts(input, "input", takes_block(op), op));
  if (use.output) status.Update(check_counts(output, "output", gives_block(op), op));
  if (!status.ok()) return status;
  if (is_exchange(op)) return set_exchanged(input, output, rank, ranks, op);
  absl::StatusOr<Counts> counts;
  if (use.output && !gives_block(op)) {
    counts = counts_of(output, "output", ranks);
  } else if (use.input && !takes_block(op)) {
    counts = counts_of(input, "input", ranks);
  } else {
    counts = own_count(op, use.input ? input.elements : output.elements, rank, ranks);
  }
  if (!counts.ok()) return counts.status();
  if (use.input && takes_block(op)) status.Update(check_block(input, "input", (*counts)[rank]));
  if (use.output && gives_block(op)) status.Update(check_block(output, "output", (*counts)[rank]));
  auto blocks = blocks_of(*counts, op);
  status.Update(blocks.status());
  if (status.ok()) op.blocks = *blocks;
  return status;
}

// A block may be at the same address in the input and the output, an alltoall's two vectors may be
// the same, and a reduce_scatter's output may be at the beginning of its input.
absl::Status check_overlap(const Operation& op, int rank) {
  const size_t in = input_bytes(op, rank);
  const size_t out = output_bytes(op, rank);
  if (op.input == nullptr || op.output == nullptr || in == 0 || out == 0) return absl::OkStatus();
  if (op.input >= op.output + out || op.output >= op.input + in) return absl::OkStatus();
  const bool may_begin_alike = is_exchange(op) || op.collective == Collective::kReduceScatter;
  if (may_begin_alike && op.input == op.output) return absl::OkStatus();
  const size_t own = op.blocks->block(rank).offset;
  if (!is_exchange(op) && op.input_at(own) == op.output_at(own)) return absl::OkStatus();
  return refused("the input and the output overlap without being the same");
}

}  // namespace

size_t input_bytes(const Operation& op, int rank) {
  return takes_block(op) ? op.blocks->block(rank).length : op.bytes();
}

size_t output_bytes(const Operation& op, int rank) {
  return gives_block(op) ? op.blocks->block(rank).length : op.blocks_received().bytes();
}

absl::Status place_blocks(const GivenVector& input, const GivenVector& output, int rank, int size,
                          Operation& op) {
  const auto use = use_of(input, output, rank, op);
  if (!use.ok()) return use.status();
  if (use->input && use->output && input.type != output.type) {
    return refused("the input and the output have different element types");
  }
  op.type = use->input ? input.type : output.type;
  op.element_size = sizeOf(op.type);
  if (op.element_size == 0) {
    return refused(absl::StrCat("there is no type ", static_cast<int>(op.type)));
  }
  absl::Status status =
      set_blocks(input, output, *use, static_cast<size_t>(rank), static_cast<size_t>(size), op);
  if (!status.ok()) return status;
  if (use->input && input.data == nullptr && input_bytes(op, rank) > 0) {
    return refused("the input is a null pointer");
  }
  if (use->output && output.data == nullptr && output_bytes(op, rank) > 0) {
    return refused("the output is a null pointer");
  }
  const size_t own = op.blocks->block(rank).offset;
  if (use->output) {
    op.output = const_cast<std::byte*>(output.data);  // the caller's output is not const
    op.output_offset = gives_block(op) ? own : 0;
  }
  if (use->input) {
    op.input = input.data;
    op.input_offset = takes_block(op) ? own : 0;
  } else if (use->output && !gives_block(op)) {
    op.input = op.output;  // in place
  }
  return check_overlap(op, rank);
}

}  // namespace nezha
