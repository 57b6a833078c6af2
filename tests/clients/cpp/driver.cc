// SPDX-License-Identifier: Apache-2.0
//
// The driver of the C++ API; see ../README.md.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.hpp"

namespace {

using Words = std::vector<std::string>;

class Driver {
 public:
  // The results of a command. Throws idclient::Error.
  std::string Obey(const Words& words) {
    const std::string& command = words.at(0);
    if (command == "open") return Open(words);
    if (command == "close") return Close(words);
    if (command == "version") return idclient_version();
    if (!client_.has_value()) Refuse("there is no client");
    if (command == "tag") {
      const std::uint32_t block = words.size() > 3 ? ToNumber<std::uint32_t>(words[3]) : 0;
      tags_[words.at(1)] = client_->tag(words.at(2), {.block_size = block});
      return "";
    }
    const idclient::Tag& tag = Find(words.at(1));
    if (command == "claim") return std::to_string(Claim(tag, words));
    if (command == "many") return Many(tag, ToNumber<std::size_t>(words.at(2)));
    if (command == "range") {
      const idclient::Range range = tag.claim_range(ToNumber<std::size_t>(words.at(2)));
      return std::to_string(range.first) + " " + std::to_string(range.size());
    }
    if (command == "info") return Info(tag);
    if (command == "loop") return Loop(tag, words);
    if (command == "fork") return Fork(tag, ToNumber<std::size_t>(words.at(2)));
    Refuse("there is no such command");
  }

 private:
  [[noreturn]] static void Refuse(const std::string& why) {
    throw idclient::Error(IDCLIENT_INVALID, why);
  }
  template <typename T>
  static T ToNumber(const std::string& word) {
    return static_cast<T>(std::stoull(word));
  }
  static std::string Text(const std::vector<std::uint64_t>& ids) {
    std::string text;
    for (const std::uint64_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
    return text;
  }

  const idclient::Tag& Find(const std::string& handle) const {
    const auto it = tags_.find(handle);
    if (it == tags_.end()) Refuse("there is no such handle");
    return it->second;
  }
  std::string Open(const Words& words) {
    tags_.clear();
    client_.emplace(idclient::Options{
        .socket_path = words.at(1),
        .timeout = std::chrono::milliseconds(ToNumber<std::int64_t>(words.at(2)))});
    return "";
  }
  std::string Close(const Words& words) {
    if (words.size() > 2) {
      static_cast<void>(Find(words[2]));
      tags_[words[2]].close();
    } else {
      tags_.clear();
      client_.reset();
    }
    return "";
  }
  static std::uint64_t Claim(const idclient::Tag& tag, const Words& words) {
    if (words.size() < 3) return tag.claim();
    return tag.claim(std::chrono::milliseconds(ToNumber<std::int64_t>(words[2])));
  }
  static std::string Many(const idclient::Tag& tag, std::size_t count) {
    std::vector<std::uint64_t> ids(count);
    tag.claim_many(ids);
    return Text(ids);
  }
  static std::string Info(const idclient::Tag& tag) {
    static constexpr const char* kModes[] = {"unknown", "segment", "snowflake", "ticket"};
    static constexpr const char* kStates[] = {"no_ring", "ok", "dry", "quarantined", "drained"};
    const idclient_tag_info info = tag.info();
    return std::string(kModes[info.mode]) +
           (info.order == IDCLIENT_ORDER_CPU ? " cpu " : " host ") + kStates[info.state] + " " +
           std::to_string(info.step) + " " + std::to_string(info.available);
  }
  static std::vector<std::uint64_t> ClaimAll(const idclient::Tag& tag, std::size_t count) {
    std::vector<std::uint64_t> ids;
    while (ids.size() < count) {
      const idclient::Expected<std::uint64_t> id = tag.try_claim();
      if (id) {
        ids.push_back(*id);
      } else if (idclient_status_retryable(id.error()) == 0) {
        break;
      }
    }
    return ids;
  }
  static std::string Loop(const idclient::Tag& tag, const Words& words) {
    const auto count = ToNumber<std::size_t>(words.at(2));
    std::vector<std::vector<std::uint64_t>> found(ToNumber<std::size_t>(words.at(3)));
    std::vector<std::thread> threads;
    for (auto& ids : found)
      threads.emplace_back([&ids, &tag, count] { ids = ClaimAll(tag, count); });
    for (std::thread& thread : threads) thread.join();
    std::ofstream file(words.at(4));
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (const std::uint64_t id : found[i]) file << i << ' ' << id << '\n';
    }
    return "";
  }
  static std::string Fork(const idclient::Tag& tag, std::size_t count) {
    int ends[2];
    if (::pipe(ends) != 0) Refuse("no pipe");
    const pid_t child = ::fork();
    std::vector<std::uint64_t> ids = ClaimAll(tag, count);
    const std::size_t bytes = count * sizeof(std::uint64_t);
    if (child == 0) ::_exit(::write(ends[1], ids.data(), bytes) < 0 ? 1 : 0);
    ::close(ends[1]);
    ids.resize(2 * count);
    auto* const of_child = reinterpret_cast<char*>(ids.data() + count);
    std::size_t filled = 0;
    while (filled < bytes) {
      const ssize_t got = ::read(ends[0], of_child + filled, bytes - filled);
      if (got <= 0) break;
      filled += static_cast<std::size_t>(got);
    }
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    ids.resize(count + filled / sizeof(std::uint64_t));
    return Text(ids);
  }

  std::optional<idclient::Client> client_;
  std::map<std::string, idclient::Tag> tags_;
};

}  // namespace

int main() {
  Driver driver;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream text(line);
    Words words;
    for (std::string word; text >> word;) words.push_back(word);
    if (words.empty()) continue;
    try {
      const std::string results = driver.Obey(words);
      std::cout << "ok" << (results.empty() ? "" : " ") << results << std::endl;
    } catch (const idclient::Error& error) {
      std::cout << "error " << idclient_status_name(error.status()) << ' ' << error.what()
                << std::endl;
    }
  }
}
