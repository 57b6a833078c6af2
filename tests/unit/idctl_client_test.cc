// SPDX-License-Identifier: Apache-2.0
//
// idctl client list, drain and resume: their output for given documents of the daemon and a given
// /proc.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "client/process_facts.h"
#include "commands/commands.h"
#include "support/temp_dir.h"

namespace idd::tools {
namespace {

constexpr std::uint64_t kPid = 4321;

// Types as from the socket: non-negative numbers are unsigned there.
Json AsSent(const Json& document) { return Json::parse(document.dump()); }

// A /proc with one process, which started 100 s after the boot; the machine has been up for 1000 s.
class ProcessFactsTest : public ::testing::Test {
 protected:
  ProcessFactsTest() {
    std::filesystem::create_directories(proc_ + "/4321");
    std::filesystem::create_directories(proc_ + "/self/ns");
    Write("self/ns/pid", "");
    Write("uptime", "1000.00 3000.00\n");
    const long start = 100 * ::sysconf(_SC_CLK_TCK);
    std::string stat = "4321 (a) b (c) S";
    for (int i = 4; i <= 21; ++i) stat += " 7";
    Write("4321/stat", stat + " " + std::to_string(start) + " 9 9\n");
    Write("4321/status", "Name:\tx\nUid:\t1000\t1001\t1001\t1001\nGid:\t0\n");
    Write("4321/comm", "worker\n");
    Write("4321/cgroup", "0::/system.slice/orders.service\n");
  }
  void Write(const std::string& name, const std::string& text) const {
    harness::WriteFile(dir_.File(name), text);
  }
  [[nodiscard]] ProcessFacts Look(double connected_s = 10, std::uint64_t uid = 1001) const {
    return ProbeProcess(proc_, {.pid = kPid, .uid = uid, .connected_s = connected_s});
  }
  [[nodiscard]] Json Document() const {
    struct stat info {};
    EXPECT_EQ(::stat((proc_ + "/self/ns/pid").c_str(), &info), 0);
    return AsSent({{"pid_namespace", static_cast<std::uint64_t>(info.st_ino)},
                   {"clients",
                    {{{"connection", 7},
                      {"pid", kPid},
                      {"uid", 1001},
                      {"gid", 1001},
                      {"connected_s", 10},
                      {"client_version", "0.9"},
                      {"abi_version", "1.1"},
                      {"tags",
                       {{{"tag", "orders"},
                         {"attached_s", nullptr},
                         {"attachments", 0},
                         {"requests", 3},
                         {"ids", 30},
                         {"dry_waits", 1}}}}}}},
                   {"gone", Json::array()}});
  }
  const harness::TempDir dir_;
  const std::string& proc_ = dir_.path();
};

TEST_F(ProcessFactsTest, ReportsUnitAndCommand) {
  EXPECT_EQ(Look().unit, "orders.service");
  EXPECT_EQ(Look().command, "worker");
}

TEST_F(ProcessFactsTest, ReusedPidShowsNothing) {
  EXPECT_EQ(Look(890).command, "worker");
  EXPECT_EQ(Look(950).command, "") << "it is younger than the connection";
  EXPECT_EQ(Look(10, 77).command, "") << "it is another user's process";
  EXPECT_EQ(ProbeProcess(proc_, {.pid = 0, .uid = 0}).command, "");
  EXPECT_EQ(ProbeProcess(proc_, {.pid = 99, .uid = 1001}).command, "") << "gone";
}

TEST_F(ProcessFactsTest, MalformedFilesShowNothing) {
  Write("4321/stat", "4321 no brackets");
  EXPECT_EQ(Look().command, "");
  Write("4321/stat", "4321 (x) S 1 2");
  EXPECT_EQ(Look().command, "");
  Write("4321/status", std::string(100'000, 'U'));
  EXPECT_EQ(Look().command, "");
}

TEST(ControlGroupTest, NamesTheInnermostUnit) {
  EXPECT_EQ(UnitOfControlGroup("0::/user.slice/user-1.slice/user@1.service/app.slice/a.service\n"),
            "a.service");
  EXPECT_EQ(UnitOfControlGroup("0::/user.slice/user-1.slice/session-3.scope\n"), "session-3.scope");
  EXPECT_EQ(UnitOfControlGroup("0::/system.slice/a.service/payload\n"), "a.service");
  EXPECT_EQ(UnitOfControlGroup("2:cpu:/x.service\n1:name=systemd:/system.slice/b.service\n"),
            "b.service");
  for (const char* none : {"", "0::/\n", "0::/docker/0123\n", "nonsense", "0::/.service\n"}) {
    EXPECT_EQ(UnitOfControlGroup(none), "") << none;
  }
}

TEST_F(ProcessFactsTest, DocumentGetsThemAndTheTableShowsThem) {
  Json document = Document();
  AddProcessFacts(document, proc_);
  EXPECT_EQ(document["clients"][0]["unit"], "orders.service");
  const std::string text = RenderClients(document).value();
  for (const char* word : {"4321", "1001", "orders.service", "worker", "orders", "30"}) {
    EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

TEST_F(ProcessFactsTest, OtherPidNamespaceShowsNothing) {
  Json document = Document();
  document["pid_namespace"] = 1U;
  AddProcessFacts(document, proc_);
  EXPECT_EQ(document["clients"][0]["unit"], nullptr);
  EXPECT_EQ(document["clients"][0]["command"], nullptr);
}

// A program may give itself any name.
TEST_F(ProcessFactsTest, NothingMovesTheTerminalsCursor) {
  Write("4321/comm", "\x1b[2J\xff\nx\n");
  Write("4321/cgroup", "0::/\x1b]0;x\x07/evil\r.service\n");
  Json document = Document();
  document["clients"][0]["client_version"] = "\x1b[1A";
  AddProcessFacts(document, proc_);
  const std::string text = RenderClients(document).value();
  for (const char byte : {'\x1b', '\r', '\x07', '\xff'}) {
    EXPECT_EQ(text.find(byte), std::string::npos) << text;
  }
  EXPECT_NO_THROW(static_cast<void>(document.dump())) << "it is UTF-8";
}

TEST_F(ProcessFactsTest, NarrowTerminalKeepsWhoWhatAndHowMuch) {
  Json document = Document();
  AddProcessFacts(document, proc_);
  const std::string text = RenderClients(document, 80).value();
  for (const char* word : {"PID", "COMMAND", "TAG", "IDS"}) {
    EXPECT_NE(text.find(word), std::string::npos) << text;
  }
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    EXPECT_LE(end - at, 80U) << text;
  }
}

TEST(RenderClientsTest, WhatIsBeyondTheBoundsIsNamedSo) {
  const Json document = AsSent({{"clients", Json::array()},
                                {"gone",
                                 {{{"uid", nullptr},
                                   {"tag", nullptr},
                                   {"connections", 2},
                                   {"attachments", 1},
                                   {"requests", 3},
                                   {"ids", 4},
                                   {"dry_waits", 0}}}}});
  const std::string text = RenderClients(document).value();
  EXPECT_NE(text.find("(others)  (others)"), std::string::npos) << text;
  EXPECT_FALSE(RenderClients({{"clients", 3}, {"gone", Json::array()}}).ok());
  EXPECT_FALSE(RenderClients(Json::array()).ok());
}

Json DrainDocument() {
  return AsSent({{"scope", "tag"},
                 {"tag", "orders"},
                 {"was_drained", false},
                 {"done", true},
                 {"tags", 1},
                 {"ids_returned", 863},
                 {"ids_abandoned", 0},
                 {"ids_pending", 0},
                 {"leases_pending", 0},
                 {"store", "up"},
                 {"store_error", nullptr}});
}

TEST(RenderDrainTest, SaysHowManyIdsWentBack) {
  Json document = DrainDocument();
  EXPECT_EQ(RenderDrain(document).value(), "tag 'orders' is drained: 863 ids handed back\n");
  EXPECT_TRUE(DrainVerdict(document).ok());
  document["scope"] = "host";
  document["tag"] = nullptr;
  document["tags"] = 2000U;
  document["was_drained"] = true;
  EXPECT_EQ(RenderDrain(document).value(),
            "the host was drained already: 863 ids handed back, of 2000 tags in use\n");
  document["tags"] = 1U;
  EXPECT_TRUE(RenderDrain(document).value().ends_with(", of 1 tag in use\n"));
}

TEST(RenderDrainTest, TailsThatAreNotBackAreAFailureThatSaysWhatHappensToThem) {
  Json document = DrainDocument();
  document["done"] = false;
  document["ids_pending"] = 100U;
  document["store"] = "down";
  document["store_error"] = "no route";
  EXPECT_NE(RenderDrain(document).value().find("100 not back yet"), std::string::npos);
  const Status verdict = DrainVerdict(document);
  EXPECT_EQ(verdict.code(), Code::kSystem);
  for (const char* words : {"no route", "idd returns them when the store answers", "100 ids"}) {
    EXPECT_NE(verdict.message().find(words), std::string::npos) << verdict.message();
  }
}

TEST(RenderDrainTest, RefusesADocumentWithoutWhatItPromises) {
  const Json whole = DrainDocument();
  for (const auto& [key, value] : whole.items()) {
    if (key == "tag" || key == "store_error" || key == "tags" || key == "leases_pending") continue;
    Json document = whole;
    document.erase(key);
    const bool is_refused = !RenderDrain(document).ok() || !DrainVerdict(document).ok();
    EXPECT_TRUE(is_refused) << key;
  }
}

TEST(RenderResumeTest, NamesWhatStaysDrained) {
  const Json document = {{"scope", "host"},
                         {"tag", nullptr},
                         {"was_drained", true},
                         {"still_drained", {"orders", "us\x1b[ers"}}};
  EXPECT_EQ(RenderResume(document).value(),
            "the host is resumed; still drained by name: 'orders', 'us\\x1b[ers'\n");
}

}  // namespace
}  // namespace idd::tools
