// SPDX-License-Identifier: Apache-2.0
#include "store/mysql/lost_commits.h"

#include <chrono>

#include "sql/mysql_db.h"
#include "store/mysql/mysql_sql.h"

namespace idd::daemon {
namespace {

// After this long the fate of a lost lease is certain, because its packet has ended.
constexpr std::chrono::seconds kLostFor(120);

}  // namespace

void LostCommits::Add(const std::vector<std::string>& tokens, MonotonicTime now) {
  for (const std::string& token : tokens) lost_[token] = now;
}

std::vector<std::string> LostCommits::Statements(const std::string& host) const {
  std::vector<std::string> tokens;
  tokens.reserve(lost_.size());
  for (const auto& [token, since] : lost_) tokens.push_back(token);
  const std::string is_lost =
      " WHERE host = " + MysqlDb::Text(host) + " AND token IN " + sql::Texts(tokens);
  return {
      "UPDATE idd_lease SET state = 'abandoned', abandoned = `limit` - base,"
      " closed_at = CURRENT_TIMESTAMP" +
          is_lost + " AND state = 'active'",
      "SELECT token FROM idd_lease" + is_lost + " AND state <> 'active'"};
}

void LostCommits::Forget(const std::vector<std::string>& ended, MonotonicTime now) {
  for (const std::string& token : ended) lost_.erase(token);
  std::erase_if(lost_, [now](const auto& lost) { return lost.second < now - kLostFor; });
}

}  // namespace idd::daemon
