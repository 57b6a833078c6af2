// SPDX-License-Identifier: Apache-2.0
//
// What idctl makes of answers of idd that are not as documented.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands/commands.h"
#include "support/idctl_documents.h"

namespace idd::tools {
namespace {

using Render = std::function<Result<std::string>(const Json&)>;

struct Case {
  const char* name;
  Json document;
  Render render;
};

std::vector<Case> Cases() {
  return {
      {"status", StatusDocument(), [](const Json& json) { return RenderStatus(json, ""); }},
      {"tag", TagDocument(), RenderTag},
      {"line", TagDocument(), [](const Json& json) { return RenderTagLine(json, "created"); }},
      {"tags", TagListDocument(), [](const Json& json) { return RenderTagList(json); }},
      {"deleted", Parse(R"({"deleted": "orders"})"), RenderDeletedTag},
      {"store", Parse(R"({"database": "d", "created": true, "missing_tags": ["orders"]})"),
       RenderStoreInit},
      {"leases", LeaseDocument(), [](const Json& json) { return RenderLeases(json); }},
      {"hosts", HostDocument(), [](const Json& json) { return RenderHosts(json); }},
      {"audit", AuditDocument(), [](const Json& json) { return RenderAudit(json); }},
      {"whois", WhoIsDocument(), [](const Json& json) { return RenderWhoIs(json); }},
      {"import", ImportDocument(), [](const Json& json) { return RenderImport(json); }},
      {"snowflake status", SnowflakeStatusDocument(),
       [](const Json& json) { return RenderStatus(json, ""); }},
      {"snowflake tag", SnowflakeTagDocument(), RenderTag},
      {"snowflake line", SnowflakeTagDocument(),
       [](const Json& json) { return RenderTagLine(json, "created"); }},
      {"snowflake whois", SnowflakeWhoIsDocument(),
       [](const Json& json) { return RenderWhoIs(json); }},
      {"decode", DecodeDocument(), [](const Json& json) { return RenderDecode(json); }},
  };
}

// The paths of everything in the document, including its root.
void CollectPaths(const Json& json, const Json::json_pointer& path,
                  std::vector<Json::json_pointer>& paths) {
  paths.push_back(path);
  if (json.is_object()) {
    for (const auto& item : json.items()) CollectPaths(item.value(), path / item.key(), paths);
  }
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) CollectPaths(json[i], path / i, paths);
  }
}

bool MayBeNull(const std::string& path) {
  for (const char* name : {"last_error", "since_s", "covered_s", "length_s", "exhausted_in_days",
                           "closed_at", "description", "boot_id", "reason", "/snowflake", "parts",
                           "counter", "/snowflake/worker", "time", "leased_until", "until"}) {
    if (path.ends_with(name)) return true;
  }
  return path.find("/hosts/") == 0 && path.ends_with("/state");
}

// Fields that are not read: the one-line form omits some, all leases of an id have its tag, and a
// created tag has no previous position.
bool IsUnread(const Case& each, const std::string& path) {
  const std::string name(each.name);
  const bool is_line = name == "line" || name == "snowflake line";
  return (is_line && path.find("/returned") != std::string::npos) ||
         (name == "snowflake line" && path.find("/workers") != std::string::npos &&
          path.find("/snowflake/") == std::string::npos) ||
         (name == "whois" && path.find("/leases/") == 0 && path.ends_with("/tag")) ||
         (name == "import" && path == "/tags/0/from");
}

TEST(MalformedDocumentTest, AnyValueOfAnotherTypeIsAnError) {
  for (const Case& each : Cases()) {
    ASSERT_TRUE(each.render(each.document).ok()) << each.name;
    std::vector<Json::json_pointer> paths;
    CollectPaths(each.document, Json::json_pointer(), paths);
    for (const auto& path : paths) {
      const Json& original = each.document[path];
      for (const char* text : {"null", "-1", "1e300", "\"text\"", "true", "[]", "[1]", "{}"}) {
        const Json wrong = Parse(text);
        Json document = each.document;
        document[path] = wrong;
        const Result<std::string> rendered = each.render(document);
        const bool is_same_type = wrong.type() == original.type() ||
                                  (wrong.is_number() && original.is_number()) ||
                                  (original.is_null() && !wrong.is_null());
        if (is_same_type || IsUnread(each, path.to_string())) continue;
        if (wrong.is_null() && MayBeNull(path.to_string())) continue;
        ASSERT_FALSE(rendered.ok()) << each.name << path.to_string() << " = " << text;
        EXPECT_EQ(rendered.status().code(), Code::kIncompatible);
        EXPECT_FALSE(rendered.status().message().empty());
      }
    }
  }
}

TEST(MalformedDocumentTest, AMissingFieldIsNamed) {
  for (const Case& each : Cases()) {
    std::vector<Json::json_pointer> paths;
    CollectPaths(each.document, Json::json_pointer(), paths);
    for (const auto& path : paths) {
      if (path.empty() || !each.document[path.parent_pointer()].is_object()) continue;
      if (MayBeNull(path.to_string()) || IsUnread(each, path.to_string())) continue;
      Json document = each.document;
      document[path.parent_pointer()].erase(path.back());
      const Result<std::string> rendered = each.render(document);
      ASSERT_FALSE(rendered.ok()) << each.name << path.to_string();
      EXPECT_NE(rendered.status().message().find(path.back() + " is missing"), std::string::npos)
          << rendered.status().message();
    }
  }
}

TEST(MalformedDocumentTest, NegativeNumbersAreRefused) {
  for (const char* field : {"claimed", "available", "rate_per_s", "covered_s"}) {
    Json document = StatusDocument();
    document["tags"][0][field] = -1;
    EXPECT_EQ(RenderStatus(document, "").status().code(), Code::kIncompatible) << field;
  }
}

TEST(MalformedDocumentTest, UnknownFieldsAreAllowed) {
  for (Case& each : Cases()) {
    each.document["new_in_1.1"] = {{"x", 1}};
    EXPECT_TRUE(each.render(each.document).ok()) << each.name;
  }
}

}  // namespace
}  // namespace idd::tools
