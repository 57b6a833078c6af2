// SPDX-License-Identifier: Apache-2.0
#include "store/mysql/server_identity.h"

#include <utility>

#include "sql/mysql_db.h"

namespace idd::daemon {
namespace {

std::string NameOf(const ServerFacts& facts) {
  if (!facts.cluster.empty()) return facts.cluster;
  return facts.hostname + ":" + std::to_string(facts.port) + " " + std::to_string(facts.server_id) +
         " " + facts.uid + facts.uuid;
}

std::string ConditionOf(const ServerFacts& facts) {
  std::string condition = "@@hostname = " + MysqlDb::Text(facts.hostname) +
                          " AND @@port = " + std::to_string(facts.port) +
                          " AND @@server_id = " + std::to_string(facts.server_id) +
                          " AND CONNECTION_ID() = " + std::to_string(facts.connection);
  if (!facts.uid.empty()) condition += " AND @@server_uid = " + MysqlDb::Text(facts.uid);
  if (!facts.uuid.empty()) condition += " AND @@server_uuid = " + MysqlDb::Text(facts.uuid);
  return condition;
}

}  // namespace

ServerIdentity::Change ServerIdentity::Recognise(const ServerFacts& facts) {
  std::string name = NameOf(facts);
  is_cluster_ = !facts.cluster.empty();
  condition_ = ConditionOf(facts);
  uptime_ = facts.uptime;
  asked_ = facts.asked;
  // The uptime is in whole seconds, so the server may be up to one second younger than it reports.
  const bool ran_then = uptime_ >= asked_ - first_seen_ + std::chrono::seconds(1);
  const bool is_unbroken = !is_cluster_ && ran_then && facts.connection > last_connection_;
  last_connection_ = facts.connection;
  if (name == name_ && is_unbroken) return Change::kNone;
  const Change change = name == name_ ? Change::kInterrupted : Change::kOther;
  name_ = std::move(name);
  first_seen_ = asked_;
  return change;
}

std::optional<std::chrono::seconds> ServerIdentity::Uptime(MonotonicTime now) const {
  if (is_cluster_) return std::nullopt;
  return uptime_ + std::chrono::duration_cast<std::chrono::seconds>(now - asked_);
}

}  // namespace idd::daemon
