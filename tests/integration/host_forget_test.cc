// SPDX-License-Identifier: Apache-2.0
//
// A host that is gone for good is forgotten: its leases end, and if it comes back nevertheless, no
// id comes twice and the audits add up.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "support/service_manager_stand_in.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"
#include "support/two_hosts.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

class HostForget : public TwoHosts {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    a_.daemon.Start();
    StartB();
    a_.idctl.Do(
        {"tag", "create", "orders", "--step", "100", "--max-step", "100", "--refill", "leaf"});
  }
  void StartB() {
    b_.daemon.Start();
    ASSERT_TRUE(WaitUntil(Patience(20s), [&] { return IsListedAsLive("host-b"); }))
        << a_.idctl.Run({"host", "list", "--all"}).out;
  }
  // The host has not been seen for longer than a live one would.
  void LetItBeSilent(const std::string& id) {
    const std::string then =
        is_mysql() ? "CURRENT_TIMESTAMP - INTERVAL 61 SECOND" : "datetime('now', '-61 seconds')";
    Execute("UPDATE idd_host SET last_seen = " + then + " WHERE host = '" + id + "'");
  }
  // Forgets host-b.
  [[nodiscard]] nlohmann::json Forget(const std::string& host = "host-b") {
    LetItBeSilent("host-b");
    return a_.idctl.Json({"host", "forget", host});
  }
  // Whether no process has SQLite's witness locked, if there is one.
  [[nodiscard]] bool IsWitnessFree() const {
    if (is_mysql()) return true;
    const ScopedFd fd(
        ::open((a_.daemon.options().database + ".witness").c_str(), O_RDWR | O_CLOEXEC));
    struct flock lock {};
    lock.l_type = F_WRLCK;
    return ::fcntl(fd.get(), F_OFD_SETLK, &lock) == 0;  // closing it unlocks it
  }
  // A thread that is in a system call when the signal comes stops at its end, perhaps with a lock.
  [[nodiscard]] static bool AreStopped(pid_t pid) {
    const auto threads =
        std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task");
    return std::all_of(begin(threads), end(threads), [](const auto& thread) {
      const std::string stat = ReadFile((thread.path() / "stat").string());
      const std::size_t name_end = stat.rfind(')');
      return name_end != std::string::npos && stat.substr(name_end, 3) == ") T";
    });
  }
  // Stops the process, but not while it has the file or its witness locked.
  void HangB() {
    ASSERT_TRUE(WaitUntil(Patience(30s), [&] {
      b_.daemon.Signal(SIGSTOP);
      try {
        if (!WaitUntil(2s, [&] { return AreStopped(b_.daemon.pid()); }) || !IsWitnessFree()) {
          throw HarnessError("it runs, or has a lock");
        }
        Execute("UPDATE idd_host SET last_seen = last_seen WHERE host = 'nobody'");
        return true;
      } catch (const HarnessError&) {
        b_.daemon.Signal(SIGCONT);
        std::this_thread::sleep_for(300ms);  // until it has done what it was at
        return false;
      }
    }));
  }
  // Claims, and expects that none of the ids has come before.
  void ClaimNew(const Host& host, std::uint64_t count) {
    for (const std::uint64_t id : host.idctl.Claim("orders", count)) {
      EXPECT_TRUE(claimed_.insert(id).second) << id << " came twice";
    }
  }
  void ExpectAuditsAddUp() {
    for (const Host* host : {&a_, &b_}) {
      const IdctlResult result = host->idctl.Run({"audit"});
      EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
    }
    const IdctlResult all = a_.idctl.Run({"audit", "--all-hosts"});
    EXPECT_EQ(all.exit_status, 0) << all.out << all.err;
    const AuditRow sums = ParseAudit(a_.idctl.Json({"audit", "--all-hosts"}), "orders");
    EXPECT_EQ(sums.leased, sums.claimed + sums.available + sums.returned + sums.abandoned);
  }
  [[nodiscard]] std::vector<JournalLease> LeasesOf(const std::string& host,
                                                   const std::string& state) const {
    std::vector<JournalLease> leases;
    for (const JournalLease& lease : a_.idctl.Leases("orders")) {
      if (lease.host == host && lease.state == state) leases.push_back(lease);
    }
    return leases;
  }

  std::set<std::uint64_t> claimed_;
};

INSTANTIATE_TEST_SUITE_P(Stores, HostForget, ::testing::Values("sqlite", "mysql"), StoreName);

TEST_P(HostForget, EndsTheLeasesOfAHostThatIsOff) {
  ClaimNew(a_, 10);
  ClaimNew(b_, 30);
  b_.daemon.Kill();
  const std::vector<JournalLease> held = LeasesOf("host-b", "active");
  ASSERT_FALSE(held.empty());
  std::uint64_t ids = 0;
  for (const JournalLease& lease : held) ids += lease.limit - lease.base;
  const nlohmann::json reply = Forget("host-b");
  EXPECT_EQ(reply.at("host"), "host-b");
  EXPECT_EQ(reply.at("state"), "forgotten");
  EXPECT_EQ(reply.at("leases"), held.size());
  EXPECT_EQ(reply.at("ids"), ids);
  EXPECT_TRUE(LeasesOf("host-b", "active").empty());
  std::uint64_t abandoned = 0;
  for (const JournalLease& lease : LeasesOf("host-b", "abandoned")) {
    EXPECT_EQ(lease.abandoned, lease.limit - lease.base);
    abandoned += lease.abandoned;
  }
  EXPECT_EQ(abandoned, ids);
  const AuditRow sums = ParseAudit(a_.idctl.Json({"audit", "--all-hosts"}), "orders");
  EXPECT_TRUE(sums.ok);
  EXPECT_EQ(sums.abandoned, ids);
  // The list no longer has it, and its name stays beside its leases.
  EXPECT_TRUE(Known("host-b").is_null());
  EXPECT_EQ(Known("host-b", true).at("condition"), "forgotten");
  EXPECT_EQ(a_.idctl.Json({"lease", "list", "--host", "host-b"}).at("leases").size(),
            LeasesOf("host-b", "abandoned").size());
  // No host gets these ids.
  ClaimNew(a_, 1000);
  for (const JournalLease& lease : held) {
    for (const std::uint64_t id : claimed_) {
      EXPECT_TRUE(id < lease.base || id >= lease.limit || id < lease.base + 30) << id;
    }
  }
}

TEST_P(HostForget, RefusesAHostThatMayBeAlive) {
  ClaimNew(b_, 30);
  const std::vector<JournalLease> held = LeasesOf("host-b", "active");
  ASSERT_FALSE(held.empty());
  IdctlResult result = a_.idctl.Run({"host", "forget", "host-b"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.err, HasSubstr("may be alive, it was seen"));
  EXPECT_EQ(result.out, "");
  // Its refills continue, so that it may have more by now.
  for (const JournalLease& lease : held) {
    EXPECT_THAT(LeasesOf("host-b", "active"), Contains(Field(&JournalLease::base, lease.base)));
  }
  EXPECT_EQ(Known("host-b").at("condition"), "live");
  result = a_.idctl.Run({"host", "forget", "host-a"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.err, HasSubstr("host 'host-a' is this one"));
  result = a_.idctl.Run({"host", "forget", "nobody"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.err, HasSubstr("host 'nobody' is not known"));
  EXPECT_EQ(a_.idctl.Run({"host", "forget"}).exit_status, 2);
}

TEST_P(HostForget, AHostThatHasStoppedGivesUpWhatItReturned) {
  ClaimNew(b_, 30);
  ClaimNew(a_, 10);  // above it, so that its tail is listed
  b_.daemon.Stop();
  const nlohmann::json tag = a_.idctl.Json({"tag", "show", "orders"}).at("tag");
  std::uint64_t listed = 0;
  for (const auto& range : tag.at("returned")) {
    if (range.at("host") != "host-b") continue;
    listed += range.at("limit").get<std::uint64_t>() - range.at("base").get<std::uint64_t>();
  }
  ASSERT_GT(listed, 0U);
  const IdctlResult result = a_.idctl.Run({"host", "forget", "host-b"});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(result.out,
            "forgot host 'host-b'\n"
            "0 leases of it, with 0 ids, and " +
                std::to_string(listed) +
                " returned ids are abandoned; no host leases these ids again\n");
  EXPECT_TRUE(a_.idctl.Json({"tag", "show", "orders"}).at("tag").at("returned").empty());
  const AuditRow sums = ParseAudit(a_.idctl.Json({"audit", "--all-hosts"}), "orders");
  EXPECT_TRUE(sums.ok);
  EXPECT_EQ(sums.abandoned, listed);
  EXPECT_EQ(sums.returned, 0U);
  StartB();
  ClaimNew(b_, 300);
  ExpectAuditsAddUp();
}

TEST_P(HostForget, TheNameStandsForTheHost) {
  b_.daemon.Kill();
  const std::string own_name = Known("host-a").at("name").get<std::string>();
  const IdctlResult two = a_.idctl.Run({"host", "forget", own_name, "--force"});
  EXPECT_EQ(two.exit_status, 1);
  EXPECT_THAT(two.err, HasSubstr("2 hosts have the name '" + own_name + "': host-a, host-b"));
  Execute("UPDATE idd_host SET name = 'web-3' WHERE host = 'host-b'");
  EXPECT_EQ(Forget("web-3").at("host"), "host-b");
  EXPECT_EQ(Known("host-b", true).at("name"), "web-3");
}

TEST_P(HostForget, AKilledHostThatComesBackRepeatsNothing) {
  ClaimNew(a_, 50);
  ClaimNew(b_, 130);
  b_.daemon.Kill();
  EXPECT_GT(Forget("host-b").at("leases"), 0);
  ClaimNew(a_, 500);
  const std::size_t mark = b_.daemon.LogMark();
  StartB();
  EXPECT_TRUE(b_.daemon.WaitForLogLine("host.was_forgotten", mark, Patience(20s)));
  EXPECT_EQ(Known("host-b").at("condition"), "live");
  ClaimNew(b_, 500);
  ClaimNew(a_, 500);
  ExpectAuditsAddUp();
  b_.daemon.Stop();
  StartB();
  ClaimNew(b_, 500);
  ExpectAuditsAddUp();
}

// The next idd inherits rings of leases that are abandoned by now: it goes on with their ids, which
// no other host can have, and closes and returns nothing twice.
TEST_P(HostForget, RingsThatOutliveAForgottenHostGoOn) {
  ServiceManagerStandIn manager(dir_);
  b_.daemon.Stop();
  b_.daemon.options().manager = &manager;
  StartB();
  ClaimNew(b_, 130);
  b_.daemon.Kill();
  const nlohmann::json forgotten = Forget("host-b");
  EXPECT_GT(forgotten.at("leases"), 0);
  ClaimNew(a_, 300);
  StartB();
  ClaimNew(b_, 10);  // of a lease that is abandoned
  ExpectAuditsAddUp();
  ClaimNew(b_, 500);  // to the end of it, and of others
  ClaimNew(a_, 300);
  ExpectAuditsAddUp();
  b_.daemon.Stop();
  EXPECT_TRUE(LeasesOf("host-b", "active").empty());
  StartB();
  ClaimNew(b_, 500);
  ExpectAuditsAddUp();
  const AuditRow sums = ParseAudit(a_.idctl.Json({"audit", "--all-hosts"}), "orders");
  EXPECT_GE(sums.abandoned, forgotten.at("ids").get<std::uint64_t>());
}

// A host that only hung: it never notices a stop, and its leases are abandoned under it.
TEST_P(HostForget, AHostThatHungGoesOn) {
  ClaimNew(b_, 30);
  HangB();
  EXPECT_GT(Forget("host-b").at("leases"), 0);
  ClaimNew(a_, 300);
  b_.daemon.Signal(SIGCONT);
  EXPECT_TRUE(WaitUntil(Patience(60s), [&] { return !Known("host-b").is_null(); }));
  ClaimNew(b_, 500);
  ClaimNew(a_, 300);
  ExpectAuditsAddUp();
  b_.daemon.Stop();
  const IdctlResult all = a_.idctl.Run({"audit", "--all-hosts"});
  EXPECT_EQ(all.exit_status, 0) << all.out << all.err;
}

// More leases than fit one batch.
TEST_P(HostForget, EndsManyLeasesBatchByBatch) {
  ClaimNew(b_, 30);
  b_.daemon.Kill();
  constexpr int kLeases = 1201;
  std::string rows;
  const std::string zeros(28, '0');
  for (int i = 0; i < kLeases; ++i) {
    const std::string number = std::to_string(i);
    const std::string token = zeros + std::string(4 - number.size(), '0') + number;
    rows += (rows.empty() ? "('" : ", ('") + token + "', 'old', 'host-b', " +
            std::to_string(1 + 10 * i) + ", " + std::to_string(11 + 10 * i) + ")";
  }
  const std::string limit = is_mysql() ? "`limit`" : "\"limit\"";
  Execute("INSERT INTO idd_lease(token, biz_tag, host, base, " + limit + ") VALUES " + rows);
  const nlohmann::json reply = Forget("host-b");
  EXPECT_GE(reply.at("leases").get<int>(), kLeases + 1);
  EXPECT_GE(reply.at("ids").get<int>(), 10 * kLeases + 100);
  EXPECT_EQ(ParseAudit(a_.idctl.Json({"audit", "--all-hosts"}), "old").abandoned, 10U * kLeases);
}

TEST_P(HostForget, ForceForgetsAHostThatWasSeenAMomentAgo) {
  ClaimNew(b_, 30);
  b_.daemon.Kill();
  const IdctlResult result = a_.idctl.Run({"host", "forget", "host-b", "--force"});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_TRUE(LeasesOf("host-b", "active").empty());
  EXPECT_TRUE(Known("host-b").is_null());
}

}  // namespace
}  // namespace idd::harness
