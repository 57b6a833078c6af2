// SPDX-License-Identifier: Apache-2.0
//
// Administration requests as text: the cost of hostile ones to the event loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "admin/admin.h"
#include "support/service_harness.h"
#include "tags/tag_service.h"

namespace idd::daemon {
namespace {

using ::testing::HasSubstr;

struct AdminAnswer {
  Status status;
  std::string document;
};

class AdminRequestsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    h_.store.AddTag("orders", 10);
    h_.Start([this](const StoreHealth& health) { tags_.OnStoreHealth(health); });
    h_.Settle();
  }
  [[nodiscard]] PeerRights RightsOf(uid_t uid) const {
    return {rules_, {.pid = 1, .uid = uid, .gid = uid, .groups = {}}};
  }
  // Filled in when the answer arrives.
  std::shared_ptr<std::optional<AdminAnswer>> Ask(const std::string& request, uid_t uid = 0) {
    auto answer = std::make_shared<std::optional<AdminAnswer>>();
    admin_.Handle(request, RightsOf(uid), [answer](const Status& status, const std::string& text) {
      EXPECT_FALSE(answer->has_value());
      *answer = AdminAnswer{.status = status, .document = text};
    });
    return answer;
  }
  [[nodiscard]] AdminAnswer Await(const std::shared_ptr<std::optional<AdminAnswer>>& answer) {
    EXPECT_TRUE(h_.RunUntil([&answer] { return answer->has_value(); }));
    return answer->value_or(AdminAnswer{});
  }
  [[nodiscard]] std::string Refusal(const std::string& request) {
    const AdminAnswer answer = Await(Ask(request));
    EXPECT_EQ(answer.status.code(), Code::kInvalid) << answer.document;
    return nlohmann::json::parse(answer.document).at("error");
  }

  WorkerHarness h_;
  TagService tags_{h_.loop, h_.worker, h_.handover(), 1000};
  const std::shared_ptr<const AccessRules> rules_ =
      std::make_shared<const AccessRules>(std::vector<AccessRule>{{.tags = {"*"},
                                                                   .users = {1001, 1002, 1003},
                                                                   .groups = {},
                                                                   .access = Access::kSocket,
                                                                   .ids_per_s = std::nullopt}},
                                          AccessDefaults{});
  MetricsCollector metrics_{h_.loop, tags_};
  const ClientLedger clients_;
  Admin admin_{h_.loop,
               {.version = "0",
                .host_id = FakeStore::kHost,
                .socket = "s",
                .database_url = "fake:",
                .database = "fake:",
                .started = MonotonicClock::now()},
               {.worker = h_.worker,
                .tags = tags_,
                .metrics = metrics_,
                .clients = clients_,
                .open_reader = h_.reader()}};
};

TEST_F(AdminRequestsTest, DeepRequestsAreRefusedForTheirDepth) {
  for (const std::string& text :
       {std::string(16'000, '['), std::string(16'000, '{'), std::string(9, '['),
        R"({"op":"status","tag":)" + std::string(12'000, '[') + std::string(12'000, ']') + "}",
        R"({"op":"status","tag":"]]]]","x":)" + std::string(9, '[')}) {
    EXPECT_THAT(Refusal(text), HasSubstr("nested more than 8 levels deep")) << text.substr(0, 40);
  }
}

TEST_F(AdminRequestsTest, BracketsInStringsAreNoDepth) {
  const std::string brackets = std::string(100, '[') + R"(\"[[\\)";
  EXPECT_EQ(Refusal(R"({"op":")" + brackets + R"("})"),
            "unknown operation '" + std::string(100, '[') + R"("[[\')");
  EXPECT_THAT(Refusal(R"({"op":"no","x":[[],[],[],[],[],[],[],[],[],[{}]]})"),
              HasSubstr("unknown operation 'no'"));
}

TEST_F(AdminRequestsTest, SettingsOfATagAreKnownAndOfItsMode) {
  for (const auto& [settings, words] : std::vector<std::pair<std::string, std::string>>{
           {R"("mode":"sequence")", "unknown mode 'sequence'"},
           {R"("mode":"snowflake","step":5)", "a tag of mode snowflake leases time: step"},
           {R"("mode":"segment","layout":"41/10/12")", "snowflake only"},
           {R"("mode":"ticket","step":5)", "step, refill settings and access ring do not apply"},
           {R"("mode":"ticket","access":"ring")",
            "step, refill settings and access ring do not apply"},
           {R"("order":"strict")", "unknown order 'strict'; host and cpu are available"},
           {R"("lane_block":"many")", "lane_block"},
           {R"("access":"both")", "unknown access 'both'; ring and socket are available"},
           {R"("access":1)", "access"}}) {
    EXPECT_THAT(Refusal(R"({"op":"tag.create","tag":"x",)" + settings + "}"), HasSubstr(words));
  }
  EXPECT_THAT(Refusal(R"({"op":"tag.set","tag":"x","order":5})"), HasSubstr("order"));
  EXPECT_THAT(Refusal(R"({"op":"tag.set","tag":"x","access":"Socket"})"), HasSubstr("'Socket'"));
  EXPECT_THAT(Refusal(R"({"op":"tag.set","tag":"x","access":true})"), HasSubstr("access"));
}

TEST_F(AdminRequestsTest, RequestsOfManyFieldsAreRefused) {
  std::string text = R"({"op":"status")";
  for (std::size_t i = 0; i < 64; ++i) text += ",\"f" + std::to_string(i) + "\":1";
  EXPECT_THAT(Refusal(text + "}"), HasSubstr("more than 64 fields"));
}

// A refusal that needs no store is answered at once, unless its parsing is deferred.
TEST_F(AdminRequestsTest, LargeRequestsAreNotParsedOnTheLoop) {
  const std::string small = R"({"op":"no such operation"})";
  EXPECT_TRUE(Ask(small)->has_value());
  const std::string large = R"({"op":"no such operation","x":")" + std::string(2000, 'x') + "\"}";
  const auto answer = Ask(large);
  EXPECT_FALSE(answer->has_value());
  EXPECT_THAT(Await(answer).document, HasSubstr("unknown operation 'no such operation'"));
}

TEST_F(AdminRequestsTest, RequestsOfOneUserLeaveRoomForOthers) {
  const std::string large = R"({"op":"no","x":")" + std::string(2000, 'x') + "\"}";
  std::vector<std::shared_ptr<std::optional<AdminAnswer>>> answers;
  for (int i = 0; i < 40; ++i) answers.push_back(Ask(large, 1001));
  std::size_t refused = 0;
  for (const auto& answer : answers) refused += answer->has_value() ? 1U : 0U;
  EXPECT_EQ(refused, 24U);
  EXPECT_THAT(Await(answers.back()).document, HasSubstr("too many administration requests"));
  const auto other = Ask(large, 1002);
  EXPECT_FALSE(other->has_value()) << "another user's request must have room";
  for (const auto& answer : answers) static_cast<void>(Await(answer));
  static_cast<void>(Await(other));
  EXPECT_FALSE(Ask(large, 1001)->has_value()) << "there is room again";
  h_.Settle();
}

// However many requests ask, the store gets at most two list calls.
TEST_F(AdminRequestsTest, StatusOfAStoreThatHangsIsAnsweredAtItsDeadline) {
  bool hangs = true;
  std::mutex mutex;
  std::condition_variable wake;
  h_.worker.Submit<bool>(
      [&](Store&, HighWaterMarks&) -> Result<bool> {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return !hangs; });
        return true;
      },
      [](const Result<bool>&) {});
  const auto lists_before = h_.store.script.Count("ListTags");
  std::vector<std::shared_ptr<std::optional<AdminAnswer>>> answers;
  for (int i = 0; i < 50; ++i) answers.push_back(Ask(R"({"op":"status","wait_ms":10})"));
  for (const auto& answer : answers) {
    const AdminAnswer status = Await(answer);
    EXPECT_TRUE(status.status.ok()) << status.document;
    EXPECT_THAT(nlohmann::json::parse(status.document)["database"]["last_error"].get<std::string>(),
                HasSubstr("has not listed its tags within 10 ms"));
  }
  EXPECT_THAT(Await(Ask(R"({"op":"status","tag":"unknown","wait_ms":1})")).document,
              HasSubstr("has not listed its tags"));
  const auto patient = Ask(R"({"op":"status","wait_ms":600000})");
  {
    const std::lock_guard lock(mutex);
    hangs = false;
  }
  wake.notify_all();
  const nlohmann::json document = nlohmann::json::parse(Await(patient).document);
  EXPECT_EQ(document["tags"].size(), 1U);
  EXPECT_TRUE(document["database"]["last_error"].is_null());
  h_.Settle();
  EXPECT_LE(h_.store.script.Count("ListTags") - lists_before, 2);
}

// No lease waits for a report, however long it takes to read the journal.
TEST_F(AdminRequestsTest, ReportsDoNotHoldLeasesUp) {
  for (const char* report :
       {R"({"op":"lease.list"})", R"({"op":"audit"})", R"({"op":"whois","tag":"orders","id":1})"}) {
    const int before = h_.store.script.Count("ListLeases");
    h_.store.script.Hold("ListLeases");
    const auto answer = Ask(report);
    EXPECT_TRUE(h_.RunUntil([&] { return h_.store.script.Count("ListLeases") > before; }));
    bool is_leased = false;
    h_.worker.Submit<Lease>(
        [report](Store& store, HighWaterMarks&) {
          return store.TakeLease({.tag = "orders", .count = 10, .token = report});
        },
        [&is_leased](const Result<Lease>& lease) { is_leased = lease.ok(); });
    EXPECT_TRUE(h_.RunUntil([&is_leased] { return is_leased; })) << report;
    EXPECT_FALSE(answer->has_value()) << report;
    h_.store.ForgetLeases();  // leases that are in no ring
    h_.store.script.Release();
    EXPECT_TRUE(Await(answer).status.ok()) << report;
  }
}

TEST_F(AdminRequestsTest, ReportsFailAtOnceWhileTheStoreIsDown) {
  h_.store.script.FailAll({Code::kUnavailable, "gone"});
  h_.worker.Submit<bool>(
      [](Store&, HighWaterMarks&) -> Result<bool> { return Status(Code::kUnavailable, "gone"); },
      [](const Result<bool>&) {});
  ASSERT_TRUE(h_.RunUntil([this] { return !tags_.store_health().up; }));
  const int before = h_.store.script.Count("ListLeases");
  const AdminAnswer answer = Await(Ask(R"({"op":"lease.list"})"));
  EXPECT_EQ(answer.status.code(), Code::kSystem);
  EXPECT_THAT(answer.document, HasSubstr("the store is down; last error: gone"));
  EXPECT_EQ(h_.store.script.Count("ListLeases"), before);
}

TEST_F(AdminRequestsTest, ReportBeforeTheStoreHasAnsweredSaysSo) {
  tags_.OnStoreHealth({});
  const AdminAnswer answer = Await(Ask(R"({"op":"lease.list"})"));
  EXPECT_EQ(answer.status.code(), Code::kSystem);
  EXPECT_THAT(answer.document, HasSubstr("idd is opening the store; try again"));
}

TEST_F(AdminRequestsTest, LeasesOfOthersTagsAreNotEvenRead) {
  const auto shown =
      std::make_shared<const AccessRules>(std::vector<AccessRule>{{.tags = {"orders"},
                                                                   .users = {1001},
                                                                   .groups = {},
                                                                   .access = Access::kSocket,
                                                                   .ids_per_s = std::nullopt}},
                                          AccessDefaults{});
  const PeerRights rights(shown, {.pid = 1, .uid = 1001, .gid = 1001, .groups = {}});
  h_.store.AddTag("users", 10);
  for (const char* tag : {"orders", "users"}) {
    ASSERT_TRUE(h_.store.TakeLease({.tag = tag, .count = 10, .token = tag}).ok());
  }
  std::optional<std::string> document;
  admin_.Handle(R"({"op":"lease.list"})", rights,
                [&document](const Status&, const std::string& text) { document = text; });
  ASSERT_TRUE(h_.RunUntil([&document] { return document.has_value(); }));
  const nlohmann::json leases = nlohmann::json::parse(*document).at("leases");
  ASSERT_EQ(leases.size(), 1U) << *document;
  EXPECT_EQ(leases[0].at("tag"), "orders");
  EXPECT_EQ(h_.store.last_listed().among, std::vector<std::string>{"orders"});
}

// A lease whose commit came late is active and in no ring until idd looks it up.
TEST_F(AdminRequestsTest, AuditReportsOnlyWhatItFindsTwice) {
  ASSERT_TRUE(h_.store.TakeLease({.tag = "orders", .count = 10, .token = "late"}).ok());
  const auto answer = Ask(R"({"op":"audit"})");
  EXPECT_TRUE(h_.RunUntil([&] { return h_.store.script.Count("ListReturned") > 0; }));
  h_.Settle();
  EXPECT_FALSE(answer->has_value());
  h_.store.ForgetLeases();
  EXPECT_EQ(nlohmann::json::parse(Await(answer).document).at("ok"), true);
  ASSERT_TRUE(h_.store.TakeLease({.tag = "orders", .count = 10, .token = "lost"}).ok());
  const AdminAnswer found = Await(Ask(R"({"op":"audit"})"));
  EXPECT_THAT(found.document, HasSubstr("lease lost of tag 'orders'"));
}

}  // namespace
}  // namespace idd::daemon
