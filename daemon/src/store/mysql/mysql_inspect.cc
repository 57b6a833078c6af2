// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: facts about the server.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "idd/base/clock.h"
#include "store/mysql/mysql_store.h"

namespace idd::daemon {
namespace {

constexpr const char* kFlush = "innodb_flush_log_at_trx_commit";
constexpr const char* kSyncBinlog = "sync_binlog";

using Variables = std::map<std::string, std::string, std::less<>>;

Variables ReadVariables(const MysqlResult& rows) {
  Variables variables;
  for (const auto& cells : rows.rows) variables[cells[0].value_or("")] = cells[1].value_or("");
  return variables;
}

// A setting that the server does not have does not matter there.
void AddSetting(const Variables& variables, StoreSetting setting, StoreFacts& facts) {
  const auto found = variables.find(setting.name);
  if (found == variables.end()) return;
  setting.value = found->second;
  facts.settings.push_back(std::move(setting));
}

bool IsOn(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  return found != variables.end() && found->second != "OFF" && found->second != "0";
}

// The server read its clock between `asked` and `answered` of this host's clock.
std::optional<StoreFacts::Clock> Compare(const std::optional<std::string>& server_s,
                                         std::int64_t asked_ms, std::int64_t answered_ms) {
  if (!server_s.has_value()) return std::nullopt;
  char* end = nullptr;
  const double told_s = std::strtod(server_s->c_str(), &end);
  const bool is_time = end != server_s->c_str() && std::isfinite(told_s) && std::abs(told_s) < 1e11;
  if (!is_time) return std::nullopt;
  const std::int64_t half_ms = (answered_ms - asked_ms) / 2;
  const std::int64_t told_ms = std::llround(told_s * 1000);
  return StoreFacts::Clock{.ahead_ms = told_ms - (asked_ms + half_ms),
                           .uncertain_ms = static_cast<std::uint64_t>(std::abs(half_ms)) + 1,
                           .store_ms = told_ms};
}

}  // namespace

// The settings with which idd's statements fail, and which a session cannot change.
Status MysqlStore::CheckSettings() {
  const Result<MysqlResult> rows = db_->Query(
      "SHOW VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'max_allowed_packet')");
  if (!rows.ok()) return rows.status();
  const Variables variables = ReadVariables(rows.value());
  const auto refuse = [this](const std::string& what) {
    return Status(Code::kUnavailable, "the database server at " + db_->where() + " has " + what);
  };
  const auto format = variables.find("binlog_format");
  if (IsOn(variables, "log_bin") && format != variables.end() && format->second == "STATEMENT") {
    return refuse(
        "binlog_format=STATEMENT, with which it refuses transactions that read what is committed; "
        "set it to MIXED or ROW");
  }
  constexpr std::uint64_t kLeastPacket = 1 << 19;
  const auto packet = variables.find("max_allowed_packet");
  if (packet != variables.end() &&
      std::strtoull(packet->second.c_str(), nullptr, 10) < kLeastPacket) {
    return refuse("max_allowed_packet=" + packet->second + "; it must be at least " +
                  std::to_string(kLeastPacket));
  }
  return Status::Ok();
}

Result<std::optional<StoreFacts::Clock>> MysqlStore::CompareClocks() {
  if (db_ == nullptr) return NotOpen();
  const std::int64_t asked_ms = WallClock::now_ms();
  const Result<MysqlResult> now = db_->Query("SELECT UNIX_TIMESTAMP(NOW(6))");
  if (!now.ok()) return Failed(now.status());
  return Compare(now.value().rows.at(0).at(0), asked_ms, WallClock::now_ms());
}

// The variables are listed, not selected, so that a server may lack one of them.
Result<StoreFacts> MysqlStore::Inspect() {
  if (db_ == nullptr) return NotOpen();
  const std::int64_t asked_ms = WallClock::now_ms();
  const Result<MysqlResult> now = db_->Query("SELECT UNIX_TIMESTAMP(NOW(6)), VERSION()");
  const std::int64_t answered_ms = WallClock::now_ms();
  if (!now.ok()) return Failed(now.status());
  const Result<MysqlResult> rows =
      db_->Query(std::string("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('") + kFlush + "', '" +
                 kSyncBinlog + "', 'log_bin', 'read_only', 'super_read_only', 'innodb_read_only')");
  if (!rows.ok()) return Failed(rows.status());
  const Variables variables = ReadVariables(rows.value());
  StoreFacts facts;
  facts.version = now.value().rows.at(0).at(1).value_or("");
  if (facts.version.find("MariaDB") == std::string::npos) facts.version.insert(0, "MySQL ");
  facts.is_read_only = IsOn(variables, "read_only") || IsOn(variables, "super_read_only") ||
                       IsOn(variables, "innodb_read_only");
  AddSetting(variables, {kFlush, "", "1", "a crash of the server forgets leases that it granted"},
             facts);
  if (IsOn(variables, "log_bin")) {
    AddSetting(variables,
               {kSyncBinlog, "", "1",
                "after a crash of the server, replicas may have leases that it lacks"},
               facts);
  }
  facts.clock = Compare(now.value().rows.at(0).at(0), asked_ms, answered_ms);
  return facts;
}

}  // namespace idd::daemon
