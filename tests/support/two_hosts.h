// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_TWO_HOSTS_H_
#define IDD_TESTS_SUPPORT_TWO_HOSTS_H_

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/db_server.h"
#include "support/host.h"
#include "support/temp_dir.h"

namespace idd::harness {

// The parameter of a case, for its name.
inline std::string StoreName(const ::testing::TestParamInfo<const char*>& store) {
  return store.param;
}

// Two hosts with one database of either kind. A case, or the class for its cases, starts them.
class TwoHosts : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!is_mysql()) return;
    server_.Start();
    for (Host* host : {&a_, &b_}) host->daemon.options().database = server_.Url();
  }
  [[nodiscard]] static bool is_mysql() { return std::string(GetParam()) == "mysql"; }
  // In the database, past idd.
  void Execute(const std::string& sql) {
    if (is_mysql()) return server_.Session().Execute(sql);
    a_.Database().Execute(sql);
  }
  // A host as host-a lists it; null if it does not.
  [[nodiscard]] nlohmann::json Known(const std::string& id, bool all = false) const {
    std::vector<std::string> command = {"host", "list"};
    if (all) command.emplace_back("--all");
    const nlohmann::json list = a_.idctl.Json(command);
    for (const auto& host : list.at("hosts")) {
      if (host.at("host") == id) return host;
    }
    return nullptr;
  }
  [[nodiscard]] bool IsListedAsLive(const std::string& id) const {
    if (a_.idctl.Run({"host", "list"}).exit_status != 0) return false;  // it is opening the store
    const nlohmann::json host = Known(id);
    return !host.is_null() && !host.at("version").is_null() && host.at("condition") == "live";
  }

  const TempDir dir_;
  DbServer server_{dir_};
  Host a_{dir_, "host-a"};
  Host b_{dir_, "host-b"};
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_TWO_HOSTS_H_
