// SPDX-License-Identifier: Apache-2.0
//
// Two real idds that use one SQLite file by two names. With a hard link, 20,000 of 42,010 ids came
// twice, and audit and doctor found nothing.
//
// The test has its own mount namespace (mount_namespace.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <set>

#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

class TwoNames : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(dir_.File("data"));
    std::filesystem::create_directory(dir_.File("other"));
    a_.daemon.options().database = dir_.File("data") + "/idd.db";
    b_.daemon.options().database = dir_.File("other") + "/idd.db";
    a_.StartWithTag("orders", 100);
    Claim(a_);
  }
  [[nodiscard]] const std::string& first() const { return a_.daemon.options().database; }
  [[nodiscard]] const std::string& second() const { return b_.daemon.options().database; }

  // False: the host gave none. Expects every id once, whichever host it came from.
  bool Claim(const Host& host) {
    const IdctlResult result = host.idctl.Run({"claim", "orders", "-n", "150"});
    for (const std::uint64_t id : ParseIds(result.out)) {
      EXPECT_TRUE(ids_.insert(id).second) << id << " twice";
    }
    return result.exit_status == 0;
  }
  void ClaimInTurn() {
    for (int i = 0; i < 4; ++i) {
      Claim(a_);
      Claim(b_);
    }
  }
  // The host says so wherever an operator looks.
  static void ExpectDownBecause(const Host& host, const std::string& reason) {
    EXPECT_TRUE(WaitUntil(Patience(30s), [&] {
      const nlohmann::json database = host.idctl.Json({"status"}).at("database");
      return database.at("state") == "down" &&
             database.at("last_error").get<std::string>().find(reason) != std::string::npos;
    })) << host.daemon.Log();
    EXPECT_THAT(host.idctl.Run({"doctor"}).out, HasSubstr(reason));
  }
  void ExpectServes(const Host& host) {
    EXPECT_TRUE(WaitUntil(Patience(30s), [&] { return Claim(host); })) << host.daemon.Log();
  }
  // Mounts `from` at `at` until the test's end.
  static void Bind(const std::string& from, const std::string& at) {
    RequireErrno(::mount(from.c_str(), at.c_str(), nullptr, MS_BIND, nullptr) == 0, "mount " + at);
  }

  const TempDir dir_;
  CleanHost a_{dir_, "host-a"};
  CleanHost b_{dir_, "host-b"};
  std::set<std::uint64_t> ids_;
};

TEST_F(TwoNames, HardLinkThatIsMadeWhileAHostRunsIsServedByNeitherName) {
  std::filesystem::create_hard_link(first(), second());
  b_.daemon.Start();
  ClaimInTurn();
  ExpectDownBecause(a_, "has 2 names (hard links)");
  ExpectDownBecause(b_, "has 2 names (hard links)");
  std::filesystem::remove(second());
  ExpectServes(a_);
  EXPECT_FALSE(Claim(b_));
}

TEST_F(TwoNames, RenamedFileIsNotServedBesideTheHostOfItsFirstName) {
  std::filesystem::create_hard_link(first(), second());
  std::filesystem::remove(first());
  b_.daemon.Start();
  ClaimInTurn();
  ExpectDownBecause(b_, "was renamed: as '" + first());
  std::filesystem::rename(second(), first());
  ExpectServes(a_);
}

// A container that mounts the database file alone.
TEST_F(TwoNames, MountOfTheFileAloneIsRefusedAndTheFirstNameServes) {
  WriteFile(second(), "");
  Bind(first(), second());
  b_.daemon.Start();
  ClaimInTurn();
  ExpectDownBecause(b_, "is a mount point");
  ExpectServes(a_);
  b_.daemon.Stop();
  a_.daemon.Stop();
  ::umount2(second().c_str(), MNT_DETACH);
}

TEST_F(TwoNames, DirectoryThatIsMountedTwiceIsOneName) {
  Bind(dir_.File("data"), dir_.File("other"));
  b_.daemon.Start();
  ClaimInTurn();
  ExpectServes(a_);
  ExpectServes(b_);
  EXPECT_TRUE(a_.idctl.Audit("orders").ok);
  b_.daemon.Stop();
  a_.daemon.Stop();
  ::umount2(dir_.File("other").c_str(), MNT_DETACH);
}

// The marks of one host would be those of two.
TEST_F(TwoNames, HighWaterMarksUnderTwoNamesEndTheStart) {
  a_.daemon.Stop();
  const std::string marks = a_.daemon.options().state_dir + "/high-water.db";
  std::filesystem::create_directory(b_.daemon.options().state_dir);
  std::filesystem::create_hard_link(marks, b_.daemon.options().state_dir + "/high-water.db");
  EXPECT_EQ(b_.daemon.LaunchAndWait(Patience(30s)), 1);
  EXPECT_THAT(b_.daemon.Log(), HasSubstr("has 2 names (hard links)"));
}

}  // namespace
}  // namespace idd::harness
