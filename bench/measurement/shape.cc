// SPDX-License-Identifier: Apache-2.0
#include "bench/measurement/shape.h"

#include <map>

namespace nezha::bench {

const CollectiveKind& kind_of(const std::string& collective) {
  static const auto& kinds = *new std::map<std::string, CollectiveKind>{
      {"allreduce", {.name = "allreduce", .reduces = true}},
      {"reduce", {.name = "reduce", .reduces = true, .is_rooted = true}},
      {"broadcast", {.name = "broadcast", .is_rooted = true}},
      {"barrier", {.name = "barrier"}},
      {"allgather", {.name = "allgather", .takes_block = true}},
      {"reduce_scatter", {.name = "reduce_scatter", .reduces = true, .gives_block = true}},
      {"alltoall", {.name = "alltoall", .is_exchange = true}},
      {"gather", {.name = "gather", .takes_block = true, .is_rooted = true}},
      {"scatter", {.name = "scatter", .gives_block = true, .is_rooted = true}},
      {"send_recv", {.name = "send_recv", .is_shift = true}},
      {"ping_pong", {.name = "ping_pong", .is_shift = true}},
  };
  return kinds.at(collective);
}

Shape shape_of(const std::string& collective, int rank, int size, size_t elements) {
  const CollectiveKind& kind = kind_of(collective);
  const size_t before = static_cast<size_t>(rank) * elements;
  const bool is_root = rank == 0;
  Shape shape;
  shape.vector = kind.has_blocks() ? static_cast<size_t>(size) * elements : elements;
  if (kind.takes_block) {
    shape.input = elements;
    if (kind.is_rooted && !is_root) return shape;
    shape.output = shape.vector;
    shape.overlay = before;
    for (int from = 0; from < size; ++from) shape.runs.push_back({from, 0, elements});
  } else if (kind.gives_block) {
    shape.input = kind.is_rooted && !is_root ? 0 : shape.vector;
    shape.output = elements;
    shape.overlay = kind.is_rooted && !is_root ? 0 : before;
    shape.runs = {{kind.reduces ? -1 : 0, before, elements}};
  } else if (kind.is_exchange) {
    shape.input = shape.output = shape.vector;
    for (int from = 0; from < size; ++from) shape.runs.push_back({from, before, elements});
  } else if (kind.is_shift) {
    shape.input = shape.output = elements;
    shape.runs = {{(rank + size - 1) % size, 0, elements}};
  } else {
    shape.input = shape.output = elements;
    const bool has_result = !kind.reduces || !kind.is_rooted || is_root;
    if (has_result) shape.runs = {{kind.reduces ? -1 : 0, 0, elements}};
  }
  return shape;
}

}  // namespace nezha::bench
