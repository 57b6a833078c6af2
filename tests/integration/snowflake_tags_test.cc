// SPDX-License-Identifier: Apache-2.0
//
// Tags of mode snowflake through idctl: what each command answers, and what the commands of a tag's
// life do to its worker ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.hpp"
#include "support/host.h"
#include "support/managed_host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

class SnowflakeTags : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "events", "--mode", "snowflake"});
  }

  [[nodiscard]] nlohmann::json PartsOf(const Host& host, std::uint64_t id) const {
    return host.idctl.Json({"decode", "events", std::to_string(id)}).at("parts").at(0);
  }
  [[nodiscard]] std::uint64_t WorkerOf(const Host& host, std::uint64_t id) const {
    return PartsOf(host, id).at("worker");
  }
  void ExpectAuditAddsUp() const {
    const IdctlResult audit = host_.idctl.Run({"audit"});
    EXPECT_EQ(audit.exit_status, 0) << audit.out << audit.err;
  }

  const TempDir dir_;
  Host host_{dir_};
};

TEST_F(SnowflakeTags, CreateShowsTheLayoutInWords) {
  const IdctlResult created = host_.idctl.Run(
      {"tag", "create", "js", "--mode", "snowflake", "--layout", "41/5/7", "--clock", "daemon"});
  ASSERT_EQ(created.exit_status, 0) << created.err;
  for (const char* line :
       {"created tag 'js': mode snowflake", "41/5/7", "128 per ms and host", "worker ids:  32",
        "2093-09-06T15:47:35.552Z", "claimers read no clock"}) {
    EXPECT_THAT(created.out, HasSubstr(line));
  }
  EXPECT_LT(host_.idctl.Claim("js").front(), std::uint64_t{1} << 53);
}

TEST_F(SnowflakeTags, ImpossibleLayoutsAreRefused) {
  struct Refused {
    std::vector<std::string> options;
    const char* why;
  };
  for (const Refused& each : std::vector<Refused>{
           {{"--layout", "42/10/12"}, "63"},
           {{"--layout", "28/22/13", "--unit", "1s"}, "worker"},
           {{"--layout", "28/20/13", "--unit", "1s", "--epoch", "2016-05-20"}, "end"},
           {{"--layout", "41/10"}, "41/10/12"},
           {{"--epoch", "2999-01-01"}, "epoch"},
           {{"--max-ahead", "2h"}, "ahead"},
           {{"--step", "5"}, "--step has no meaning in mode snowflake"},
       }) {
    std::vector<std::string> command = {"tag", "create", "bad", "--mode", "snowflake"};
    command.insert(command.end(), each.options.begin(), each.options.end());
    const IdctlResult result = host_.idctl.Run(command);
    EXPECT_NE(result.exit_status, 0) << each.options[1];
    EXPECT_THAT(result.err, HasSubstr(each.why)) << each.options[1];
    EXPECT_EQ(host_.idctl.Run({"tag", "show", "bad"}).exit_status, 3) << each.options[1];
  }
  const IdctlResult counter = host_.idctl.Run({"tag", "create", "events#3"});
  EXPECT_NE(counter.exit_status, 0);
  EXPECT_NE(host_.idctl.Run({"claim", "events#0"}).exit_status, 0);
}

TEST_F(SnowflakeTags, EveryCommandKnowsTheIdsOfAClaim) {
  const std::vector<std::uint64_t> ids = host_.idctl.Claim("events", 100);
  const nlohmann::json parts = PartsOf(host_, ids.back());
  EXPECT_EQ(parts.at("worker"), 0);
  EXPECT_THAT(parts.at("time"), HasSubstr("T"));

  const nlohmann::json owner = host_.idctl.Json({"whois", "events", std::to_string(ids.back())});
  EXPECT_EQ(owner.at("leases").at(0).at("host"), "host-a");
  EXPECT_EQ(owner.at("leases").at(0).at("tag"), "events#0");

  const nlohmann::json shown = host_.idctl.Json({"tag", "show", "events"});
  EXPECT_EQ(shown.at("tag").at("workers").at(0).at("host"), "host-a");
  const nlohmann::json state = host_.idctl.Json({"status", "events"}).at("tags").at(0);
  EXPECT_EQ(state.at("state"), "ok");
  EXPECT_EQ(state.at("snowflake").at("worker"), 0);
  EXPECT_THAT(host_.idctl.Run({"lease", "list", "--tag", "events"}).out, HasSubstr("events#0"));
  EXPECT_THAT(host_.idctl.Run({"tag", "list"}).out, Not(HasSubstr("events#0")));

  const IdctlResult foreign = host_.idctl.Run({"decode", "events", "9223372036854775806"});
  EXPECT_THAT(foreign.out, HasSubstr("1023")) << "an unclaimed id has parts, too";
  ExpectAuditAddsUp();
}

TEST_F(SnowflakeTags, DecodeOfAnotherTagIsRefused) {
  host_.idctl.CreateTag("orders", 10);
  const IdctlResult result = host_.idctl.Run({"decode", "orders", "5"});
  EXPECT_NE(result.exit_status, 0);
  EXPECT_THAT(result.err, HasSubstr("its ids are plain numbers without parts"));
}

TEST_F(SnowflakeTags, CleanStopKeepsTheWorkerIdForTheNextStartAndAKillDoesNot) {
  const std::uint64_t before = host_.idctl.Claim("events").front();
  host_.daemon.Restart();
  const std::uint64_t stopped = host_.idctl.Claim("events").front();
  EXPECT_GT(stopped, before);
  EXPECT_EQ(WorkerOf(host_, stopped), WorkerOf(host_, before));
  ExpectAuditAddsUp();
  host_.daemon.Kill();
  host_.daemon.Start();
  const std::uint64_t killed = host_.idctl.Claim("events").front();
  EXPECT_GT(killed, stopped);
  EXPECT_NE(WorkerOf(host_, killed), WorkerOf(host_, stopped)) << "its window is not over";
  ExpectAuditAddsUp();
}

// idd moves the ring only while the tag is in use. The first claim after a pause asks idd, and does
// not wait for it.
TEST_F(SnowflakeTags, DaemonsClockGoesOnAfterAPause) {
  host_.idctl.Do({"tag", "create", "ticks", "--mode", "snowflake", "--clock", "daemon"});
  idclient::Client client({.socket_path = host_.daemon.socket(), .timeout = Patience(20s)});
  idclient::Tag tag = client.tag("ticks");
  std::uint64_t last = tag.claim();
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(3s);
    const auto began = std::chrono::steady_clock::now();
    const std::uint64_t id = tag.claim();
    EXPECT_LT(std::chrono::steady_clock::now() - began, Patience(5s)) << "it waited";
    EXPECT_GT(id, last);
    last = id;
    for (int n = 0; n < 1000; ++n) {
      const std::uint64_t next = tag.claim();
      ASSERT_GT(next, last);
      last = next;
    }
  }
}

// idd runs under a manager that keeps its descriptors.
class SnowflakeRestart : public ManagedHostTest {
 protected:
  [[nodiscard]] nlohmann::json PartsOf(std::uint64_t id) const {
    return host_.idctl.Json({"decode", "events", std::to_string(id)}).at("parts").at(0);
  }
};

// The window that the host holds outlives idd; no id is beyond its end.
TEST_F(SnowflakeRestart, HeldWindowIsServedWithoutTheStoreAndNotBeyond) {
  host_.idctl.Do({"tag", "create", "events", "--mode", "snowflake", "--outage-tolerance", "20"});
  std::uint64_t last = host_.idctl.Claim("events").front();
  const nlohmann::json worker = PartsOf(last).at("worker");
  {
    SqliteFile database = host_.Database();
    database.Execute("BEGIN EXCLUSIVE");
    host_.daemon.Kill();
    host_.daemon.Start();
    for (int i = 0; i < 5; ++i) {  // each takes a while under a sanitizer, and the window ends
      const std::uint64_t id = host_.idctl.Claim("events").front();
      ASSERT_GT(id, last);
      last = id;
    }
    EXPECT_EQ(PartsOf(last).at("worker"), worker);
    const std::string until =
        host_.idctl.Json({"status", "events"}).at("tags").at(0).at("snowflake").at("leased_until");
    IdctlResult claimed;
    ASSERT_TRUE(WaitUntil(Patience(30s), [&] {
      claimed = host_.idctl.Run({"claim", "events", "--timeout", "100"});
      if (claimed.exit_status == 0) last = ParseIds(claimed.out).front();
      return claimed.exit_status != 0;
    })) << "the window ends after 20 s";
    EXPECT_THAT(claimed.err, HasSubstr("the store"));
    EXPECT_LT(PartsOf(last).at("time"), until);
  }
  ASSERT_TRUE(WaitUntil(Patience(20s), [&] {
    return host_.idctl.Run({"claim", "events", "--timeout", "1000"}).exit_status == 0;
  })) << "the store is back";
  EXPECT_EQ(host_.idctl.Run({"audit"}).exit_status, 0);
}

}  // namespace
}  // namespace idd::harness
