// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/wire/messages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "flare_offload/wire/frame.h"

namespace nezha::flare::message {
namespace {

constexpr size_t kMaxReason = 4096;  // bytes
constexpr Nanos kMostLease = 24 * 3600 * kSecond;

// ---- Encoding ----------------------------------------------------------------------------------

std::string line(absl::string_view word, const Request& request) {
  return absl::StrCat(word, " ", request.job.str(), " ", request.attempt);
}

std::string with(absl::string_view word, const std::vector<uint32_t>& sessions) {
  return absl::StrCat(word, sessions.empty() ? "" : " ", absl::StrJoin(sessions, " "));
}

// Returns the reason on a single line, as a message requires.
std::string flat(absl::string_view reason) {
  std::string text(reason.substr(0, kMaxReason));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string str(const std::optional<Address>& group) { return group ? group->str() : "-"; }

struct Encoder {
  std::string operator()(const Join& m) const {
    return absl::StrCat(line("join", m.request), " ", m.rank, " ", m.size, " ", m.address.str(),
                        " ", m.payload, " ", m.window, " ", m.streams, " ", m.multicast ? 1 : 0,
                        " ", m.reproducible ? 1 : 0);
  }
  std::string operator()(const Renew& m) const {
    return absl::StrCat(line("renew", m.request), " ", m.rank, " ", m.size, " ", m.session, " ",
                        m.streams, " ", str(m.group));
  }
  std::string operator()(const Leave& m) const {
    return absl::StrCat(line("leave", m.request), " ", m.rank);
  }
  std::string operator()(const Granted& m) const {
    return absl::StrCat(line("granted", m.request), " ", m.session, " ", m.streams, " ",
                        m.generation, " ", to_hex(m.key), " ", m.address.str(), " ", m.child, " ",
                        m.window, " ") +
           absl::StrCat(m.payload, " ", m.lease / kMillisecond, " ", str(m.group));
  }
  std::string operator()(const Rejected& m) const {
    return absl::StrCat(line("rejected", m.request), " ", flat(m.reason));
  }
  std::string operator()(const Lost& m) const {
    return absl::StrCat(line("lost", m.request), " ", flat(m.reason));
  }
  std::string operator()(const Install& m) const {
    return absl::StrCat("install ", m.streams, " ", m.lease / kMillisecond, "\n", m.spec);
  }
  std::string operator()(const Extend& m) const {
    return with(absl::StrCat("extend ", m.lease / kMillisecond), m.sessions);
  }
  std::string operator()(const Remove& m) const { return with("remove", m.sessions); }
  std::string operator()(const Has& m) const {
    return with(absl::StrCat("has ", m.memory), m.sessions);
  }
  std::string operator()(const Installed& m) const { return absl::StrCat("installed ", m.session); }
  std::string operator()(const Refused& m) const {
    return absl::StrCat("refused ", m.session, " ", flat(m.reason));
  }
  std::string operator()(const Expired& m) const { return with("expired", m.sessions); }
};

// ---- Parsing -----------------------------------------------------------------------------------

// Takes a message apart from its front. After an error everything that follows is wrong, too.
class Words {
 public:
  explicit Words(absl::string_view text) : text_(text) {}

  absl::string_view word() {
    const size_t end = std::min(text_.find_first_of(" \n"), text_.size());
    const absl::string_view word = text_.substr(0, end);
    is_good_ = is_good_ && !word.empty();
    text_.remove_prefix(std::min(end + 1, text_.size()));
    return word;
  }
  absl::string_view rest() { return std::exchange(text_, {}); }
  template <typename T>
  void number(T& value, uint64_t least, uint64_t most) {
    uint64_t read = 0;
    const bool is_one = absl::SimpleAtoi(word(), &read) && read >= least && read <= most;
    is_good_ = is_good_ && is_one;
    value = is_one ? static_cast<T>(read) : T{};
  }
  void address(Address& value) { take(Address::parse(word()), value); }
  void group(std::optional<Address>& value) {
    const absl::string_view text = word();
    if (text == "-") return;
    take(Address::parse(text), value.emplace());
    is_good_ = is_good_ && value->is_multicast();
  }
  void key(Key& value) { take(parse_key(word()), value); }
  void request(Request& value) {
    take(UniqueId::parse(word()), value.job);
    number(value.attempt, 0, UINT32_MAX);
  }
  void lease(Nanos& value) {
    number(value, 1, kMostLease / kMillisecond);
    value *= kMillisecond;
  }
  void rank(int& rank, int& size) {
    number(rank, 0, kMaxRanks - 1);
    number(size, 1, kMaxRanks);
    is_good_ = is_good_ && rank < size;
  }
  void streams(int& value) { number(value, 1, kMaxStreams); }
  void sessions(std::vector<uint32_t>& value) {
    while (is_good_ && !text_.empty()) number(value.emplace_back(), 0, UINT32_MAX);
  }
  void reason(std::string& value) { value = std::string(rest().substr(0, kMaxReason)); }
  // Returns whether everything was valid and nothing is left.
  bool is_over() const { return is_good_ && text_.empty(); }

 private:
  template <typename T>
  void take(absl::StatusOr<T> read, T& value) {
    is_good_ = is_good_ && read.ok();
    if (read.ok()) value = *std::move(read);
  }

  absl::string_view text_;
  bool is_good_ = true;
};

Message read(Words& words, Join m) {
  words.request(m.request);
  words.rank(m.rank, m.size);
  words.address(m.address);
  words.number(m.payload, 8, kMaxPayload);
  words.number(m.window, 1, UINT16_MAX + 1);
  words.streams(m.streams);
  words.number(m.multicast, 0, 1);
  words.number(m.reproducible, 0, 1);
  return m;
}
Message read(Words& words, Renew m) {
  words.request(m.request);
  words.rank(m.rank, m.size);
  words.number(m.session, 0, UINT32_MAX);
  words.streams(m.streams);
  words.group(m.group);
  return m;
}
Message read(Words& words, Leave m) {
  words.request(m.request);
  words.number(m.rank, 0, kMaxRanks - 1);
  return m;
}
Message read(Words& words, Granted m) {
  words.request(m.request);
  words.number(m.session, 0, UINT32_MAX);
  words.streams(m.streams);
  words.number(m.generation, 0, UINT16_MAX);
  words.key(m.key);
  words.address(m.address);
  words.number(m.child, 0, kMaxChildren - 1);
  words.number(m.window, 1, UINT16_MAX + 1);
  words.number(m.payload, 8, kMaxPayload);
  words.lease(m.lease);
  words.group(m.group);
  return m;
}
Message read(Words& words, Install m) {
  words.streams(m.streams);
  words.lease(m.lease);
  m.spec = std::string(words.rest());
  return m;
}
Message read(Words& words, Extend m) {
  words.lease(m.lease);
  words.sessions(m.sessions);
  return m;
}
Message read(Words& words, Has m) {
  words.number(m.memory, 0, UINT64_MAX);
  words.sessions(m.sessions);
  return m;
}
Message read(Words& words, Installed m) {
  words.number(m.session, 0, UINT32_MAX);
  return m;
}
Message read(Words& words, Refused m) {
  words.number(m.session, 0, UINT32_MAX);
  words.reason(m.reason);
  return m;
}
template <typename SessionList>
Message read_sessions(Words& words, SessionList m) {
  words.sessions(m.sessions);
  return m;
}
template <typename Answer>
Message read_answer(Words& words, Answer m) {
  words.request(m.request);
  words.reason(m.reason);
  return m;
}

struct Kind {
  absl::string_view word;
  Message (*read)(Words& words);
};

constexpr Kind kKinds[] = {
    {"join", [](Words& words) { return read(words, Join()); }},
    {"renew", [](Words& words) { return read(words, Renew()); }},
    {"leave", [](Words& words) { return read(words, Leave()); }},
    {"granted", [](Words& words) { return read(words, Granted()); }},
    {"rejected", [](Words& words) { return read_answer(words, Rejected()); }},
    {"lost", [](Words& words) { return read_answer(words, Lost()); }},
    {"install", [](Words& words) { return read(words, Install()); }},
    {"extend", [](Words& words) { return read(words, Extend()); }},
    {"remove", [](Words& words) { return read_sessions(words, Remove()); }},
    {"has", [](Words& words) { return read(words, Has()); }},
    {"installed", [](Words& words) { return read(words, Installed()); }},
    {"refused", [](Words& words) { return read(words, Refused()); }},
    {"expired", [](Words& words) { return read_sessions(words, Expired()); }},
};

}  // namespace

std::string job_of(const Request& request) {
  return absl::StrCat("job ", request.job.str().substr(0, 8));
}

std::string name_of(const Request& request) {
  return absl::StrCat(job_of(request), " (attempt ", request.attempt, ")");
}

std::string to_hex(const Key& key) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(key.data()), key.size()});
}

std::string encode(const Message& message) { return std::visit(Encoder(), message); }

absl::StatusOr<Message> parse(absl::string_view text) {
  Words words(text);
  const absl::string_view word = words.word();
  for (const Kind& kind : kKinds) {
    if (kind.word != word) continue;
    Message message = kind.read(words);
    if (words.is_over()) return message;
    return absl::InvalidArgumentError(absl::StrCat("a malformed message '", word, "'"));
  }
  return absl::InvalidArgumentError("a message of an unknown kind");
}

}  // namespace nezha::flare::message
