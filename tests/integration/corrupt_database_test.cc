// SPDX-License-Identifier: Apache-2.0
//
// Damaged database files: idd refuses them with a clear error and never overwrites them.
// unit/sqlite_store_fault_test.cc has the other kinds of files that its store refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <set>

#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

constexpr const char* kCorrupt = "corrupt|malformed|not a database|damaged";

std::string Noise(std::size_t bytes) {
  std::mt19937_64 random(1);
  std::string noise(bytes, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  return noise;
}

class CorruptDatabase : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.StartWithTag("orders", 10);
    ids_ = host_.idctl.Claim("orders", 25);
    host_.daemon.Stop();
    ASSERT_FALSE(Exists(path() + "-wal")) << "a clean stop leaves one file";
  }

  [[nodiscard]] const std::string& path() const { return host_.daemon.options().database; }

  // Replaces idd's database file, and removes the files beside it.
  void Replace(const std::string& contents) {
    for (const char* suffix : {"-wal", "-shm"}) ::unlink((path() + suffix).c_str());
    ::unlink(host_.daemon.socket().c_str());
    WriteFile(path(), contents);
  }

  // Starts idd and expects that it refuses the file and leaves it unchanged.
  void ExpectRefused(const std::string& how, const std::string& file, const std::string& reason) {
    const std::string spoilt = ReadFile(file);
    const std::size_t mark = host_.daemon.LogMark();
    host_.daemon.Launch();
    const bool ended = WaitUntil(Patience(10s), [this, mark] {
      return !host_.daemon.process().Running() ||
             host_.daemon.LogSince(mark).find("idd.ready") != std::string::npos;
    });
    EXPECT_TRUE(ended) << how;
    // An idd that reported ready is still running.
    EXPECT_EQ(host_.daemon.process().WaitFor(0s), 1) << how << ": it was not refused";
    host_.daemon.Kill();
    EXPECT_TRUE(ReadFile(file) == spoilt) << how << ": the file was changed";
    const std::string log = host_.daemon.LogSince(mark);
    EXPECT_THAT(log, HasSubstr(file)) << how;
    EXPECT_TRUE(host_.daemon.WaitForLogLine(reason, mark, 0s)) << how << "\n" << log;
    EXPECT_FALSE(Exists(host_.daemon.socket())) << how;
  }
  void ExpectRefused(const std::string& how, const std::string& reason) {
    ExpectRefused(how, path(), reason);
  }

  const TempDir dir_;
  Host host_{dir_};
  std::vector<std::uint64_t> ids_;
};

TEST_F(CorruptDatabase, NoiseIsRefused) {
  WriteFile(path(), Noise(20'000));
  ExpectRefused("noise", kCorrupt);
}

TEST_F(CorruptDatabase, SpoiltPagesAreRefused) {
  const std::string good = ReadFile(path());
  constexpr std::size_t kPage = 4096;
  // Damages each page except the first, which has the header, on its own.
  for (std::size_t offset = kPage; offset < good.size(); offset += kPage) {
    Replace(good);
    OverwriteFile(path(), offset, Noise(std::min(kPage, good.size() - offset)));
    ExpectRefused("page at " + std::to_string(offset), kCorrupt);
  }
}

TEST_F(CorruptDatabase, TruncatedFileIsRefused) {
  const std::string good = ReadFile(path());
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{5000}, good.size() / 2}) {
    Replace(good.substr(0, bytes));
    ExpectRefused("truncated to " + std::to_string(bytes), kCorrupt);
  }
}

// The host's own record is just as important: with a new file idd would believe any store.
TEST_F(CorruptDatabase, SpoiltHighWaterMarksAreRefused) {
  const std::string marks = host_.daemon.options().state_dir + "/high-water.db";
  const std::string good = ReadFile(marks);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{4096}}) {
    WriteFile(marks, good);
    OverwriteFile(marks, offset, Noise(1000));
    ExpectRefused("marks at " + std::to_string(offset), marks, kCorrupt);
  }
}

TEST_F(CorruptDatabase, DamageWhileRunningIsNotServed) {
  host_.daemon.Start();
  std::set<std::uint64_t> seen(ids_.begin(), ids_.end());
  const auto keep = [&seen](const IdctlResult& result) {
    for (const std::uint64_t id : ParseIds(result.out)) {
      EXPECT_TRUE(seen.insert(id).second) << id << " twice";
      EXPECT_LT(id, 1000U) << "no lease could grant this";
    }
    return result.exit_status;
  };
  EXPECT_EQ(keep(host_.idctl.Run({"claim", "orders", "-n", "3"})), 0);
  SqliteFile database = host_.Database();
  const std::int64_t page_bytes = database.QueryInteger("PRAGMA page_size");
  const std::int64_t page =
      database.QueryInteger("SELECT rootpage FROM sqlite_schema WHERE name = 'leaf_alloc'");
  const std::string noise = Noise(static_cast<std::size_t>(page_bytes));
  const auto offset = static_cast<std::uint64_t>((page - 1) * page_bytes);
  // Flushes the whole log into the file, so that idd has to read the file again. idd is stopped
  // meanwhile: a lease in between would put an intact copy of the page into the log.
  // If idd was stopped within a transaction, waiting would not help.
  database.Execute("PRAGMA busy_timeout = 0");
  const bool is_damaged = WaitUntil(Patience(5s), [&] {
    host_.daemon.Signal(SIGSTOP);
    const bool is_flushed = database.QueryInteger("PRAGMA wal_checkpoint(TRUNCATE)") == 0;
    if (is_flushed) OverwriteFile(path(), offset, noise);
    host_.daemon.Signal(SIGCONT);
    return is_flushed;
  });
  ASSERT_TRUE(is_damaged) << "idd was within a transaction each time";
  IdctlResult last;
  for (int i = 0; i < 50; ++i) {
    last = host_.idctl.Run({"claim", "orders", "-n", "5"});
    if (keep(last) != 0) break;
  }
  EXPECT_NE(last.exit_status, 0) << "ids from a table that is noise";
  EXPECT_THAT(last.err, ::testing::ContainsRegex(kCorrupt));
  EXPECT_TRUE(host_.daemon.process().Running());
  host_.daemon.Kill();
  EXPECT_TRUE(ReadFile(path()).substr(offset, noise.size()) == noise) << "the file was overwritten";
  ::unlink(host_.daemon.socket().c_str());
  ExpectRefused("after the damage", kCorrupt);
}

}  // namespace
}  // namespace idd::harness
