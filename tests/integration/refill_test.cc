// SPDX-License-Identifier: Apache-2.0
//
// The refill policy's promises on a real daemon; tests/simulator runs the policy on long loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.hpp"
#include "support/host.h"
#include "support/raw_connection.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;

// The calls and bytes that a process has read and written so far, over descriptors of any kind.
struct ProcessReads {
  bool known = false;
  std::uint64_t reads = 0;  // calls
  std::uint64_t written_bytes = 0;
};

ProcessReads ReadsOf(pid_t pid) {
  std::ifstream io("/proc/" + std::to_string(pid) + "/io");
  ProcessReads reads;
  for (std::string key; io >> key;) {
    std::uint64_t value = 0;
    io >> value;
    if (key == "syscr:") reads.reads = value;
    if (key == "wchar:") reads.written_bytes = value;
    reads.known = true;
  }
  return reads;
}

class Refill : public ::testing::Test {
 protected:
  // Makes every sync of the store take that much longer. False: a sanitizer's runtime must be
  // loaded first.
  [[nodiscard]] bool SlowStore(int ms) {
    if (SlowdownFactor() != 1) return false;
    host_.daemon.options().environment = {std::string("LD_PRELOAD=") + IDD_TEST_SLOW_SYNC,
                                          "IDD_TEST_SYNC_MS=" + std::to_string(ms)};
    return true;
  }
  void Start(const std::vector<std::string>& tag_options = {}) {
    host_.daemon.Start();
    std::vector<std::string> create = {"tag", "create", "orders"};
    create.insert(create.end(), tag_options.begin(), tag_options.end());
    host_.idctl.Do(create);
  }
  [[nodiscard]] nlohmann::json Status() const {
    return host_.idctl.Json({"status"}).at("tags").at(0);
  }
  [[nodiscard]] std::uint64_t Fallbacks() const {
    return Status().at("fallbacks").get<std::uint64_t>();
  }
  [[nodiscard]] idclient::Options Options() const {
    idclient::Options options;
    options.socket_path = host_.daemon.socket();
    options.timeout = Patience(120s);
    return options;
  }
  void ClaimFor(idclient::Tag tag, std::chrono::milliseconds time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      for (int i = 0; i < 64; ++i) static_cast<void>(tag.claim());
    }
  }

  const TempDir dir_;
  Host host_{dir_};
};

// A step of 1,000 lasts microseconds, and the store takes 50 ms and more. tests/simulator and
// scripts/bench check that claims then find no dry ring; here idd may not get a processor in time.
TEST_F(Refill, LeasesGrowToWhatIsClaimedWhileOneIsUnderWay) {
  if (!SlowStore(50)) GTEST_SKIP() << "a sanitizer's runtime must be loaded first";
  Start({"--step", "1000"});
  idclient::Client client(Options());
  idclient::Tag orders = client.tag("orders");
  ClaimFor(orders, 1s);
  const std::uint64_t waited = Fallbacks();
  EXPECT_GT(waited, 0U) << "the first leases cannot have been in time: is the store slow?";
  const nlohmann::json before = Status();
  ClaimFor(orders, 3s);
  const nlohmann::json after = Status();
  const auto more = [&](const char* what) {
    return after.at(what).get<std::uint64_t>() - before.at(what).get<std::uint64_t>();
  };
  std::printf("%llu ids of %llu leases, %llu claims found the ring dry\n",
              static_cast<unsigned long long>(more("claimed")),
              static_cast<unsigned long long>(more("leases")),
              static_cast<unsigned long long>(more("fallbacks")));
  EXPECT_GT(more("claimed"), 10'000 * more("leases")) << "ten steps to a lease";
  EXPECT_LE(more("fallbacks"), more("leases") + 1) << "the ring was dry more than once a lease";
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

// All are served by one lease and the messages of one publication. tests/bench/refill_benchmark.cc
// measures the time from the first served thread to the last.
// A steady claimer: idd looks before the claim that would take the mark. On a busy machine idd may
// look too late, and the claim sends its message.
TEST_F(Refill, BusyDaemonRefillsWithoutAMessage) {
  Start({"--refill", "leaf", "--step", "500", "--max-step", "500"});
  idclient::Client client(Options());
  idclient::Tag tag = client.tag("orders");
  const auto sum = [this](const std::string& name) {
    double value = 0;
    const nlohmann::json metrics = host_.idctl.Json({"metrics"}).at("metrics");
    for (const nlohmann::json& metric : metrics) {
      if (metric.at("name") != name) continue;
      for (const nlohmann::json& sample : metric.at("samples")) {
        value += sample.at("value").get<double>();
      }
    }
    return value;
  };
  const auto without_message = [&] {
    return sum("idd_tag_leases_total") - sum("idd_refill_notices_total") -
           sum("idd_tag_fallbacks_total");
  };
  const Deadline last = Deadline::After(Patience(30s));
  std::uint64_t before = tag.claim();
  while (without_message() < 10 && !last.passed()) {
    const Deadline look = Deadline::After(1s);
    while (!look.passed()) {
      for (int i = 0; i < 10; ++i) {
        const std::uint64_t id = tag.claim();
        ASSERT_GT(id, before);
        before = id;
      }
      std::this_thread::sleep_for(1ms);
    }
  }
  EXPECT_GE(without_message(), 10) << "each lease had a message";
}

TEST_F(Refill, ThreadsWaitingOnADryRingAreServedByOnePublication) {
  constexpr std::size_t kThreads = 500;
  Start();
  idclient::Client client(Options());
  host_.idctl.CreateTag("waiters", 1000);
  SqliteFile database = host_.Database();
  database.Execute("BEGIN IMMEDIATE");  // delays the first lease
  idclient::Tag tag = client.tag("waiters");
  const auto status = [&](const char* what) {
    const nlohmann::json document = host_.idctl.Json({"status", "waiters"});
    return document.at("tags").at(0).at(what).get<std::uint64_t>();
  };
  std::vector<std::uint64_t> ids(kThreads);
  std::vector<std::thread> threads;
  for (std::uint64_t& id : ids) {
    threads.emplace_back([tag, &id]() mutable { id = tag.claim(); });
  }
  const bool all_wait = WaitUntil(Patience(30s), [&] { return status("fallbacks") == kThreads; });
  const std::uint64_t leases = status("leases");
  database.Execute("ROLLBACK");
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(all_wait);
  EXPECT_EQ(leases, 0U);
  std::sort(ids.begin(), ids.end());
  for (std::size_t i = 0; i < kThreads; ++i) ASSERT_EQ(ids[i], i + 1) << "the first lease";
  EXPECT_EQ(status("fallbacks"), kThreads) << "each claim asks once";
  EXPECT_LE(status("leases"), 2U) << "their lease, and one ahead";
}

TEST_F(Refill, ManyRepliesToOneConnectionAreOneMessage) {
  constexpr std::uint64_t kRequests = 600;
  Start({"--step", "1000"});
  SqliteFile database = host_.Database();
  database.Execute("BEGIN IMMEDIATE");
  RawConnection connection(host_.daemon.socket());
  connection.Hello();
  for (std::uint64_t id = 1; id <= kRequests; ++id) {
    ASSERT_TRUE(connection.SendWithin(Patience(1s), MakeClaim("orders", id, 1, 60'000)));
  }
  ASSERT_TRUE(WaitUntil(Patience(2s), [&] { return Fallbacks() == kRequests; }));
  const int before = connection.messages();
  database.Execute("ROLLBACK");
  for (std::uint64_t id = 1; id <= kRequests; ++id) {
    const std::optional<Reply> reply = connection.Receive(Patience(5s));
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->header.request_id, id) << "replies must come in order of arrival";
    EXPECT_EQ(reply->As<wire::ClaimReply>().first, id);
  }
  EXPECT_EQ(connection.messages() - before, 2) << "each holds at most 341 replies of 48 bytes";
  // A client with one request in flight gets its reply at once and alone.
  ASSERT_TRUE(connection.Send(MakeClaim("orders", kRequests + 1, 1, 0)));
  EXPECT_EQ(connection.Receive(Patience(1s))->As<wire::ClaimReply>().first, kRequests + 1);
}

TEST_F(Refill, HoldsNoMoreThanTheCeiling) {
  Start({"--step", "100", "--max-prefetch", "5000"});
  idclient::Client client(Options());
  idclient::Tag orders = client.tag("orders");
  for (int round = 0; round < 20; ++round) {
    ClaimFor(orders, 50ms);
    EXPECT_LE(Status().at("available").get<std::uint64_t>(), 5000U);
  }
}

// Regression: 10,000 ids once made idd hold ten million, and a command that claimed a million made
// it hold 269 million: it extrapolated a busy second to ten minutes.
TEST_F(Refill, HoldsNoMoreThanTwiceWhatWasClaimed) {
  Start({"--step", "1000"});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(host_.idctl.Claim("orders", 2500).size(), 2500U);
  EXPECT_LE(Status().at("available").get<std::uint64_t>(), 2U * 10'000);
  EXPECT_EQ(host_.idctl.Claim("orders", 1'000'000).size(), 1'000'000U);
  const nlohmann::json after = Status();
  EXPECT_LE(after.at("available").get<std::uint64_t>(), 2U * 1'010'000);
  EXPECT_LE(after.at("leases").get<std::uint64_t>(), 40U) << "not a lease for every step";
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

TEST_F(Refill, ChangesTakeEffectOnARunningDaemon) {
  Start({"--step", "100"});
  EXPECT_EQ(host_.idctl.Claim("orders", 10).size(), 10U);
  host_.idctl.Do({"tag", "set", "orders", "--outage-tolerance", "30", "--max-prefetch", "7000",
                  "--max-step", "400", "--refill", "leaf"});
  const nlohmann::json promise = Status().at("promise");
  EXPECT_EQ(promise.at("refill"), "leaf");
  EXPECT_EQ(promise.at("outage_tolerance_s"), 30);
  EXPECT_EQ(promise.at("max_prefetch"), 7000);
  const nlohmann::json tag = host_.idctl.Json({"tag", "show", "orders"}).at("tag");
  EXPECT_EQ(tag.at("refill"), "leaf");
  EXPECT_EQ(tag.at("max_step"), 400);
  // Changed in the table, not through idd: it applies from the next lease on.
  host_.Database().Execute("UPDATE idd_tag SET outage_tolerance_s = 60");
  EXPECT_EQ(host_.idctl.Claim("orders", 30'000).size(), 30'000U);  // more than was available
  EXPECT_EQ(Status().at("promise").at("outage_tolerance_s"), 60);
}

TEST_F(Refill, SettingsThatMakeNoSenseAreRefused) {
  Start({"--step", "100"});
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--max-prefetch", "199"}, "two steps"},
      {{"--max-step", "99"}, "largest step"},
      {{"--max-step", "1000000000001"}, "largest step"},
  };
  for (const auto& [options, why] : cases) {
    std::vector<std::string> set = {"tag", "set", "orders"};
    set.insert(set.end(), options.begin(), options.end());
    const IdctlResult result = host_.idctl.Run(set);
    EXPECT_NE(result.exit_status, 0) << options[0] << " " << options[1];
    EXPECT_THAT(result.err, HasSubstr(why));
  }
  EXPECT_EQ(host_.idctl.Run({"tag", "set", "orders", "--outage-tolerance", "604801"}).exit_status,
            2);
  const nlohmann::json tag = host_.idctl.Json({"tag", "show", "orders"}).at("tag");
  EXPECT_EQ(tag.at("max_prefetch"), 1'000'000'000) << "a refused change had an effect";
}

// A host that was stopped has leased for the tags it served before it reports ready.
TEST_F(Refill, KnownTagsAreLeasedForBeforeReady) {
  Start({"--step", "100"});
  host_.idctl.CreateTag("users", 50);
  EXPECT_EQ(host_.idctl.Claim("orders", 10).size(), 10U);
  EXPECT_EQ(host_.idctl.Claim("users", 10).size(), 10U);
  host_.idctl.CreateTag("never-asked-for", 50);
  host_.daemon.Restart();
  const nlohmann::json tags = host_.idctl.Json({"status"}).at("tags");
  for (const nlohmann::json& tag : tags) {
    const bool was_asked_for = tag.at("tag") != "never-asked-for";
    EXPECT_EQ(tag.at("available").get<std::uint64_t>() > 0, was_asked_for) << tag;
    EXPECT_EQ(tag.at("fallbacks"), 0);
  }
}

TEST_F(Refill, EndOfTheIdsIsForecast) {
  Start({"--step", "1000", "--max-id", "4000000000", "--max-prefetch", "100000"});
  idclient::Client client(Options());
  idclient::Tag orders = client.tag("orders");
  const std::size_t mark = host_.daemon.LogMark();
  const auto claims = [&] {
    ClaimFor(orders, 100ms);
    // The first poll may see only the beginning of the load.
    const nlohmann::json days = Status().at("exhausted_in_days");
    return !days.is_null() && days.get<double>() < 90;
  };
  ASSERT_TRUE(WaitUntil(Patience(5s), claims));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("tag.exhaustion.*tag=orders", mark, Patience(3s)));
  EXPECT_THAT(host_.idctl.Run({"status"}).out, HasSubstr("orders: its ids end in"));
}

// When many tags want leases at once, none waits behind one that always wants them.
TEST_F(Refill, BudgetIsShared) {
  host_.daemon.options().more_arguments = {"--lease-limit", "20"};
  Start({"--step", "1", "--refill", "leaf", "--max-step", "1"});
  host_.idctl.CreateTag("users", 1000);
  std::atomic<bool> stop{false};
  std::thread greedy([&] {
    idclient::Client client(Options());
    idclient::Tag orders = client.tag("orders");
    while (!stop) static_cast<void>(orders.try_claim());
  });
  const auto leases_of = [this](const char* tag) {
    return host_.idctl.Json({"status", tag}).at("tags").at(0).at("leases").get<std::uint64_t>();
  };
  // Uses up the saved budget.
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] { return leases_of("orders") > 20; }));
  // Read the time before the first count and after the last one, so that the interval is never too
  // short.
  const auto began = std::chrono::steady_clock::now();
  const std::uint64_t leases = leases_of("orders");
  const IdctlResult users = host_.idctl.Run({"claim", "users", "--timeout", "60000"});
  EXPECT_EQ(users.exit_status, 0) << users.err;
  EXPECT_LT(users.duration, 30s);
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] { return leases_of("orders") > leases + 20; }));
  const std::uint64_t more = leases_of("orders") - leases;
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began);
  stop = true;
  greedy.join();
  EXPECT_LE(static_cast<double>(more), 20 * (seconds.count() + 1) + 2);
}

// A look at the tags is no query, and neither is a check of the store's file.
TEST_F(Refill, IdleTagsAskNothingOfTheStore) {
  constexpr int kTags = 200;
  Start();
  for (int i = 0; i < kTags; ++i) {
    const std::string name = "idle-" + std::to_string(i);
    host_.idctl.CreateTag(name, 1000);
    ASSERT_EQ(host_.idctl.Claim(name, 1).size(), 1U);
  }
  if (!ReadsOf(host_.daemon.pid()).known) GTEST_SKIP() << "no /proc/PID/io here";
  // Each second the loop reads its timers and wake-ups; a query at least reads the file's header.
  std::uint64_t reads = 0;
  std::uint64_t written = 0;
  double allowed = 0;
  const auto is_quiet = [&] {
    const auto began = std::chrono::steady_clock::now();
    const ProcessReads before = ReadsOf(host_.daemon.pid());
    std::this_thread::sleep_for(4s);
    const ProcessReads after = ReadsOf(host_.daemon.pid());
    reads = after.reads - before.reads;
    written = after.written_bytes - before.written_bytes;
    allowed = 15 * std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return static_cast<double>(reads) < allowed && written == 0;
  };
  // The reported rates fade within seconds.
  EXPECT_TRUE(WaitUntil(Patience(30s), is_quiet))
      << reads << " reads of " << allowed << ", " << written << " bytes written";
}

}  // namespace
}  // namespace idd::harness
