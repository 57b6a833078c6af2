// SPDX-License-Identifier: Apache-2.0
//
// idctl's output for documents of the daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "commands/commands.h"
#include "support/idctl_documents.h"

namespace idd::tools {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Shown(const Result<std::string>& text) {
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? text.value() : "";
}

class RenderStatusTest : public ::testing::Test {
 protected:
  Json document_ = StatusDocument();
};

TEST_F(RenderStatusTest, AnswersInThreeParts) {
  const std::string text = Shown(RenderStatus(StatusDocument(), ""));
  EXPECT_EQ(text,
            "daemon    idd 0.1.0, up 12m 3s, pid 4711, host web-1, socket /run/idd/idd.sock\n"
            "database  up for 12m, sqlite:/var/lib/idd/idd.db\n"
            "\n"
            "TAG     MODE     STATE  STEP              CLAIMED  AVAILABLE  RATE/S        "
            "COVERED  FALLBACKS  LEASES\n"
            "orders  segment  short  1000                  120       1880      13  "
            "2m 30s of 10m          0       2\n"
            "x\\x0ay  segment  dry       5  9223372036854775806          0       0        "
            "      -          7       1\n"
            "\n"
            "x\\x0ay: its ids end in 17d 12h at this rate\n"
            "x\\x0ay: last error: database is locked\n");
}

// "2m 30s of 1m 30s (10m)" was read as a promise that is broken.
TEST_F(RenderStatusTest, PromiseThatStillGrowsIsExplainedBelowItsTag) {
  document_["tags"].erase(1);
  document_["tags"][0]["promise"]["length_s"] = 90;
  document_["tags"][0]["promise"]["kept"] = true;
  std::string text = Shown(RenderStatus(document_, "orders"));
  EXPECT_THAT(text, HasSubstr("orders  segment  ok "));
  EXPECT_THAT(text, HasSubstr(" 2m 30s  "));
  EXPECT_THAT(text, Not(HasSubstr("2m 30s of")));
  EXPECT_THAT(text, HasSubstr("promise kept: ids for 1m 30s without the store, as long as the load "
                              "has lasted; at most 10m\n"));
  document_["tags"][0]["promise"]["length_s"] = 600;
  document_["tags"][0]["promise"]["kept"] = false;
  text = Shown(RenderStatus(document_, "orders"));
  EXPECT_THAT(text, HasSubstr("orders  segment  short "));
  EXPECT_THAT(text, HasSubstr(" 2m 30s of 10m  "));
  EXPECT_THAT(text, HasSubstr("promise not kept: ids for 10m without the store\n"));
}

TEST_F(RenderStatusTest, NarrowTerminalGetsFewerColumnsAndWholeLines) {
  Screen screen{.is_terminal = true, .columns = 80, .rows = 24};
  Json document = StatusDocument();
  document["database"]["last_error"] = std::string(200, 'x') + " and " + std::string(30, 'y');
  const std::string text = Shown(RenderStatus(document, "", screen));
  EXPECT_THAT(text, HasSubstr("COVERED"));
  EXPECT_THAT(text, Not(HasSubstr("MODE")));
  EXPECT_THAT(text, HasSubstr("\n          and yyy"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  screen.has_color = true;
  const std::string colored = Shown(RenderStatus(document, "", screen));
  EXPECT_THAT(colored, HasSubstr("\x1b[33mshort\x1b[0m"));
}

TEST_F(RenderStatusTest, OneTagComesWithItsSegments) {
  document_["tags"].erase(1);
  const std::string text = Shown(RenderStatus(document_, "orders"));
  EXPECT_THAT(text, HasSubstr("\nSEGMENT  BASE  LIMIT  NEXT  LEFT\n"
                              "1           1   1001   121   880\n"
                              "2        1001   2001  1001  1000\n"));
}

TEST_F(RenderStatusTest, SegmentCursorsMayLieAnywhere) {
  document_["tags"].erase(1);
  document_["tags"][0]["segments"][0]["next"] = 0x8000000000000000ULL;  // closed
  document_["tags"][0]["segments"][1]["next"] = 0U;
  const std::string text = Shown(RenderStatus(document_, "orders"));
  EXPECT_THAT(text, HasSubstr("9223372036854775808     0\n"));
  EXPECT_THAT(text, HasSubstr("0  1000\n"));
}

TEST_F(RenderStatusTest, SaysSinceWhenAndWhyTheDatabaseIsDown) {
  document_["database"]["state"] = "down";
  document_["database"]["last_error"] = "connection\nrefused";
  const std::string text = Shown(RenderStatus(document_, ""));
  EXPECT_THAT(text, HasSubstr("database  down for 12m, sqlite:/var/lib/idd/idd.db; last error: "
                              "connection\\x0arefused\n"));
}

TEST_F(RenderStatusTest, NamesTheWitnessesAndTheTerm) {
  document_["database"]["agreement"] = AgreementDocument();
  const std::string text = Shown(RenderStatus(document_, ""));
  EXPECT_THAT(text, HasSubstr("\nwitnesses web-1, web-2, web-3; term 17, begun by web-1\n"));
  EXPECT_THAT(text, Not(HasSubstr("leasing ")));
  document_["database"]["agreement"] = nullptr;  // a SQLite file
  EXPECT_THAT(RenderStatus(document_, "").value(), Not(HasSubstr("witnesses")));
}

TEST_F(RenderStatusTest, SaysWhyLeasingWaitsForWitnesses) {
  Json agreement = AgreementDocument();
  agreement["witnesses"][1]["is_there"] = false;
  agreement["witnesses"][1]["silent_s"] = 120;
  agreement["witnesses"][2]["is_there"] = false;
  agreement["next"] = Json::array({"web-1", "web-4", "web-5"});
  agreement["has_majority"] = false;
  agreement["reason"] = "the next ceiling\nwaits";
  document_["database"]["agreement"] = agreement;
  std::string text = Shown(RenderStatus(document_, ""));
  EXPECT_THAT(
      text, HasSubstr("witnesses web-1, web-2 (silent for 2m), web-3 (not in this term yet); term "
                      "17, begun by web-1; next web-1, web-4, web-5\n"));
  EXPECT_THAT(
      text, HasSubstr("leasing   only below the active ceilings: the next ceiling\\x0awaits; start "
                      "the witnesses, or replace those that will not return with 'idctl witness "
                      "set --force HOST...'\n"));
  agreement["state"] = "waiting";
  agreement["has_majority"] = true;
  document_["database"]["agreement"] = agreement;
  text = Shown(RenderStatus(document_, ""));
  EXPECT_THAT(text, HasSubstr("leasing   waits: the next ceiling\\x0awaits\n"));
}

TEST(RenderWitnessesTest, ShowsHostsAndTheTerm) {
  const std::string text = Shown(RenderWitnesses(AgreementDocument()));
  EXPECT_EQ(text,
            "HOST   STATE\n"
            "web-1  there\n"
            "web-2  there\n"
            "web-3  there\n"
            "\n"
            "term 17, begun by web-1; 3 of 3 witnesses are there, a majority\n");
}

TEST(RenderWitnessesTest, ShowsWhatIsMissingAndWhatFollows) {
  Json document = AgreementDocument();
  document["witnesses"][1]["is_there"] = false;
  document["witnesses"][1]["silent_s"] = 120;
  document["witnesses"][2]["is_there"] = false;
  document["next"] = Json::array({"web-1", "web-4", "web-5"});
  document["has_majority"] = false;
  document["reason"] = "nothing is noted";
  std::string text = Shown(RenderWitnesses(document));
  EXPECT_THAT(text, HasSubstr("web-2  silent for 2m\nweb-3  not in this term yet\n"));
  EXPECT_THAT(text,
              HasSubstr("1 of 3 witnesses are there, no majority\n"
                        "next: web-1, web-4, web-5, as soon as majorities of the present witnesses "
                        "and of these note it\n"
                        "leasing only below the active ceilings: nothing is noted\n"));
  document["state"] = "waiting";
  document["witnesses"] = Json::array({document["witnesses"][0]});
  document["has_majority"] = true;
  text = Shown(RenderWitnesses(document));
  EXPECT_THAT(text, HasSubstr("the only witness is there\n"));
  EXPECT_THAT(text, HasSubstr("leasing waits: nothing is noted\n"));
  document.erase("term");
  EXPECT_FALSE(RenderWitnesses(document).ok());
}

TEST_F(RenderStatusTest, WithoutTagsSaysHowToMakeOne) {
  document_["tags"] = Json::array();
  const std::string text = Shown(RenderStatus(document_, ""));
  EXPECT_THAT(text, HasSubstr("no tags; create one with 'idctl tag create TAG'\n"));
}

TEST_F(RenderStatusTest, ARequestedTagThatIsMissingIsNoSuchTag) {
  document_["tags"] = Json::array();
  EXPECT_EQ(RenderStatus(document_, "orders").status().code(), Code::kNoSuchTag);
}

TEST_F(RenderStatusTest, SnowflakeTagsShowTheirTimeInATableOfTheirOwn) {
  const std::string text = Shown(RenderStatus(SnowflakeStatusDocument(), ""));
  EXPECT_THAT(
      text,
      HasSubstr(
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
          "x\\x0ay: its ids end in"));
}

TEST_F(RenderStatusTest, SnowflakeTagFitsEightyColumns) {
  Json document = SnowflakeStatusDocument();
  document["tags"].erase(1);
  const Screen screen{.is_terminal = true, .columns = 80, .rows = 24};
  const std::string text = Shown(RenderStatus(document, "orders", screen));
  EXPECT_THAT(
      text, EndsWith("\n\n"
                     "TAG     STATE  WORKER  TIME                  LEASED-UNTIL          LEASES\n"
                     "orders  ok          3  2026-11-25T03:00:00Z  2026-11-25T03:10:00Z       2\n"))
      << "it has no segments of ids";
}

TEST_F(RenderStatusTest, UnusedSnowflakeTagHasNoWorker) {
  Json document = SnowflakeStatusDocument();
  document["tags"].erase(1);
  Json& tag = document["tags"][0];
  tag["snowflake"] = nullptr;  // this host has no worker id yet
  tag["exhausted_in_days"] = 17.5;
  const std::string text = Shown(RenderStatus(document, ""));
  EXPECT_THAT(text, HasSubstr("\norders  snowflake  ok          -  -     -             -  "));
  EXPECT_THAT(text, HasSubstr("\norders: the time bits of its layout end in 17d 12h\n"));
}

TEST(RenderTagTest, ShowsEveryFieldAndReturnedRanges) {
  const std::string text = Shown(RenderTag(TagDocument()));
  EXPECT_EQ(text,
            "tag:               orders\n"
            "mode:              segment\n"
            "access:            socket\n"
            "order:             host\n"
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
  const std::string text = Shown(RenderTagLine(TagDocument(), "created"));
  EXPECT_EQ(text,
            "created tag 'orders': mode segment, access socket, step 1000, next id 2001, max id "
            "9223372036854775806\n");
}

TEST(RenderTagTest, SnowflakeTagShowsItsLayoutAndWorkers) {
  const std::string text = Shown(RenderTag(SnowflakeTagDocument()));
  EXPECT_EQ(text,
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
  EXPECT_THAT(RenderTag(unused).value(), Not(HasSubstr("WORKER")));
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
    const std::string text = Shown(RenderTagLine(document, "changed"));
    EXPECT_THAT(text, HasSubstr(line));
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
  const std::string before = Shown(RenderTag(TagDocument()));
  Json document = TagDocument();
  document["tag"]["snowflake"] = nullptr;
  EXPECT_EQ(RenderTag(document).value(), before);
}

TEST(RenderTagListTest, SnowflakeTagHasNoRange) {
  Json document = TagListDocument();
  document["tags"][0]["mode"] = "snowflake";
  document["tags"][0]["snowflake"] = Parse(kLayout);
  const std::string text = Shown(RenderTagList(document));
  EXPECT_EQ(text,
            "TAG     MODE       ACCESS  STEP  NEXT-ID  MAX-ID  UPDATED              DESCRIPTION\n"
            "orders  snowflake  ring       -        -       -  2025-01-02 03:04:05  order ids\n");
}

TEST(RenderTagListTest, IsATable) {
  const std::string text = Shown(RenderTagList(TagListDocument()));
  EXPECT_EQ(text,
            "TAG     MODE     ACCESS  STEP  NEXT-ID               MAX-ID  UPDATED              "
            "DESCRIPTION\n"
            "orders  segment  ring    1000     2001  9223372036854775806  2025-01-02 03:04:05  "
            "order ids\n");
}

TEST(RenderLeasesTest, AnActiveLeaseIsNotClosed) {
  Json document = LeaseDocument();
  document["leases"][0]["host_name"] = "web-1.example";
  const std::string text = Shown(RenderLeases(document));
  EXPECT_EQ(text,
            "TAG     HOST   STATE   BASE  LIMIT  CLAIMED  RETURNED  ABANDONED  LEASED           "
            "    CLOSED  NAME           TOKEN\n"
            "orders  web-1  active     1   1001      120         0          0  "
            "2025-01-02 03:04:05  -       web-1.example  00ff\n");
}

TEST(RenderLeasesTest, ANarrowTerminalGetsTheColumnsThatMatterMost) {
  const std::string text = Shown(RenderLeases(LeaseDocument(), 80));
  EXPECT_EQ(text,
            "TAG     HOST   STATE   BASE  LIMIT  CLAIMED  ABANDONED  LEASED\n"
            "orders  web-1  active     1   1001      120          0  2025-01-02 03:04:05\n");
}

TEST(RenderHostsTest, IsATable) {
  const std::string text = Shown(RenderHosts(NamedHostDocument()));
  EXPECT_EQ(text,
            "HOST   NAME           ADDRESS   STATE   VERSION  FIRST-SEEN           LAST-SEEN     "
            "       BOOT-ID\n"
            "web-1  web-1.example  10.0.0.1  silent  0.1.0    2025-01-02 03:04:05  2025-01-02 "
            "03:05:06  b-1\n");
}

TEST(RenderHostsTest, ANarrowTerminalGetsWhoAndHow) {
  std::string text = Shown(RenderHosts(NamedHostDocument(), 50));
  EXPECT_EQ(text,
            "HOST   NAME           ADDRESS   STATE   VERSION\n"
            "web-1  web-1.example  10.0.0.1  silent  0.1.0\n");
  text = Shown(RenderHosts(NamedHostDocument(), 25));
  EXPECT_EQ(text,
            "NAME           STATE\n"
            "web-1.example  silent\n");
}

TEST(RenderHostsTest, AnOlderDaemonKnowsOnlyTheirIds) {
  Json document = HostDocument();
  document["hosts"][0]["boot_id"] = nullptr;
  std::string text = Shown(RenderHosts(document));
  EXPECT_THAT(text, EndsWith("03:05:06  -\n"));
  text = Shown(RenderHosts(document, 20));
  EXPECT_EQ(text,
            "HOST   NAME  STATE\n"
            "web-1  -     live\n");
}

TEST(RenderForgottenTest, SaysWhatBecameOfTheLeases) {
  const Json document = Parse(
      R"({"host": "h1", "state": "silent", "name": "web-1", "leases": 1, "ids": 100,
          "returned_ids": 0})");
  const std::string text = Shown(RenderForgotten(document, "web-1"));
  EXPECT_EQ(text,
            "forgot host 'web-1'\n"
            "1 lease of it, with 100 ids, and 0 returned ids are abandoned; no host leases these "
            "ids again\n");
  EXPECT_EQ(RenderForgotten(Parse(R"({"host": "h1", "state": "silent"})"), "h1").value(),
            "forgot host 'h1'\n");
  EXPECT_FALSE(RenderForgotten(Parse(R"({"leases": "x", "ids": 1, "returned_ids": 1})"), "h").ok());
}

TEST(RenderClusterTest, ShowsHostsAndTags) {
  const std::string text = Shown(RenderCluster(ClusterDocument()));
  EXPECT_EQ(text,
            "hosts     3: 2 live, 1 silent; idd 0.1.0 on 2\n"
            "leases    3 active with 3000 ids; of 5000 leased ids 1000 claimed, 500 returned, 500 "
            "abandoned (10.0 %)\n"
            "tags      2, 13 ids/s; 1 short: a host holds fewer ids than promised\n"
            "\n"
            "HOST  NAME   STATE   VERSION  LAST-SEEN   LEASES  HELD  SHORT-TAGS\n"
            "h2    web-2  silent  0.1.0    2m 10s ago       1  1000           0\n"
            "h1    web-1  live    0.1.0    7s ago           2  2000           1\n"
            "\n"
            "TAG     MODE     RATE/S  HOSTS  LEASES  HELD  ABANDONED  NEXT  ENDS-IN  SHORT-HOSTS\n"
            "orders  segment      13      2       3  3000        500  5001   1d 12h            1\n"
            "\n"
            "Not shown: 1 host and 1 tag; --limit shows more.\n");
}

TEST(RenderClusterTest, WhatIsNotShownToThePeerIsLeftOut) {
  Json document = ClusterDocument();
  for (Json& host : document["hosts"]) {
    for (const char* const key : {"active_leases", "held_ids", "short_tags"}) host[key] = nullptr;
  }
  document["tags"][0]["mode"] = nullptr;
  const std::string text = Shown(RenderCluster(document));
  EXPECT_THAT(text, HasSubstr("7s ago           -     -           -\n"));
  EXPECT_THAT(text, HasSubstr("orders  deleted"));
}

TEST(RenderClusterTest, AMalformedCountIsAnError) {
  for (const char* const path :
       {"/cluster/conditions/live", "/cluster/versions", "/cluster/leased_ids", "/hosts/0/silent_s",
        "/hosts/0/held_ids", "/tags/0/short_hosts", "/more_tags", "/age_ms"}) {
    Json document = ClusterDocument();
    document[Json::json_pointer(path)] = "text";
    EXPECT_FALSE(RenderCluster(document).ok()) << path;
  }
}

TEST(RenderWhoIsTest, ShowsEveryLeaseThatHasTheId) {
  const std::string text = Shown(RenderWhoIs(WhoIsDocument()));
  EXPECT_EQ(
      text,
      "id 130 of tag 'orders'\n"
      "\n"
      "ID-STATE  HOST   LEASE     BASE  LIMIT  CLAIMED  RETURNED  ABANDONED  LEASED           "
      "    CLOSED               NAME  TOKEN\n"
      "active    web-2  active     121   1001        0         0          0  "
      "2025-01-02 03:05:06  -                    -     01\n"
      "returned  web-1  returned     1   1001      120       880          0  "
      "2025-01-02 03:04:05  2025-01-02 03:05:00  -     00ff\n");
  EXPECT_TRUE(WhoIsVerdict(WhoIsDocument()).ok());
}

TEST(RenderWhoIsTest, SnowflakeIdShowsItsPartsAndWindowsOfTime) {
  const std::string text = Shown(RenderWhoIs(SnowflakeWhoIsDocument(), 80));
  EXPECT_EQ(text,
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
  const std::string text = Shown(RenderWhoIs(document));
  EXPECT_EQ(text,
            "id 383123456789012345 of tag 'orders'\n"
            "time 2026-11-25T03:00:00.123Z, worker 3, sequence 17\n");
  EXPECT_FALSE(WhoIsVerdict(document).ok());
}

TEST(RenderWhoIsTest, OtherModesHaveNoParts) {
  const std::string before = Shown(RenderWhoIs(WhoIsDocument()));
  Json document = WhoIsDocument();
  document["parts"] = nullptr;
  for (Json& lease : document["leases"]) lease["from"] = lease["to"] = nullptr;
  EXPECT_EQ(RenderWhoIs(document).value(), before);
}

TEST(RenderDecodeTest, ShowsThePartsOfEachId) {
  const std::string text = Shown(RenderDecode(DecodeDocument()));
  EXPECT_EQ(text,
            "                ID  TIME                      WORKER  SEQUENCE\n"
            "383123456789012345  2026-11-25T03:00:00.123Z       3        17\n"
            "                 1  2024-01-01T00:00:00.000Z       0         1\n");
  EXPECT_TRUE(DecodeVerdict(DecodeDocument()).ok());
}

TEST(RenderDecodeTest, AnIdThatDoesNotFitFailsAndTheOthersAreShown) {
  Json document = DecodeDocument();
  document["parts"][1] = {{"id", 9007199254740993U}, {"error", "it has more than 53 bits"}};
  const std::string text = Shown(RenderDecode(document));
  EXPECT_EQ(text,
            "                ID  TIME                      WORKER  SEQUENCE\n"
            "383123456789012345  2026-11-25T03:00:00.123Z       3        17\n"
            "  9007199254740993  -                              -         -\n");
  const Status verdict = DecodeVerdict(document);
  EXPECT_EQ(ExitFor(verdict.code()), ExitStatus::kFailed);
  EXPECT_THAT(verdict.message(), StartsWith("id 9007199254740993: it has more than 53 bits; "));
  document["parts"][0] = document["parts"][1];
  EXPECT_THAT(DecodeVerdict(document).message(), StartsWith("2 ids do not fit the layout, the "));
}

TEST(RenderWhoIsTest, AnIdWithoutALeaseFailsWithTheReason) {
  Json document = WhoIsDocument();
  document["leases"] = Json::array();
  document["reason"] = "it is not leased yet";
  const std::string text = Shown(RenderWhoIs(document));
  EXPECT_EQ(text, "");
  const Status verdict = WhoIsVerdict(document);
  EXPECT_EQ(ExitFor(verdict.code()), ExitStatus::kFailed);
  EXPECT_THAT(verdict.message(), HasSubstr("it is not leased yet"));
}

TEST(RenderAuditTest, ShowsTheSumAndTheVerdict) {
  const std::string text = Shown(RenderAudit(AuditDocument()));
  EXPECT_EQ(text,
            "TAG     LEASED  CLAIMED  AVAILABLE  RETURNED  ABANDONED  ADDS-UP\n"
            "orders      10        1          2         3          4  yes\n"
            "\n"
            "ok\n");
  EXPECT_TRUE(AuditVerdict(AuditDocument()).ok());
}

TEST(RenderAuditTest, ANarrowTerminalGetsTheVerdictAndTheLoss) {
  const std::string text = Shown(RenderAudit(AuditDocument(), 40));
  EXPECT_EQ(text,
            "TAG     LEASED  ABANDONED  ADDS-UP\n"
            "orders      10          4  yes\n"
            "\n"
            "ok\n");
}

TEST(RenderAuditTest, FindingsArePrintedAndFail) {
  Json document = AuditDocument();
  document["ok"] = false;
  document["findings"] = {"orders: 1 id too many", "a\nb"};
  const std::string text = Shown(RenderAudit(document));
  EXPECT_THAT(text, HasSubstr("\nnot ok\norders: 1 id too many\na\\x0ab\n"));
  const Status verdict = AuditVerdict(document);
  EXPECT_EQ(ExitFor(verdict.code()), ExitStatus::kFailed);
  EXPECT_THAT(verdict.message(), HasSubstr("2 findings"));
}

TEST(RenderAuditTest, AnOkThatDoesNotAddUpIsNotBelieved) {
  Json document = AuditDocument();
  document["tags"][0]["claimed"] = 2;
  EXPECT_EQ(ExitFor(AuditVerdict(document).code()), ExitStatus::kFailed);
  document["tags"][0]["claimed"] = 0xffffffffffffffffULL;  // the sum wraps round
  EXPECT_EQ(ExitFor(AuditVerdict(document).code()), ExitStatus::kFailed);
}

TEST(RenderImportTest, ShowsWhatBecameOfEachRow) {
  const std::string text = Shown(RenderImport(ImportDocument()));
  EXPECT_EQ(text,
            "TAG  ACTION   NEXT-ID  STEP  WHY\n"
            "new  created       11     5  -\n"
            "low  lifted      5001    10  was at 100; moved while importing\n"
            "\n"
            "2 rows of tinyid, 0 refused\n");
  EXPECT_TRUE(ImportVerdict(ImportDocument()).ok());
}

TEST(RenderImportTest, ANarrowTerminalKeepsTheReasons) {
  const std::string text = Shown(RenderImport(ImportDocument(), 50));
  EXPECT_THAT(text, StartsWith("TAG  ACTION   WHY\n"
                               "new  created  -\n"
                               "low  lifted   was at 100; moved while importing\n"));
}

TEST(RenderImportTest, RefusedRowsAndWarningsFail) {
  Json document = ImportDocument();
  document["dry_run"] = true;
  document["tags"][0] = {{"tag", ""},       {"action", "refused"},
                         {"from", nullptr}, {"next_id", nullptr},
                         {"step", nullptr}, {"reason", "biz_type is NULL"}};
  document["tags"][1]["action"] = "would lift";
  const std::string text = Shown(RenderImport(document));
  EXPECT_EQ(text,
            "TAG  ACTION      NEXT-ID  STEP  WHY\n"
            "-    refused           -     -  biz_type is NULL\n"
            "low  would lift     5001    10  was at 100; moved while importing\n"
            "\n"
            "2 rows of tinyid, 1 refused; nothing was written\n");
  EXPECT_THAT(ImportVerdict(document).message(), HasSubstr("1 row was refused"));
  document = ImportDocument();
  document["warnings"] = {"it moved", "a\nb"};
  EXPECT_THAT(RenderImport(document).value(), HasSubstr("\nwarning: it moved\nwarning: a\\x0ab\n"));
  EXPECT_EQ(ImportVerdict(document).message(), "it moved");
  EXPECT_EQ(ExitFor(ImportVerdict(document).code()), ExitStatus::kFailed);
}

}  // namespace
}  // namespace idd::tools
