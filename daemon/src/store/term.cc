// SPDX-License-Identifier: Apache-2.0
#include "store/term.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace idd::daemon {
namespace {

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::optional<std::uint64_t> ParseNumber(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number == 0) return std::nullopt;
  return number;
}

}  // namespace

std::string Term::Text() const { return number == 0 ? "" : std::to_string(number) + " " + witness; }

std::optional<Term> ParseTerm(std::string_view text) {
  if (text.empty()) return Term();
  const std::vector<std::string_view> words = Words(text);
  if (words.size() != 2 || words[1].empty()) return std::nullopt;
  const std::optional<std::uint64_t> number = ParseNumber(words[0]);
  if (!number.has_value()) return std::nullopt;
  return Term{.number = *number, .witness = std::string(words[1])};
}

bool WitnessList::Has(std::string_view name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string WitnessList::Text() const {
  if (version == 0) return "";
  std::string text = std::to_string(version) + " " + asked_in.Text();
  for (const std::string& name : names) text += " " + name;
  return text;
}

std::optional<WitnessList> ParseWitnessList(std::string_view text) {
  if (text.empty()) return WitnessList();
  const std::vector<std::string_view> words = Words(text);
  if (words.size() < 4 || words.size() > 3 + kMostWitnesses) return std::nullopt;
  const std::optional<std::uint64_t> version = ParseNumber(words[0]);
  const std::optional<std::uint64_t> number = ParseNumber(words[1]);
  if (!version.has_value() || !number.has_value()) return std::nullopt;
  WitnessList list{.version = *version,
                   .asked_in = {.number = *number, .witness = std::string(words[2])},
                   .names = {words.begin() + 3, words.end()}};
  const bool is_sound =
      std::is_sorted(list.names.begin(), list.names.end()) &&
      std::adjacent_find(list.names.begin(), list.names.end()) == list.names.end() &&
      std::none_of(words.begin(), words.end(), [](std::string_view word) { return word.empty(); });
  return is_sound ? std::optional(std::move(list)) : std::nullopt;
}

std::string WitnessName(std::string_view host, std::string_view disk) {
  return std::string(host) + "." + std::string(disk);
}

std::string HostOfWitness(std::string_view name) {
  return std::string(name.substr(0, name.rfind('.')));
}

}  // namespace idd::daemon
