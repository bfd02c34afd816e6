// One rank of a test job: allreduces whose inputs it can recompute, and whose results it checks
// element by element. It prints what happens as JSON lines, so that a test can act in the middle
// of an operation. The rank and the number of ranks come from RANK and SIZE in the environment;
// usage() lists the options.
//
// Events: "joined", "start" and "done" of an operation (those that --report selects), "error" (a
// call threw), "wrong" (a result is), and, if all went well, "end".
// Exit status: 0; 1 an error or a wrong result; 2 a bad command line.
#include <gloo/rendezvous/file_store.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nezha/allreduce.h"
#include "nezha/context.h"
#include "nezha/errors.h"

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// ---- Options -----------------------------------------------------------------------------------

struct Span {  // of milliseconds
  int least = 0;
  int most = 0;
};

struct Late {
  int rank = -1;  // nobody
  int operation = 0;
  int ms = 0;
};

enum class Place { kOut, kIn, kBoth };

struct Options {
  int rank = 0;
  int size = 0;
  std::string store;
  nezha::ContextOptions context;
  nezha::Algorithm algorithm = nezha::Algorithm::kAuto;
  std::vector<size_t> elements;
  int operations = 0;  // 0: one of each size
  std::string until;
  int threads = 1;
  Place place = Place::kBoth;
  bool floats = false;
  Span delay;
  Late late;
  Span pause;
  uint32_t seed = 1;
  int report = 1;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

template <typename T>
T to(const std::string& text) {
  std::istringstream stream(text);
  T value{};
  stream >> value;
  if (!stream || stream.peek() != EOF) throw std::invalid_argument(text);
  return value;
}

template <typename T>
std::vector<T> to_list(const std::string& text, char separator = ',') {
  std::vector<T> list;
  for (const auto& part : split(text, separator)) list.push_back(to<T>(part));
  return list;
}

template <typename T>
T choose(const std::map<std::string, T>& known, const std::string& name) {
  const auto entry = known.find(name);
  if (entry == known.end()) throw std::invalid_argument(name);
  return entry->second;
}

Span to_span(const std::string& text) {
  const auto ends = to_list<int>(text, ':');
  return {ends.at(0), ends.at(1)};
}

struct Option {
  std::string name;
  std::string help;
  std::function<void(const std::string&)> set;
};

const std::map<std::string, nezha::Plan> kPlans = {{"stripe", nezha::Plan::kStripe},
                                                   {"slice", nezha::Plan::kSlice}};
const std::map<std::string, nezha::Algorithm> kAlgorithms = {
    {"auto", nezha::Algorithm::kAuto},
    {"ring", nezha::Algorithm::kRing},
    {"recursive-doubling", nezha::Algorithm::kRecursiveDoubling},
    {"halving-doubling", nezha::Algorithm::kHalvingDoubling},
    {"direct", nezha::Algorithm::kDirect},
    {"bcube", nezha::Algorithm::kBcube}};
const std::map<std::string, Place> kPlaces = {
    {"out", Place::kOut}, {"in", Place::kIn}, {"both", Place::kBoth}};

std::vector<Option> option_table(Options& o) {
  using Text = const std::string&;
  return {
      {"store", "the rendezvous' directory", [&o](Text v) { o.store = v; }},
      {"rails", "URI,...", [&o](Text v) { o.context.rails = split(v, ','); }},
      {"plan", "stripe, slice", [&o](Text v) { o.context.plan = choose(kPlans, v); }},
      {"shares", "of the slices", [&o](Text v) { o.context.shares = to_list<double>(v); }},
      {"algorithm", "auto, ring, recursive-doubling, halving-doubling, direct, bcube",
       [&o](Text v) { o.algorithm = choose(kAlgorithms, v); }},
      {"elements", "the operations' sizes, in turn",
       [&o](Text v) { o.elements = to_list<size_t>(v); }},
      {"operations", "how many of each thread (default: one of each size)",
       [&o](Text v) { o.operations = to<int>(v); }},
      {"until", "go on until rank 0 sees this file (one thread)", [&o](Text v) { o.until = v; }},
      {"threads", "on one context, with as many tags, in an order of the rank's own (1)",
       [&o](Text v) { o.threads = to<int>(v); }},
      {"place", "out, in (the output is the input), both (each size in turn; the default)",
       [&o](Text v) { o.place = choose(kPlaces, v); }},
      {"float", "1: any floats, and \"done\" has a hash of the result's bits",
       [&o](Text v) { o.floats = to<int>(v) != 0; }},
      {"delay", "MIN:MAX ms before joining", [&o](Text v) { o.delay = to_span(v); }},
      {"late", "RANK:OPERATION:MS: this rank sleeps before this operation",
       [&o](Text v) {
         const auto parts = to_list<int>(v, ':');
         o.late = {parts.at(0), parts.at(1), parts.at(2)};
       }},
      {"pause", "MIN:MAX ms before each operation", [&o](Text v) { o.pause = to_span(v); }},
      {"timeout", "ms", [&o](Text v) { o.context.timeout = milliseconds(to<int>(v)); }},
      {"seed", "of what is drawn (1)", [&o](Text v) { o.seed = to<uint32_t>(v); }},
      {"report", "N: each N-th operation is reported (1)", [&o](Text v) { o.report = to<int>(v); }},
  };
}

[[noreturn]] void usage(const std::vector<Option>& table) {
  for (const auto& option : table) {
    std::fprintf(stderr, "  --%-12s %s\n", option.name.c_str(), option.help.c_str());
  }
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  const auto table = option_table(options);
  try {
    for (int i = 1; i < argc; i += 2) {
      const std::string word = argv[i];
      const auto option = std::find_if(table.begin(), table.end(),
                                       [&](const auto& o) { return "--" + o.name == word; });
      if (option == table.end() || i + 1 == argc) throw std::invalid_argument(word);
      option->set(argv[i + 1]);
    }
    const char* rank = std::getenv("RANK");
    const char* size = std::getenv("SIZE");
    if (rank == nullptr || size == nullptr) throw std::invalid_argument("RANK, SIZE");
    options.context.rank = options.rank = to<int>(rank);
    options.context.size = options.size = to<int>(size);
    if (options.elements.empty() || options.store.empty()) {
      throw std::invalid_argument("--elements, --store");
    }
    if (options.threads > 1 && !options.until.empty()) throw std::invalid_argument("--until");
  } catch (const std::logic_error& error) {
    std::fprintf(stderr, "worker: bad: %s\n", error.what());
    usage(table);
  }
  if (options.operations == 0) options.operations = static_cast<int>(options.elements.size());
  return options;
}

// ---- Events ------------------------------------------------------------------------------------

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

// One line at once, whatever the other threads do.
void emit(const std::string& event, const std::string& members) {
  const std::string line = "{\"event\":\"" + event + "\"" + members + "}\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

std::string member(const std::string& name, const std::string& json) {
  return ",\"" + name + "\":" + json;
}

std::string member(const std::string& name, double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.17g", number);
  return member(name, std::string(text.data()));
}

std::string rails_of(const nezha::Context& context) {
  std::string list;
  for (const auto& rail : context.rails()) {
    list += std::string(list.empty() ? "[" : ",") + "{\"name\":" + json_string(rail.name) +
            member("sent", static_cast<double>(rail.bytes_sent)) +
            member("received", static_cast<double>(rail.bytes_received)) +
            member("resent", static_cast<double>(rail.segments_resent)) +
            member("failures", static_cast<double>(rail.failures)) + "}";
  }
  return list + "]";
}

// The members that say what was thrown.
std::string error_members(const std::exception& error) {
  std::string type = "other";
  if (dynamic_cast<const nezha::InvalidArgument*>(&error) != nullptr) type = "InvalidArgument";
  if (dynamic_cast<const nezha::IoError*>(&error) != nullptr) type = "IoError";
  if (dynamic_cast<const nezha::TimeoutError*>(&error) != nullptr) type = "TimeoutError";
  return member("type", json_string(type)) + member("what", json_string(error.what()));
}

double peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::atof(line.c_str() + std::strlen("VmHWM:"));
  }
  return 0;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// ---- What is summed ----------------------------------------------------------------------------

uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

// One rank's input to one operation. A shifted, stale, doubled or missing element changes the sum.
class Input {
 public:
  Input(int rank, int operation, int tag)
      : base_(mix(mix(mix(static_cast<uint32_t>(rank) + 1) + static_cast<uint32_t>(operation)) +
                  static_cast<uint32_t>(tag))) {}

  // 1 to 1024, so that sums are exact in any order.
  float small(size_t element) const { return static_cast<float>((bits(element) >> 22) + 1); }

  // Of many magnitudes and both signs, so that the order of summation shows in the sum's bits.
  float any(size_t element) const {
    static constexpr float kScales[] = {1e-10F, 1e-9F, 3e-8F, 1e-7F, 1e-6F, 3e-4F, 0.1F, 1e3F};
    const uint32_t x = bits(element);
    return static_cast<float>(static_cast<int32_t>(x)) * kScales[mix(x) % 8];
  }

 private:
  uint32_t bits(size_t element) const {
    uint32_t x = static_cast<uint32_t>(element) * 0x9e3779b1U + base_;
    x = (x ^ (x >> 15)) * 0x2c1b3c6dU;
    return x ^ (x >> 12);
  }

  uint32_t base_;
};

// ---- The job -----------------------------------------------------------------------------------

// The operations of one tag run one after the other, whichever threads run them.
class Turns {
 public:
  explicit Turns(int tags) : done_(static_cast<size_t>(tags), 0) {}

  // False: another thread has failed, and it never will be this one's turn.
  bool wait_for(size_t tag, int operation) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || done_[tag] == operation; });
    return !stopped_;
  }
  void pass(size_t tag) {
    const std::lock_guard lock(mutex_);
    ++done_[tag];
    changed_.notify_all();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> done_;
  bool stopped_ = false;
};

class Job {
 public:
  explicit Job(const Options& options) : options_(options), turns_(options.threads) {
    std::seed_seq seeds{options.seed, static_cast<uint32_t>(options.rank)};
    draw_.seed(seeds);
  }

  // Whether all results were right.
  bool run() {
    sleep(options_.delay);
    context_ = nezha::Context::create(std::make_shared<gloo::rendezvous::FileStore>(options_.store),
                                      options_.context);
    emit("joined", "");
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(options_.threads));
    for (int i = 0; i < options_.threads; ++i) {
      threads.emplace_back([this, i] { run_thread(i); });
    }
    for (auto& thread : threads) thread.join();
    if (!ok_) return false;
    const std::string rails = rails_of(*context_);
    context_.reset();  // what is held for others counts, too
    emit("end", member("peak_kib", peak_kib()) + member("rails", rails));
    return true;
  }

 private:
  static constexpr size_t kGuard = 7;  // elements around each buffer; odd, so that it is unaligned
  static constexpr float kUntouched = -12345.0F;
  static constexpr uint32_t kStopTag = 1U << 31;

  void run_thread(int thread) {
    Clock::time_point start;
    std::vector<float> input;
    std::vector<float> output;
    bool stop = false;
    for (int operation = 0; ok_ && !stop; ++operation) {
      const size_t tag = tag_of(thread, operation);
      if (!turns_.wait_for(tag, operation)) return;
      const auto& late = options_.late;
      if (late.rank == options_.rank && late.operation == operation) sleep({late.ms, late.ms});
      sleep(options_.pause);
      try {
        start = Clock::now();
        run_operation(operation, static_cast<int>(tag), input, output);
        stop = options_.until.empty() ? operation + 1 == options_.operations : stop_requested();
      } catch (const std::exception& error) {
        emit("error", name(operation, static_cast<int>(tag)) + error_members(error) +
                          member("seconds", seconds_since(start)));
        ok_ = false;
        turns_.stop();
        return;
      }
      turns_.pass(tag);
    }
  }

  // Of each operation the threads have the tags in an order that differs from rank to rank.
  size_t tag_of(int thread, int operation) const {
    std::vector<size_t> tags(static_cast<size_t>(options_.threads));
    std::iota(tags.begin(), tags.end(), size_t{0});
    std::seed_seq seeds{options_.seed, static_cast<uint32_t>(options_.rank),
                        static_cast<uint32_t>(operation)};
    std::minstd_rand draw(seeds);
    std::shuffle(tags.begin(), tags.end(), draw);
    return tags[static_cast<size_t>(thread)];
  }

  void sleep(const Span& span) {
    if (span.most == 0) return;
    int ms = 0;
    {
      const std::lock_guard lock(draw_mutex_);
      ms = std::uniform_int_distribution<int>(span.least, span.most)(draw_);
    }
    std::this_thread::sleep_for(milliseconds(ms));
  }

  void run_operation(int operation, int tag, std::vector<float>& input,
                     std::vector<float>& output) {
    const auto index = static_cast<size_t>(operation);
    const size_t elements = options_.elements[index % options_.elements.size()];
    const bool again = index / options_.elements.size() % 2 == 1;
    const bool in_place = options_.place == Place::kIn || (options_.place == Place::kBoth && again);
    output.assign(elements + 2 * kGuard, kUntouched);
    input.resize(in_place ? 0 : elements);
    float* result = output.data() + kGuard;
    float* contribution = in_place ? result : input.data();
    const Input own(options_.rank, operation, tag);
    for (size_t i = 0; i < elements; ++i) contribution[i] = value(own, i);

    nezha::AllreduceOptions allreduce(context_);
    if (!in_place) allreduce.setInput(contribution, elements);
    allreduce.setOutput(result, elements);
    allreduce.setTag(static_cast<uint32_t>(tag));
    allreduce.setAlgorithm(options_.algorithm);
    const bool reports = operation % options_.report == 0;
    if (reports) emit("start", name(operation, tag));
    const auto start = Clock::now();
    nezha::allreduce(allreduce);
    const double seconds = seconds_since(start);

    bool right = check_result(operation, tag, result, elements);
    for (size_t i = 0; i < kGuard; ++i) {
      right &= output[i] == kUntouched && output[output.size() - 1 - i] == kUntouched;
    }
    for (size_t i = 0; i < input.size(); ++i) right &= input[i] == value(own, i);
    if (!right) {
      emit("wrong", name(operation, tag));
      ok_ = false;
    }
    if (reports) {
      emit("done", name(operation, tag) + member("seconds", seconds) +
                       member("rails", rails_of(*context_)) +
                       (options_.floats ? member("hash", hash(result, elements)) : ""));
    }
  }

  float value(const Input& input, size_t element) const {
    return options_.floats ? input.any(element) : input.small(element);
  }

  // Says where the first wrong element is.
  bool check_result(int operation, int tag, const float* result, size_t elements) const {
    std::vector<Input> inputs;
    inputs.reserve(static_cast<size_t>(options_.size));
    for (int rank = 0; rank < options_.size; ++rank) inputs.emplace_back(rank, operation, tag);
    size_t wrong = 0;
    for (size_t i = 0; i < elements; ++i) {
      double sum = 0;
      double magnitude = 0;
      for (const auto& input : inputs) {
        const auto v = static_cast<double>(value(input, i));
        sum += v;
        magnitude += std::abs(v);
      }
      // What rounding to float at each addition may cost.
      const double error = options_.floats ? magnitude * 6e-8 * options_.size : 0;
      if (std::abs(static_cast<double>(result[i]) - sum) <= error) continue;
      if (wrong++ == 0) {
        emit("wrong", name(operation, tag) + member("element", static_cast<double>(i)) +
                          member("is", json_string(std::to_string(result[i]))) +
                          member("expected", sum));
      }
    }
    if (wrong > 0) {
      emit("wrong", name(operation, tag) + member("elements", static_cast<double>(wrong)));
    }
    return wrong == 0;
  }

  // Rank 0 alone sees the file, and all ranks learn of it by the same sum.
  bool stop_requested() {
    std::error_code ignored;
    float flag = options_.rank == 0 && std::filesystem::exists(options_.until, ignored) ? 1.0F : 0;
    nezha::AllreduceOptions allreduce(context_);
    allreduce.setOutput(&flag, 1);
    allreduce.setTag(kStopTag);
    allreduce.setAlgorithm(options_.algorithm);
    nezha::allreduce(allreduce);
    return flag != 0;
  }

  static std::string name(int operation, int tag) {
    return member("operation", operation) + member("tag", tag);
  }

  // FNV-1a, of words.
  static std::string hash(const float* data, size_t elements) {
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t i = 0; i < elements; ++i) {
      uint32_t word = 0;
      std::memcpy(&word, data + i, sizeof word);
      hash = (hash ^ word) * 0x100000001b3U;
    }
    return json_string(std::to_string(hash));
  }

  const Options& options_;
  std::shared_ptr<nezha::Context> context_;
  Turns turns_;
  std::atomic<bool> ok_{true};
  std::mutex draw_mutex_;
  std::mt19937 draw_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const auto start = Clock::now();
  try {
    return Job(options).run() ? 0 : 1;
  } catch (const std::exception& error) {
    emit("error", error_members(error) + member("seconds", seconds_since(start)));
    return 1;
  }
}
