// SPDX-License-Identifier: Apache-2.0
// gloo/gatherv.h, which Horovod includes and Debian's libgloo-dev lacks, although libgloo exports
// what belongs there. The compiler is shown this folder only if the package has no such header.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace gloo {

// The options of one gatherv, as libgloo.so.0 knows them: it has been compiled with the members
// below, in their order, and it exports the member functions that are only declared here. The
// element types of input and output must have one size.
class GathervOptions {
 public:
  explicit GathervOptions(const std::shared_ptr<Context>& ranks)
      : context(ranks), timeout(ranks->getTimeout()) {}

  // Sets the block of this rank.
  template <typename T>
  void setInput(std::unique_ptr<transport::UnboundBuffer> buffer) {
    setInput(std::move(buffer), sizeof(T));
  }
  template <typename T>
  void setInput(T* data, size_t count) {
    setInput(static_cast<void*>(data), count, sizeof(T));
  }

  // Sets where the root gets all blocks, one after the other. Other ranks give their own count in
  // its place; nothing is written to their memory.
  template <typename T>
  void setOutput(std::unique_ptr<transport::UnboundBuffer> buffer, std::vector<size_t> counts) {
    setOutput(std::move(buffer), std::move(counts), sizeof(T));
  }
  template <typename T>
  void setOutput(T* data, std::vector<size_t> counts) {
    setOutput(static_cast<void*>(data), std::move(counts), sizeof(T));
  }

  void setRoot(int rank) { root = rank; }
  void setTag(uint32_t number) { tag = number; }
  void setTimeout(std::chrono::milliseconds duration) { timeout = duration; }

 protected:
  // NOLINTBEGIN(readability-identifier-naming): the names are those of Gloo's other options
  std::shared_ptr<Context> context;
  std::unique_ptr<transport::UnboundBuffer> in;
  std::unique_ptr<transport::UnboundBuffer> out;
  std::vector<size_t> elementsPerRank;  // the output's elements
  size_t elementSize = 0;               // bytes
  int root = -1;
  uint32_t tag = 0;
  std::chrono::milliseconds timeout;
  // NOLINTEND(readability-identifier-naming)

  void setElementSize(size_t bytes);
  void setInput(std::unique_ptr<transport::UnboundBuffer> buffer, size_t bytes);
  void setInput(void* data, size_t count, size_t bytes);
  void setOutput(std::unique_ptr<transport::UnboundBuffer> buffer, std::vector<size_t> counts,
                 size_t bytes);
  void setOutput(void* data, std::vector<size_t> counts, size_t bytes);

  friend void gatherv(GathervOptions& opts);
};

void gatherv(GathervOptions& opts);

}  // namespace gloo
