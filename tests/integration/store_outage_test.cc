// SPDX-License-Identifier: Apache-2.0
//
// Real cases of a store that cannot be written: a full disk, a read-only file system, a read-only
// file, a lock held by another program. Each time claims succeed until the ring is dry, then fail
// with exit status 5 and the reason, and succeed again, without a restart, once the store can be
// written.
//
// The test has its own mount namespace (mount_namespace.h), so it needs no special user and leaves
// nothing mounted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "support/host.h"
#include "support/mount_namespace.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::ContainsRegex;
using ::testing::Matches;

class StoreOutage : public ::testing::Test {
 protected:
  StoreOutage() { host_.daemon.options().database = disk_.File("idd.db"); }

  void StartAndClaim() {
    host_.StartWithTag("orders", 100);
    Keep(host_.idctl.Claim("orders", 10));
  }

  // Claims in small batches until idctl gives up for that reason, and returns its last result. On a
  // busy machine idctl may give up before the store has answered at all.
  IdctlResult ClaimUntilDry(const std::string& reason) {
    IdctlResult result;
    EXPECT_TRUE(WaitUntil(Patience(120s), [&] {
      result = host_.idctl.Run({"claim", "orders", "-n", "50"});
      Keep(ParseIds(result.out));
      return result.exit_status != 0 && Matches(ContainsRegex(reason))(result.err);
    })) << result.err;
    return result;
  }

  void Keep(const std::vector<std::uint64_t>& ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

  void ExpectDryBecause(const std::string& reason) {
    const IdctlResult result = ClaimUntilDry(reason);
    EXPECT_EQ(result.exit_status, 5) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    const nlohmann::json database = host_.idctl.Json({"status"}).at("database");
    EXPECT_EQ(database.at("state"), "down");
    EXPECT_THAT(database.at("last_error").get<std::string>(), ContainsRegex(reason));
    EXPECT_TRUE(host_.daemon.process().Running());
  }

  // Claims succeed again without a restart, and every id comes once, in order, and is accounted
  // for.
  void ExpectRecovery() {
    const pid_t pid = host_.daemon.pid();
    EXPECT_TRUE(WaitUntil(Patience(30s), [this] {
      const IdctlResult result = host_.idctl.Run({"claim", "orders", "-n", "300"});
      Keep(ParseIds(result.out));
      return result.exit_status == 0;
    })) << host_.daemon.Log();
    EXPECT_EQ(host_.daemon.pid(), pid);
    EXPECT_EQ(host_.idctl.Json({"status"}).at("database").at("state"), "up");
    for (std::size_t i = 1; i < ids_.size(); ++i) ASSERT_GT(ids_[i], ids_[i - 1]) << "at " << i;
    // Claimed ids of a lease that could not be handed back count as abandoned with the rest of it.
    AuditRow audit = host_.idctl.Audit("orders");
    audit.claimed += std::exchange(audit.abandoned, 0);
    EXPECT_EQ(Join(CheckAudit(audit, ids_.size(), UINT64_MAX)), "");
    host_.daemon.Stop();
  }

  const TempDir dir_;
  SmallTmpfs disk_{dir_.File("disk"), 2048};
  Host host_{dir_};
  std::vector<std::uint64_t> ids_;
};

TEST_F(StoreOutage, FullDiskServesTheRingThenSaysSoThenRecovers) {
  StartAndClaim();
  disk_.Fill();
  const std::size_t before = ids_.size();
  ExpectDryBecause("full|No space");
  EXPECT_GT(ids_.size(), before) << "the ring had ids";
  disk_.Free();
  ExpectRecovery();
}

// SIGXFSZ killed idd without a word.
TEST_F(StoreOutage, LimitOfAFilesSizeServesTheRingThenSaysSoThenRecovers) {
  StartAndClaim();
  const auto limit_files = [this](rlim_t bytes) {
    const rlimit limit{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    RequireErrno(::prlimit(host_.daemon.pid(), RLIMIT_FSIZE, &limit, nullptr) == 0, "prlimit");
  };
  limit_files(16384);
  ExpectDryBecause("limit of a file's size");
  limit_files(RLIM_INFINITY);
  ExpectRecovery();
}

TEST_F(StoreOutage, FullDiskDuringTheStopLosesNothing) {
  StartAndClaim();
  disk_.Fill();
  // A lease that cannot be handed back is abandoned at the next recovery: a gap, never a duplicate.
  host_.daemon.Signal(SIGTERM);
  EXPECT_TRUE(host_.daemon.process().WaitFor(Patience(15s)).has_value()) << host_.daemon.Log();
  disk_.Free();
  host_.daemon.Start();
  ExpectRecovery();
}

TEST_F(StoreOutage, ReadOnlyFileSystemAtTheStart) {
  StartAndClaim();
  host_.daemon.Stop();
  disk_.MakeReadOnly();
  host_.daemon.Start();
  ExpectDryBecause("read-?only|readonly|unable to open|Read-only");
  disk_.MakeWritable();
  ExpectRecovery();
}

TEST_F(StoreOutage, ReadOnlyFileAtTheStart) {
  StartAndClaim();
  host_.daemon.Stop();
  {
    const ReadOnlyFile read_only(host_.daemon.options().database);
    host_.daemon.Start();
    ExpectDryBecause("read-?only|readonly|Read-only");
  }
  ExpectRecovery();
}

TEST_F(StoreOutage, MissingDirectoryAtTheStart) {
  const std::string later = disk_.File("later");
  host_.daemon.options().database = later + "/idd.db";
  host_.daemon.Start();
  ExpectDryBecause("later/idd.db");
  RequireErrno(::mkdir(later.c_str(), 0700) == 0, "mkdir");
  EXPECT_TRUE(WaitUntil(Patience(30s), [this] {
    return host_.idctl.Run({"tag", "create", "orders", "--if-absent", "--step", "100"})
               .exit_status == 0;
  })) << host_.daemon.Log();
  ExpectRecovery();
}

TEST_F(StoreOutage, LockHeldByAnotherProcess) {
  StartAndClaim();
  SqliteFile database = SqliteFile(host_.daemon.options().database);
  database.Execute("BEGIN IMMEDIATE");
  const IdctlResult first = ClaimUntilDry("has not answered for [0-9]+ ms|is locked");
  EXPECT_EQ(first.exit_status, 5) << first.err;
  // The store counts as down once its own wait for the lock has ended.
  EXPECT_TRUE(WaitUntil(Patience(10s), [this] {
    return host_.idctl.Json({"status"}).at("database").at("state") == "down";
  }));
  ExpectDryBecause("locked|busy");
  database.Execute("ROLLBACK");
  ExpectRecovery();
}

TEST_F(StoreOutage, UnknownTagIsNotCalledUnknownDuringAnOutage) {
  host_.daemon.options().database = disk_.File("missing/idd.db");
  host_.daemon.Start();
  const IdctlResult result = host_.idctl.Run({"claim", "whatever"});
  EXPECT_EQ(result.exit_status, 5) << result.err;
  EXPECT_LT(result.duration, 30s) << "it did not end at its deadline";
}

TEST_F(StoreOutage, DoesNotStormAStoreThatIsDown) {
  host_.daemon.options().log_level = "debug";
  host_.StartWithTag("orders", 10);
  disk_.Fill();
  (void)ClaimUntilDry("full|No space");
  const std::size_t mark = host_.daemon.LogMark();
  const std::uint64_t began_ns = MonotonicNs();
  for (int i = 0; i < 20; ++i) (void)host_.idctl.Run({"--timeout", "50", "claim", "orders"});
  const std::string log = host_.daemon.LogSince(mark);
  // idd tries once a second; on a busy machine twenty tries take longer.
  const double seconds = static_cast<double>(MonotonicNs() - began_ns) / 1e9;
  EXPECT_LT(static_cast<double>(std::count(log.begin(), log.end(), '\n')), 60 + 6 * seconds) << log;
  disk_.Free();
}

}  // namespace
}  // namespace idd::harness
