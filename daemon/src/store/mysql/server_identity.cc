// SPDX-License-Identifier: Apache-2.0
#include "store/mysql/server_identity.h"

#include <utility>

#include "sql/mysql_db.h"

namespace idd::daemon {
namespace {

std::string ServerOf(const ServerFacts& facts) {
  return facts.hostname + ":" + std::to_string(facts.port) + " " + std::to_string(facts.server_id) +
         " " + facts.uid + facts.uuid + " " + std::to_string(facts.started);
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

bool ServerIdentity::Recognise(const ServerFacts& facts) {
  std::string server = ServerOf(facts);
  is_cluster_ = !facts.cluster.empty();
  name_ = is_cluster_ ? facts.cluster : server;
  condition_ = ConditionOf(facts);
  const bool is_other = server != server_;
  server_ = std::move(server);
  return is_other;
}

}  // namespace idd::daemon
