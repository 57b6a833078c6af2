// SPDX-License-Identifier: Apache-2.0
//
// idctl's output for documents of the daemon, valid and malformed.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands/commands.h"

namespace idd::tools {
namespace {

Json Parse(const char* text) {
  Json document = Json::parse(text, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << text;
  return document;
}

Json StatusDocument() {
  return Parse(R"({
    "daemon": {"version": "0.1.0", "pid": 4711, "uptime_s": 723, "host_id": "web-1",
               "socket": "/run/idd/idd.sock"},
    "database": {"url": "sqlite:/var/lib/idd/idd.db", "state": "up", "last_error": null,
                 "since_s": 720},
    "tags": [
      {"tag": "orders", "mode": "segment", "step": 1000, "state": "ok", "claimed": 120,
       "available": 1880, "segments": [{"base": 1, "limit": 1001, "next": 121},
                                       {"base": 1001, "limit": 2001, "next": 1001}],
       "rate_per_s": 12.5, "covered_s": 150.4,
       "promise": {"outage_tolerance_s": 600, "kept": false}, "exhausted_in_days": null, "fallbacks": 0, "leases": 2, "last_error": null},
      {"tag": "x\ny", "mode": "segment", "step": 5, "state": "dry", "claimed": 9223372036854775806,
       "available": 0, "segments": [], "rate_per_s": 0, "covered_s": null,
       "promise": {"outage_tolerance_s": 600, "kept": true}, "exhausted_in_days": 17.5, "fallbacks": 7,
       "leases": 1, "last_error": "database is locked"}]})");
}

Json TagDocument() {
  return Parse(
      R"({"tag": {"tag": "orders", "mode": "segment", "access": "socket", "step": 1000, "refill": "promise",
    "max_step": 5000, "max_prefetch": 100000, "outage_tolerance_s": 600,
    "next_id": 2001, "max_id": 9223372036854775806, "description": "", "update_time": "2025-01-02 03:04:05",
    "returned": [{"host": "web-1", "base": 500, "limit": 1001}]}})");
}

Json TagListDocument() {
  return Parse(
      R"({"tags": [{"tag": "orders", "mode": "segment", "access": "ring", "step": 1000, "refill": "promise",
    "max_step": 5000, "max_prefetch": 100000, "outage_tolerance_s": 600,
    "next_id": 2001, "max_id": 9223372036854775806, "description": "order ids",
    "update_time": "2025-01-02 03:04:05"}]})");
}

constexpr const char* kLayout =
    R"({"layout": "41/10/12", "unit_ms": 1, "epoch": "2024-01-01T00:00:00.000Z",
        "epoch_ms": 1704067200000, "clock": "client", "max_ahead_ms": 1000, "ids_per_unit": 4096,
        "workers": 1024, "ends": "2093-09-06T15:47:35.552Z"})";

Json SnowflakeTagDocument() {
  Json document = TagDocument();
  Json& tag = document["tag"];
  tag["mode"] = "snowflake";
  tag["access"] = "ring";
  tag["returned"] = Json::array();
  tag["snowflake"] = Parse(kLayout);
  tag["workers"] = Parse(R"([
      {"worker": 3, "host": "web-1", "until": "2026-11-25T04:00:00.000Z", "is_over": false},
      {"worker": 12, "host": "web-2", "until": "2026-11-24T04:00:00.000Z", "is_over": true}])");
  return document;
}

Json SnowflakeStatusDocument() {
  Json document = StatusDocument();
  Json& tag = document["tags"][0];
  tag["mode"] = "snowflake";
  tag["rate_per_s"] = 0U;
  tag["covered_s"] = nullptr;
  tag["snowflake"] = Parse(R"({"counter": "orders#3", "worker": 3,
      "time": "2026-11-25T03:00:00.123Z", "leased_until": "2026-11-25T03:10:00.000Z",
      "clock": "client"})");
  return document;
}

Json LeaseDocument() {
  return Parse(
      R"({"truncated": false, "leases": [{"token": "00ff", "tag": "orders", "host": "web-1",
    "base": 1, "limit": 1001, "state": "active", "claimed": 120, "returned": 0, "abandoned": 0,
    "leased_at": "2025-01-02 03:04:05", "closed_at": null}]})");
}

Json HostDocument() {
  return Parse(R"({"hosts": [{"host": "web-1", "first_seen": "2025-01-02 03:04:05",
    "last_seen": "2025-01-02 03:05:06", "boot_id": "b-1", "state": "live"}]})");
}

Json WhoIsDocument() {
  return Parse(R"({"tag": "orders", "id": 130, "leases": [
    {"token": "01", "tag": "orders", "host": "web-2", "base": 121, "limit": 1001, "state": "active",
     "claimed": 0, "returned": 0, "abandoned": 0, "leased_at": "2025-01-02 03:05:06",
     "closed_at": null, "id_state": "active"},
    {"token": "00ff", "tag": "orders", "host": "web-1", "base": 1, "limit": 1001,
     "state": "returned", "claimed": 120, "returned": 880, "abandoned": 0,
     "leased_at": "2025-01-02 03:04:05", "closed_at": "2025-01-02 03:05:00",
     "id_state": "returned"}], "reason": null})");
}

Json SnowflakeWhoIsDocument() {
  return Parse(R"({"tag": "orders", "id": 383123456789012345, "parts":
    {"id": 383123456789012345, "time": "2026-11-25T03:00:00.123Z", "time_ms": 1795575600123,
     "worker": 3, "sequence": 17}, "leases": [
    {"token": "01", "host": "web-1", "base": 374000000000000, "limit": 374002457600000,
     "from": "2026-11-25T03:00:00.000Z", "to": "2026-11-25T03:10:00.000Z", "state": "active",
     "claimed": 120, "returned": 0, "abandoned": 0, "leased_at": "2026-11-25 02:59:00",
     "closed_at": null, "id_state": "claimed"}], "reason": null})");
}

Json DecodeDocument() {
  return Parse(R"({"tag": "orders", "mode": "snowflake", "parts": [
    {"id": 383123456789012345, "time": "2026-11-25T03:00:00.123Z", "time_ms": 1795575600123,
     "worker": 3, "sequence": 17},
    {"id": 1, "time": "2024-01-01T00:00:00.000Z", "time_ms": 1704067200000, "worker": 0,
     "sequence": 1}]})");
}

Json ImportDocument() {
  return Parse(R"({"source": "tinyid", "dry_run": false, "tags": [
    {"tag": "new", "action": "created", "from": null, "next_id": 11, "step": 5, "reason": null},
    {"tag": "low", "action": "lifted", "from": 100, "next_id": 5001, "step": 10,
     "reason": "moved while importing"}], "warnings": []})");
}

Json AuditDocument() {
  return Parse(R"({"ok": true, "tags": [{"tag": "orders", "leased": 10, "claimed": 1,
    "available": 2, "returned": 3, "abandoned": 4}], "findings": []})");
}

TEST(RenderStatusTest, AnswersInThreeParts) {
  Result<std::string> text = RenderStatus(StatusDocument(), "");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "daemon    idd 0.1.0, up 12m 3s, pid 4711, host web-1, socket /run/idd/idd.sock\n"
            "database  up for 12m, sqlite:/var/lib/idd/idd.db\n"
            "\n"
            "TAG     MODE     STATE  STEP              CLAIMED  AVAILABLE  RATE/S               "
            "COVERED  FALLBACKS  LEASES\n"
            "orders  segment  ok     1000                  120       1880      13  "
            "2m 30s of 10m, short          0       2\n"
            "x\\x0ay  segment  dry       5  9223372036854775806          0       0               "
            "      -          7       1\n"
            "\n"
            "x\\x0ay: its ids end in 17d 12h at this rate\n"
            "x\\x0ay: last error: database is locked\n");
}

TEST(RenderStatusTest, PromiseThatStillGrowsIsShownWithItsEnd) {
  Json document = StatusDocument();
  document["tags"][0]["promise"]["length_s"] = 90;
  Result<std::string> text = RenderStatus(document, "");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NE(text.value().find(" 2m 30s of 1m 30s (10m), short "), std::string::npos)
      << text.value();
  document["tags"][0]["promise"]["length_s"] = 600;
  text = RenderStatus(document, "");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NE(text.value().find(" 2m 30s of 10m, short "), std::string::npos) << text.value();
}

TEST(RenderStatusTest, NarrowTerminalGetsFewerColumnsAndWholeLines) {
  Screen screen{.is_terminal = true, .columns = 80, .rows = 24};
  Json document = StatusDocument();
  document["database"]["last_error"] = std::string(200, 'x') + " and " + std::string(30, 'y');
  const Result<std::string> text = RenderStatus(document, "", screen);
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text.value().find("COVERED"), std::string::npos) << text.value();
  EXPECT_EQ(text.value().find("MODE"), std::string::npos) << text.value();
  EXPECT_NE(text.value().find("\n          and yyy"), std::string::npos) << text.value();
  EXPECT_EQ(text.value().find('\x1b'), std::string::npos);
  screen.has_color = true;
  const Result<std::string> colored = RenderStatus(document, "", screen);
  ASSERT_TRUE(colored.ok());
  EXPECT_NE(colored.value().find("\x1b[32mok\x1b[0m"), std::string::npos) << colored.value();
}

TEST(RenderStatusTest, OneTagComesWithItsSegments) {
  Json document = StatusDocument();
  document["tags"].erase(1);
  Result<std::string> text = RenderStatus(document, "orders");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NE(text.value().find("\nSEGMENT  BASE  LIMIT  NEXT  LEFT\n"
                              "1           1   1001   121   880\n"
                              "2        1001   2001  1001  1000\n"),
            std::string::npos)
      << text.value();
}

TEST(RenderStatusTest, SegmentCursorsMayLieAnywhere) {
  Json document = StatusDocument();
  document["tags"].erase(1);
  document["tags"][0]["segments"][0]["next"] = 0x8000000000000000ULL;  // closed
  document["tags"][0]["segments"][1]["next"] = 0U;
  Result<std::string> text = RenderStatus(document, "orders");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NE(text.value().find("9223372036854775808     0\n"), std::string::npos) << text.value();
  EXPECT_NE(text.value().find("0  1000\n"), std::string::npos) << text.value();
}

TEST(RenderStatusTest, SaysSinceWhenAndWhyTheDatabaseIsDown) {
  Json document = StatusDocument();
  document["database"]["state"] = "down";
  document["database"]["last_error"] = "connection\nrefused";
  Result<std::string> text = RenderStatus(document, "");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NE(text.value().find("database  down for 12m, sqlite:/var/lib/idd/idd.db; last error: "
                              "connection\\x0arefused\n"),
            std::string::npos)
      << text.value();
}

TEST(RenderStatusTest, WithoutTagsSaysHowToMakeOne) {
  Json document = StatusDocument();
  document["tags"] = Json::array();
  Result<std::string> text = RenderStatus(document, "");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NE(text.value().find("no tags; create one with 'idctl tag create TAG'\n"),
            std::string::npos);
}

TEST(RenderStatusTest, ARequestedTagThatIsMissingIsNoSuchTag) {
  Json document = StatusDocument();
  document["tags"] = Json::array();
  EXPECT_EQ(RenderStatus(document, "orders").status().code(), Code::kNoSuchTag);
}

TEST(RenderStatusTest, SnowflakeTagsShowTheirTimeInATableOfTheirOwn) {
  const Result<std::string> text = RenderStatus(SnowflakeStatusDocument(), "");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NE(
      text.value().find(
          "\n\n"
          "TAG     MODE     STATE  STEP              CLAIMED  AVAILABLE  RATE/S  COVERED  FALLBACKS"
          "  LEASES\n"
          "x\\x0ay  segment  dry       5  9223372036854775806          0       0        -          "
          "7"
          "       1\n"
          "\n"
          "TAG     MODE       STATE  WORKER  TIME                  LEASED-UNTIL          CLOCK   "
          "FALLBACKS  LEASES\n"
          "orders  snowflake  ok          3  2026-11-25T03:00:00Z  2026-11-25T03:10:00Z  client  "
          "        0       2\n"
          "\n"
          "x\\x0ay: its ids end in"),
      std::string::npos)
      << text.value();
}

TEST(RenderStatusTest, SnowflakeTagFitsEightyColumns) {
  Json document = SnowflakeStatusDocument();
  document["tags"].erase(1);
  const Screen screen{.is_terminal = true, .columns = 80, .rows = 24};
  const Result<std::string> text = RenderStatus(document, "orders", screen);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_TRUE(text.value().ends_with(
      "\n\n"
      "TAG     STATE  WORKER  TIME                  LEASED-UNTIL          LEASES\n"
      "orders  ok          3  2026-11-25T03:00:00Z  2026-11-25T03:10:00Z       2\n"))
      << text.value() << "it has no segments of ids";
}

TEST(RenderStatusTest, UnusedSnowflakeTagHasNoWorker) {
  Json document = SnowflakeStatusDocument();
  document["tags"].erase(1);
  Json& tag = document["tags"][0];
  tag["snowflake"] = nullptr;  // this host has no worker id yet
  tag["exhausted_in_days"] = 17.5;
  const Result<std::string> text = RenderStatus(document, "");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NE(text.value().find("\norders  snowflake  ok          -  -     -             -  "),
            std::string::npos)
      << text.value();
  EXPECT_NE(text.value().find("\norders: the time bits of its layout end in 17d 12h\n"),
            std::string::npos)
      << text.value();
}

TEST(RenderTagTest, ShowsEveryFieldAndReturnedRanges) {
  Result<std::string> text = RenderTag(TagDocument());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "tag:               orders\n"
            "mode:              segment\n"
            "access:            socket\n"
            "step:              1000\n"
            "refill:            promise\n"
            "outage tolerance:  600 s\n"
            "max prefetch:      100000\n"
            "max step:          5000\n"
            "next id:           2001\n"
            "max id:            9223372036854775806\n"
            "description:       -\n"
            "updated:           2025-01-02 03:04:05\n"
            "\n"
            "RETURNED BY  BASE  LIMIT\n"
            "web-1         500   1001\n");
}

TEST(RenderTagTest, CreatedAndChangedTagsAreOneLine) {
  Result<std::string> text = RenderTagLine(TagDocument(), "created");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "created tag 'orders': mode segment, access socket, step 1000, next id 2001, max id "
            "9223372036854775806\n");
}

TEST(RenderTagTest, SnowflakeTagShowsItsLayoutAndWorkers) {
  const Result<std::string> text = RenderTag(SnowflakeTagDocument());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "tag:               orders\n"
            "mode:              snowflake\n"
            "access:            ring\n"
            "outage tolerance:  600 s\n"
            "layout:            41/10/12 (bits of time/worker/sequence)\n"
            "ids:               4096 per ms and host\n"
            "worker ids:        1024\n"
            "epoch:             2024-01-01T00:00:00.000Z\n"
            "ends:              2093-09-06T15:47:35.552Z\n"
            "clock:             claimers read the clock\n"
            "bursts:            ids may be up to 1s ahead of the clock\n"
            "description:       -\n"
            "updated:           2025-01-02 03:04:05\n"
            "\n"
            "WORKER  HOST   LEASED-UNTIL              STATE\n"
            "     3  web-1  2026-11-25T04:00:00.000Z  leased\n"
            "    12  web-2  2026-11-24T04:00:00.000Z  over\n");
  Json unused = SnowflakeTagDocument();
  unused["tag"]["workers"] = Json::array();
  EXPECT_EQ(RenderTag(unused).value().find("WORKER"), std::string::npos);
}

TEST(RenderTagTest, CreatedSnowflakeTagShowsItsLayoutInWords) {
  Json document = SnowflakeTagDocument();
  document["created"] = true;
  EXPECT_EQ(RenderCreatedTag(document).value(),
            "created tag 'orders': mode snowflake, access ring\n"
            "  layout:      41/10/12 (bits of time/worker/sequence)\n"
            "  ids:         4096 per ms and host\n"
            "  worker ids:  1024\n"
            "  epoch:       2024-01-01T00:00:00.000Z\n"
            "  ends:        2093-09-06T15:47:35.552Z\n"
            "  clock:       claimers read the clock\n"
            "  bursts:      ids may be up to 1s ahead of the clock\n");
}

TEST(RenderTagTest, LayoutInOtherWords) {
  Json document = SnowflakeTagDocument();
  Json& layout = document["tag"]["snowflake"];
  const auto shows = [&document](const char* line) {
    const std::string text = RenderTagLine(document, "changed").value();
    EXPECT_NE(text.find(line), std::string::npos) << text;
  };
  layout["unit_ms"] = 10U;
  shows("  ids:         4096 per 10 ms and host\n");
  layout["unit_ms"] = 1000U;
  shows("  ids:         4096 per s and host\n");
  layout["clock"] = "daemon";
  shows("  clock:       idd moves the time, claimers read no clock\n");
  layout["clock"] = "sun\ndial";
  shows("  clock:       sun\\x0adial\n");
  layout["max_ahead_ms"] = 500U;
  shows("up to 500ms ahead");
  layout["max_ahead_ms"] = 0U;
  shows("  bursts:      no id is ahead of the clock\n");
}

TEST(RenderTagTest, OlderDaemonHasNoLayouts) {
  const std::string before = RenderTag(TagDocument()).value();
  Json document = TagDocument();
  document["tag"]["snowflake"] = nullptr;
  EXPECT_EQ(RenderTag(document).value(), before);
}

TEST(RenderTagListTest, SnowflakeTagHasNoRange) {
  Json document = TagListDocument();
  document["tags"][0]["mode"] = "snowflake";
  document["tags"][0]["snowflake"] = Parse(kLayout);
  const Result<std::string> text = RenderTagList(document);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "TAG     MODE       ACCESS  STEP  NEXT-ID  MAX-ID  UPDATED              DESCRIPTION\n"
            "orders  snowflake  ring       -        -       -  2025-01-02 03:04:05  order ids\n");
}

TEST(RenderTagListTest, IsATable) {
  Result<std::string> text = RenderTagList(TagListDocument());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "TAG     MODE     ACCESS  STEP  NEXT-ID               MAX-ID  UPDATED              "
            "DESCRIPTION\n"
            "orders  segment  ring    1000     2001  9223372036854775806  2025-01-02 03:04:05  "
            "order ids\n");
}

TEST(RenderLeasesTest, AnActiveLeaseIsNotClosed) {
  Result<std::string> text = RenderLeases(LeaseDocument());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "TAG     HOST   STATE   BASE  LIMIT  CLAIMED  RETURNED  ABANDONED  LEASED           "
            "    CLOSED  TOKEN\n"
            "orders  web-1  active     1   1001      120         0          0  "
            "2025-01-02 03:04:05  -       00ff\n");
}

TEST(RenderLeasesTest, ANarrowTerminalGetsTheColumnsThatMatterMost) {
  Result<std::string> text = RenderLeases(LeaseDocument(), 80);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "TAG     HOST   STATE   BASE  LIMIT  CLAIMED  ABANDONED  LEASED\n"
            "orders  web-1  active     1   1001      120          0  2025-01-02 03:04:05\n");
}

TEST(RenderHostsTest, IsATable) {
  Result<std::string> text = RenderHosts(HostDocument());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "HOST   STATE  FIRST-SEEN           LAST-SEEN            BOOT-ID\n"
            "web-1  live   2025-01-02 03:04:05  2025-01-02 03:05:06  b-1\n");
}

TEST(RenderHostsTest, ANarrowTerminalGetsWhoAndWhen) {
  const Result<std::string> text = RenderHosts(HostDocument(), 50);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "HOST   STATE  LAST-SEEN\n"
            "web-1  live   2025-01-02 03:05:06\n");
}

TEST(RenderHostsTest, AStoreWithoutBootIdsHasNone) {
  Json document = HostDocument();
  document["hosts"][0]["boot_id"] = nullptr;
  Result<std::string> text = RenderHosts(document);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_TRUE(text.value().ends_with("03:05:06  -\n")) << text.value();
}

TEST(RenderWhoIsTest, ShowsEveryLeaseThatHasTheId) {
  Result<std::string> text = RenderWhoIs(WhoIsDocument());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(
      text.value(),
      "id 130 of tag 'orders'\n"
      "\n"
      "ID-STATE  HOST   LEASE     BASE  LIMIT  CLAIMED  RETURNED  ABANDONED  LEASED           "
      "    CLOSED               TOKEN\n"
      "active    web-2  active     121   1001        0         0          0  "
      "2025-01-02 03:05:06  -                    01\n"
      "returned  web-1  returned     1   1001      120       880          0  "
      "2025-01-02 03:04:05  2025-01-02 03:05:00  00ff\n");
  EXPECT_TRUE(WhoIsVerdict(WhoIsDocument()).ok());
}

TEST(RenderWhoIsTest, SnowflakeIdShowsItsPartsAndWindowsOfTime) {
  const Result<std::string> text = RenderWhoIs(SnowflakeWhoIsDocument(), 80);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "id 383123456789012345 of tag 'orders'\n"
            "time 2026-11-25T03:00:00.123Z, worker 3, sequence 17\n"
            "\n"
            "ID-STATE  HOST   LEASE   FROM                      TO\n"
            "claimed   web-1  active  2026-11-25T03:00:00.000Z  2026-11-25T03:10:00.000Z\n");
  EXPECT_TRUE(WhoIsVerdict(SnowflakeWhoIsDocument()).ok());
}

TEST(RenderWhoIsTest, SnowflakeIdWithoutALeaseStillHasParts) {
  Json document = SnowflakeWhoIsDocument();
  document["leases"] = Json::array();
  document["reason"] = "it is not leased yet";
  const Result<std::string> text = RenderWhoIs(document);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "id 383123456789012345 of tag 'orders'\n"
            "time 2026-11-25T03:00:00.123Z, worker 3, sequence 17\n");
  EXPECT_FALSE(WhoIsVerdict(document).ok());
}

TEST(RenderWhoIsTest, OtherModesHaveNoParts) {
  const std::string before = RenderWhoIs(WhoIsDocument()).value();
  Json document = WhoIsDocument();
  document["parts"] = nullptr;
  for (Json& lease : document["leases"]) lease["from"] = lease["to"] = nullptr;
  EXPECT_EQ(RenderWhoIs(document).value(), before);
}

TEST(RenderDecodeTest, ShowsThePartsOfEachId) {
  const Result<std::string> text = RenderDecode(DecodeDocument());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "                ID  TIME                      WORKER  SEQUENCE\n"
            "383123456789012345  2026-11-25T03:00:00.123Z       3        17\n"
            "                 1  2024-01-01T00:00:00.000Z       0         1\n");
  EXPECT_TRUE(DecodeVerdict(DecodeDocument()).ok());
}

TEST(RenderDecodeTest, AnIdThatDoesNotFitFailsAndTheOthersAreShown) {
  Json document = DecodeDocument();
  document["parts"][1] = {{"id", 9007199254740993U}, {"error", "it has more than 53 bits"}};
  const Result<std::string> text = RenderDecode(document);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "                ID  TIME                      WORKER  SEQUENCE\n"
            "383123456789012345  2026-11-25T03:00:00.123Z       3        17\n"
            "  9007199254740993  -                              -         -\n");
  const Status verdict = DecodeVerdict(document);
  EXPECT_EQ(ExitFor(verdict.code()), ExitStatus::kFailed);
  EXPECT_TRUE(verdict.message().starts_with("id 9007199254740993: it has more than 53 bits; "))
      << verdict.message();
  document["parts"][0] = document["parts"][1];
  EXPECT_TRUE(DecodeVerdict(document).message().starts_with("2 ids do not fit the layout, the "))
      << DecodeVerdict(document).message();
}

TEST(RenderWhoIsTest, AnIdWithoutALeaseFailsWithTheReason) {
  Json document = WhoIsDocument();
  document["leases"] = Json::array();
  document["reason"] = "it is not leased yet";
  Result<std::string> text = RenderWhoIs(document);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(), "");
  const Status verdict = WhoIsVerdict(document);
  EXPECT_EQ(ExitFor(verdict.code()), ExitStatus::kFailed);
  EXPECT_NE(verdict.message().find("it is not leased yet"), std::string::npos);
}

TEST(RenderAuditTest, ShowsTheSumAndTheVerdict) {
  Result<std::string> text = RenderAudit(AuditDocument());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "TAG     LEASED  CLAIMED  AVAILABLE  RETURNED  ABANDONED  ADDS-UP\n"
            "orders      10        1          2         3          4  yes\n"
            "\n"
            "ok\n");
  EXPECT_TRUE(AuditVerdict(AuditDocument()).ok());
}

TEST(RenderAuditTest, ANarrowTerminalGetsTheVerdictAndTheLoss) {
  const Result<std::string> text = RenderAudit(AuditDocument(), 40);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "TAG     LEASED  ABANDONED  ADDS-UP\n"
            "orders      10          4  yes\n"
            "\n"
            "ok\n");
}

TEST(RenderAuditTest, FindingsArePrintedAndFail) {
  Json document = AuditDocument();
  document["ok"] = false;
  document["findings"] = {"orders: 1 id too many", "a\nb"};
  Result<std::string> text = RenderAudit(document);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_NE(text.value().find("\nnot ok\norders: 1 id too many\na\\x0ab\n"), std::string::npos);
  const Status verdict = AuditVerdict(document);
  EXPECT_EQ(ExitFor(verdict.code()), ExitStatus::kFailed);
  EXPECT_NE(verdict.message().find("2 findings"), std::string::npos);
}

TEST(RenderAuditTest, AnOkThatDoesNotAddUpIsNotBelieved) {
  Json document = AuditDocument();
  document["tags"][0]["claimed"] = 2;
  EXPECT_EQ(ExitFor(AuditVerdict(document).code()), ExitStatus::kFailed);
  document["tags"][0]["claimed"] = 0xffffffffffffffffULL;  // the sum wraps round
  EXPECT_EQ(ExitFor(AuditVerdict(document).code()), ExitStatus::kFailed);
}

TEST(RenderImportTest, ShowsWhatBecameOfEachRow) {
  Result<std::string> text = RenderImport(ImportDocument());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "TAG  ACTION   NEXT-ID  STEP  WHY\n"
            "new  created       11     5  -\n"
            "low  lifted      5001    10  was at 100; moved while importing\n"
            "\n"
            "2 rows of tinyid, 0 refused\n");
  EXPECT_TRUE(ImportVerdict(ImportDocument()).ok());
}

TEST(RenderImportTest, ANarrowTerminalKeepsTheReasons) {
  const Result<std::string> text = RenderImport(ImportDocument(), 50);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_TRUE(
      text.value().starts_with("TAG  ACTION   WHY\n"
                               "new  created  -\n"
                               "low  lifted   was at 100; moved while importing\n"))
      << text.value();
}

TEST(RenderImportTest, RefusedRowsAndWarningsFail) {
  Json document = ImportDocument();
  document["dry_run"] = true;
  document["tags"][0] = {{"tag", ""},       {"action", "refused"},
                         {"from", nullptr}, {"next_id", nullptr},
                         {"step", nullptr}, {"reason", "biz_type is NULL"}};
  document["tags"][1]["action"] = "would lift";
  Result<std::string> text = RenderImport(document);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text.value(),
            "TAG  ACTION      NEXT-ID  STEP  WHY\n"
            "-    refused           -     -  biz_type is NULL\n"
            "low  would lift     5001    10  was at 100; moved while importing\n"
            "\n"
            "2 rows of tinyid, 1 refused; nothing was written\n");
  EXPECT_NE(ImportVerdict(document).message().find("1 row was refused"), std::string::npos);
  document = ImportDocument();
  document["warnings"] = {"it moved", "a\nb"};
  EXPECT_NE(RenderImport(document).value().find("\nwarning: it moved\nwarning: a\\x0ab\n"),
            std::string::npos);
  EXPECT_EQ(ImportVerdict(document).message(), "it moved");
  EXPECT_EQ(ExitFor(ImportVerdict(document).code()), ExitStatus::kFailed);
}

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
  for (const char* name : {"last_error", "since_s", "covered_s", "exhausted_in_days", "closed_at",
                           "description", "boot_id", "reason", "/snowflake", "parts", "counter",
                           "/snowflake/worker", "time", "leased_until", "until"}) {
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
