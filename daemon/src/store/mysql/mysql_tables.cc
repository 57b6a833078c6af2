// SPDX-License-Identifier: Apache-2.0
#include "store/mysql/mysql_tables.h"

#include <charconv>
#include <vector>

#include "store/mysql/mysql_sql.h"

namespace idd::daemon {
namespace {

// Parses " number number ..."; empty if `text` is anything else.
std::vector<std::uint64_t> ParseTimes(std::string_view text) {
  std::vector<std::uint64_t> times;
  while (!text.empty()) {
    if (text.front() != ' ') return {};
    text.remove_prefix(1);
    std::uint64_t time = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), time);
    if (error != std::errc()) return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    times.push_back(time);
  }
  return times;
}

}  // namespace

bool MysqlTables::Add(const std::string& table, std::uint64_t made) {
  std::set<std::uint64_t>& known = made_[table];
  const bool is_new = known.insert(made).second;
  if (known.size() > kMaxKnownTimes) known.erase(known.begin());
  return is_new;
}

bool MysqlTables::AddSeenElsewhere(std::string_view times) {
  const std::vector<std::uint64_t> seen = ParseTimes(times);
  if (seen.size() != made_.size()) return false;
  bool is_later = false;
  auto time = seen.begin();
  for (const auto& [table, known] : made_) {
    if (*time > *known.rbegin()) is_later = Add(table, *time);
    ++time;
  }
  return is_later;
}

std::string MysqlTables::Times() const {
  std::string text;
  for (const auto& [table, known] : made_) text += " " + std::to_string(*known.rbegin());
  return text;
}

std::string MysqlTables::AreSame() const {
  std::vector<std::string> all;
  for (const auto& [table, known] : made_) {
    for (const std::uint64_t time : known) all.push_back(table + " " + std::to_string(time));
  }
  return std::string("(SELECT COUNT(*) FROM information_schema.tables WHERE ") + sql::kLeaseTables +
         " AND CONCAT(LOWER(table_name), ' ', " + sql::kTableMade + ") IN " + sql::Texts(all) +
         ") = " + std::to_string(sql::kLeaseTableCount);
}

}  // namespace idd::daemon
