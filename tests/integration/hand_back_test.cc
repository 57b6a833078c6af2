// SPDX-License-Identifier: Apache-2.0
//
// A clean stop hands ids back, and the next start leases them again.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>

#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

struct Range {
  std::uint64_t base;
  std::uint64_t limit;
  friend bool operator==(const Range&, const Range&) = default;
};

class HandBack : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartWithTag("orders", 1000); }

  // "returned" of `tag show`, as the host `asked` sees it, for one host.
  [[nodiscard]] static std::vector<Range> Returned(const Host& asked, const std::string& host) {
    std::vector<Range> ranges;
    const nlohmann::json shown = asked.idctl.Json({"tag", "show", "orders"});
    for (const nlohmann::json& row : shown.at("tag").at("returned")) {
      if (row.at("host") != host) continue;
      ranges.push_back({row.at("base").get<std::uint64_t>(), row.at("limit").get<std::uint64_t>()});
    }
    return ranges;
  }

  const TempDir dir_;
  CleanHost host_{dir_, "host-a"};
  CleanHost other_{dir_, "host-b"};
};

TEST_F(HandBack, LowersMaxIdToTheFirstUnclaimedIdAndGoesOnWithoutAGap) {
  (void)host_.idctl.Claim("orders", 137);
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().MaxId("orders"), 138U);
  host_.daemon.Start();
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 138U);
  EXPECT_EQ(Join(CheckAudit(host_.idctl.Audit("orders"), 138, 0)), "");
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().MaxId("orders"), 139U);
}

TEST_F(HandBack, ListsTheTailWhenAnotherHostHasLeasedAndTakesItFirstLater) {
  (void)host_.idctl.Claim("orders", 50);
  other_.daemon.Start();
  const std::uint64_t others_first = other_.idctl.Claim("orders").front();
  EXPECT_GE(others_first, 1001U);
  const std::uint64_t max_id = host_.Database().MaxId("orders");
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().MaxId("orders"), max_id) << "another host has leased since";
  const std::vector<Range> returned = Returned(other_, "host-a");
  ASSERT_FALSE(returned.empty());
  EXPECT_EQ(returned.front().base, 51U);

  // The other host must not take the returned range.
  const std::vector<std::uint64_t> others = other_.idctl.Claim("orders", 2500);
  EXPECT_GE(others.front(), 1001U);

  host_.daemon.Start();
  std::vector<std::uint64_t> expected;
  for (const Range& range : returned) {
    for (std::uint64_t id = range.base; id < range.limit; ++id) expected.push_back(id);
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(host_.idctl.Claim("orders", expected.size()), expected);
  EXPECT_TRUE(WaitUntil(Patience(5s), [this] { return Returned(other_, "host-a").empty(); }));
  // After that it leases from the allocator, above the ids of both hosts.
  const std::uint64_t next = host_.idctl.Claim("orders").front();
  EXPECT_GT(next, others.back());
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
  EXPECT_TRUE(other_.idctl.Audit("orders").ok);
}

class HandBackOnASlowDisk : public HandBack {
 protected:
  static constexpr int kTags = 4;

  static std::string Name(int i) { return "tag" + std::to_string(i); }
  // Restarts idd, gives each tag a lease, makes the disk slow and stops idd. Returns its status.
  [[nodiscard]] std::optional<int> StopWith(std::chrono::milliseconds sync) {
    const std::string slowness = dir_.File("sync_ms");
    host_.daemon.Stop();
    host_.daemon.options().environment = {std::string("LD_PRELOAD=") + IDD_TEST_SLOW_SYNC,
                                          "IDD_TEST_SYNC_FILE=" + slowness};
    host_.daemon.Start();
    for (int i = 0; i < kTags; ++i) {
      host_.idctl.CreateTag(Name(i), 1000);
      static_cast<void>(host_.idctl.Claim(Name(i)));
    }
    WriteFile(slowness, std::to_string(sync.count()));
    host_.daemon.Signal(SIGTERM);
    const std::optional<int> status = host_.daemon.process().WaitFor(Patience(60s));
    host_.daemon.options().environment.clear();
    return status;
  }
};

// A stop goes on while the store takes tails.
TEST_F(HandBackOnASlowDisk, GoesOnWhileTheStoreTakesTails) {
  if (SlowdownFactor() != 1) GTEST_SKIP() << "a sanitizer's runtime must be loaded first";
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(StopWith(1600ms), 0) << host_.daemon.Log();
  EXPECT_GT(std::chrono::steady_clock::now() - begun, 10s) << "longer than the store may pause";
  SqliteFile database = host_.Database();
  EXPECT_EQ(database.QueryInteger("SELECT COUNT(*) FROM idd_lease WHERE state = 'active'"), 0);
}

// It does not wait longer than ten seconds for one. The next idd ends the leases that were left.
TEST_F(HandBackOnASlowDisk, EndsWhenTheStoreTakesNone) {
  if (SlowdownFactor() != 1) GTEST_SKIP() << "a sanitizer's runtime must be loaded first";
  EXPECT_EQ(StopWith(5500ms), 1) << host_.daemon.Log();
  EXPECT_NE(host_.daemon.Log().find("idd.stop_timeout"), std::string::npos) << host_.daemon.Log();
  host_.daemon.Start();
  for (int i = 0; i < kTags; ++i) EXPECT_TRUE(host_.idctl.Audit(Name(i)).ok) << i;
}

}  // namespace
}  // namespace idd::harness
