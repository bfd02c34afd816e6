#include "bench/meeting.h"

#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>

#include <set>
#include <stdexcept>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace nezha::bench {
namespace {

constexpr char kSeparator = '\n';

std::shared_ptr<::gloo::rendezvous::Store> open_store(const Options& options) {
  struct PrefixedFiles {  // the one refers to the other, so both live equally long
    explicit PrefixedFiles(const Options& o) : files(o.shared_path), store(o.prefix, files) {}
    ::gloo::rendezvous::FileStore files;
    ::gloo::rendezvous::PrefixStore store;
  };
  const auto both = std::make_shared<PrefixedFiles>(options);
  return {both, &both->store};
}

std::string key_of(const std::string& topic, int rank) {
  return absl::StrCat("benchmark-", topic, "-", rank);
}

std::vector<std::string> values_of(const Settings& settings) {
  std::vector<std::string> values;
  for (const auto& [name, value] : settings) values.push_back(value);
  return values;
}

}  // namespace

Meeting::Meeting(const Options& options) : options_(options), store_(open_store(options)) {}

void Meeting::agree(const std::string& topic, const Settings& settings) {
  const std::vector<std::string> mine = values_of(settings);
  publish(topic, absl::StrJoin(mine, std::string(1, kSeparator)));
  // One by one, as those beyond the first that differs may not exist: the size is a setting too.
  for (int rank = 0; rank < options_.size; ++rank) {
    const std::vector<std::string> theirs = absl::StrSplit(read(topic, rank), kSeparator);
    if (theirs.size() != mine.size()) {
      throw std::runtime_error(absl::StrCat("rank ", rank, " is another version of the program"));
    }
    for (size_t i = 0; i < mine.size(); ++i) {
      if (mine[i] == theirs[i]) continue;
      throw std::runtime_error(absl::StrCat("the ranks' command lines differ: ", settings[i].first,
                                            " is ", mine[i], " here and ", theirs[i], " at rank ",
                                            rank));
    }
  }
}

std::vector<std::string> Meeting::union_of(const std::string& topic,
                                           const std::vector<std::string>& names) {
  publish(topic, absl::StrJoin(names, std::string(1, kSeparator)));
  std::set<std::string> all;
  for (int rank = 0; rank < options_.size; ++rank) {
    const std::vector<std::string> theirs = absl::StrSplit(read(topic, rank), kSeparator);
    all.insert(theirs.begin(), theirs.end());
  }
  return {all.begin(), all.end()};
}

void Meeting::publish(const std::string& topic, const std::string& text) {
  try {
    store_->set(key_of(topic, options_.rank), {text.begin(), text.end()});
  } catch (const std::exception& error) {
    if (absl::StrContains(error.what(), "already exists")) {
      throw std::runtime_error(absl::StrCat("an earlier run used --prefix ", options_.prefix,
                                            " in --shared-path ", options_.shared_path,
                                            ": take a new --prefix"));
    }
    throw std::runtime_error(
        absl::StrCat("cannot write to --shared-path ", options_.shared_path, ": ", error.what()));
  }
}

std::string Meeting::read(const std::string& topic, int rank) {
  const std::string key = key_of(topic, rank);
  try {
    store_->wait({key}, options_.timeout);
  } catch (const std::exception&) {
    throw std::runtime_error(absl::StrCat("rank ", rank, " has not come to --shared-path ",
                                          options_.shared_path, ", --prefix ", options_.prefix,
                                          ", within ", options_.timeout.count(), " ms"));
  }
  const auto text = store_->get(key);
  return {text.begin(), text.end()};
}

}  // namespace nezha::bench
