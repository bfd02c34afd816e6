// SPDX-License-Identifier: Apache-2.0
// Rank 0 has work, and hands it to the other ranks: each gets its next piece when its answer to the
// one before has come, whoever is faster. Three ranks on one machine, over its loopback device:
//
//   mkdir /tmp/meeting
//   for rank in 0 1 2; do ./send_recv $rank 3 /tmp/meeting tcp:lo & done; wait
//
// Ranks on several machines share the directory (NFS, say), a new one for each run, and name one
// rail per network: `./send_recv 0 3 DIRECTORY tcp:eth0 tcp:eth1`.
#include <gloo/rendezvous/file_store.h>
#include <nezha/context.h>
#include <nezha/errors.h>
#include <nezha/send_recv.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using Context = std::shared_ptr<nezha::Context>;

constexpr int kPieces = 100;
constexpr int kEnd = -1;  // in place of a piece: there are no more

struct Answer {
  int piece;
  double value;
};

double solve(int piece) {
  double sum = 0;
  for (int i = 1; i <= piece * 1000; ++i) sum += 1.0 / i;
  return sum;
}

int work(const Context& context) {
  nezha::RecvOptions receive(context);
  nezha::SendOptions send(context);
  int piece = 0;
  receive.setSource(0);
  receive.setOutput(&piece, 1);
  send.setDestination(0);
  for (nezha::recv(receive); piece != kEnd; nezha::recv(receive)) {
    const Answer answer{piece, solve(piece)};
    send.setInput(&answer, 1);
    nezha::send(send);
  }
  return 0;
}

void give(const Context& context, int rank, int piece) {
  nezha::SendOptions options(context);
  options.setDestination(rank);
  options.setInput(&piece, 1);
  nezha::send(options);
}

int hand_out(const Context& context) {
  std::vector<int> workers;
  for (int rank = 1; rank < context->size(); ++rank) workers.push_back(rank);
  std::vector<double> values(kPieces);
  int given = 0;
  const auto next = [&given] { return given < kPieces ? given++ : kEnd; };
  for (const int rank : workers) give(context, rank, next());
  for (int answered = 0; answered < kPieces; ++answered) {
    // [any]
    Answer answer;
    nezha::RecvOptions options(context);
    options.setSources(workers);
    options.setOutput(&answer, 1);
    const int rank = nezha::recv(options);
    // [any]
    values[static_cast<size_t>(answer.piece)] = answer.value;
    give(context, rank, next());
  }
  for (int piece = 0; piece < kPieces; ++piece) {
    if (values[static_cast<size_t>(piece)] == solve(piece)) continue;
    std::fprintf(stderr, "the answer to piece %d is wrong\n", piece);
    return 1;
  }
  std::printf("%d pieces are done\n", kPieces);
  return 0;
}

int run(int rank, int size, const char* directory, std::vector<std::string> rails) {
  nezha::ContextOptions options;
  options.rank = rank;
  options.size = size;
  options.rails = std::move(rails);
  auto store = std::make_shared<gloo::rendezvous::FileStore>(directory);
  auto context = nezha::Context::create(store, options);
  return rank == 0 ? hand_out(context) : work(context);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s RANK SIZE DIRECTORY RAIL...\n", argv[0]);
    return 2;
  }
  try {
    return run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3], {argv + 4, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
