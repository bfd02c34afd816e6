#include "bench/benchmark_main.h"

#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>

#include <cstdio>
#include <exception>
#include <string>

#include "bench/measure.h"
#include "bench/report.h"
#include "nezha/redis_store.h"

namespace nezha::bench {
namespace {

using ::gloo::rendezvous::Store;

std::unique_ptr<Store> open_meeting_place(const Options& options) {
  if (!options.shared_path.empty()) {
    return std::make_unique<::gloo::rendezvous::FileStore>(options.shared_path);
  }
  if (!options.store_url.empty()) return std::make_unique<RedisStore>(options.store_url);
  const bool is_ipv6 = options.redis_host.find(':') != std::string::npos;
  const std::string host = is_ipv6 ? "[" + options.redis_host + "]" : options.redis_host;
  return std::make_unique<RedisStore>("redis://" + host + ":" + std::to_string(options.redis_port));
}

std::shared_ptr<Store> open_store(const Options& options) {
  struct Prefixed {  // the one refers to the other, so both live equally long
    explicit Prefixed(const Options& o) : whole(open_meeting_place(o)), store(o.prefix, *whole) {}
    std::unique_ptr<Store> whole;
    ::gloo::rendezvous::PrefixStore store;
  };
  const auto both = std::make_shared<Prefixed>(options);
  return {both, &both->store};
}

void run(const Dialect& dialect, const Options& options, const Connect& connect) {
  const auto runner = connect(options, open_store(options));
  Benchmark benchmark(*runner, options);
  const bool prints = options.rank == 0;
  if (prints) print_header(dialect, options);
  for (const size_t elements : options.elements) {
    const Measurement result = benchmark.measure(elements);
    if (prints) print_row(dialect, options, result);
  }
}

}  // namespace

int benchmark_main(int argc, char** argv, const Dialect& dialect, const Connect& connect) {
  const char* program = dialect.program.c_str();
  std::optional<Options> options;
  try {
    options = parse_options(argc, argv, dialect);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\nTry %s --help.\n", program, error.what(), program);
    return 2;
  }
  if (!options) return 0;
  try {
    run(dialect, *options, connect);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: rank %d: %s\n", program, options->rank, error.what());
    return 1;
  }
}

}  // namespace nezha::bench
