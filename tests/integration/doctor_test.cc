// SPDX-License-Identifier: Apache-2.0
//
// `idctl doctor` on a real idd, with faults staged on this host: each is reported on one line with
// the next step, and a healthy host has none. doctor_mysql_test.cc stages the faults of a database
// server.
#include "support/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <string>

#include "idd/shm/abi.h"
#include "idd/shm/ring_memory.h"
#include "idd/wire/frames.h"
#include "support/host.h"
#include "support/mount_namespace.h"
#include "support/raw_connection.h"
#include "support/ring_request.h"
#include "support/service_manager_stand_in.h"
#include "support/test_environment.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;
using ::testing::Not;

class Doctor : public ::testing::Test {
 protected:
  const TempDir dir_;
  Host host_{dir_};
};

TEST_F(Doctor, FindsNothingOnAHealthyHost) {
  ServiceManagerStandIn manager(dir_);
  manager.Watch(30s);
  host_.daemon.options().manager = &manager;
  host_.StartWithTag("orders", 1000);
  static_cast<void>(host_.idctl.Claim("orders", 10));
  const Examination examination = Examine(host_.idctl);
  EXPECT_EQ(examination.exit_status, 0) << examination.document.dump(1);
  EXPECT_EQ(examination.document.at("ok"), true);
  EXPECT_EQ(examination.Of("problem").size(), 0U) << examination.document.dump(1);
  // idd runs as the user who runs the tests, which may be root.
  for (const nlohmann::json& warning : examination.Of("warning")) {
    EXPECT_EQ(warning.at("check"), "hardening") << warning;
  }
  for (const char* check :
       {"socket", "daemon", "versions", "store",      "writable",    "durability", "disk",
        "clock",  "marks",  "host",     "quarantine", "drained",     "exhaustion", "promise",
        "dry",    "waste",  "clients",  "limits",     "permissions", "restarts"}) {
    EXPECT_TRUE(examination.Has("ok", check)) << check << examination.document.dump(1);
  }
  const IdctlResult all = host_.idctl.Run({"doctor", "--all"});
  EXPECT_EQ(all.exit_status, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("\nhealthy: 0 problems, "));
  EXPECT_THAT(all.out, HasSubstr("ok       store        sqlite:"));
  EXPECT_THAT(host_.idctl.Run({"doctor"}).out, Not(HasSubstr("ok       store")));
  host_.daemon.Stop();
}

TEST_F(Doctor, NamesADrainedTagUntilItIsResumed) {
  host_.StartWithTag("orders", 1000);
  static_cast<void>(host_.idctl.Claim("orders", 300));
  host_.idctl.Do({"drain", "orders"});
  ExpectFinding(host_.idctl,
                {"warning", "drained", "1 tag: 'orders' drained", "idctl resume orders$", 0});
  EXPECT_TRUE(Examine(host_.idctl).Has("ok", "promise"));
  host_.idctl.Do({"drain"});
  ExpectFinding(host_.idctl,
                {"warning", "drained", "the whole host is drained", "idctl resume$", 0});
  host_.idctl.Do({"resume"});
  host_.idctl.Do({"resume", "orders"});
  EXPECT_TRUE(Examine(host_.idctl).Has("ok", "drained"));
}

// No client has claimed from it, so only the store knows it.
TEST_F(Doctor, NamesDrainedTagsThatWereNeverServed) {
  host_.StartWithTag("orders", 1000);
  host_.idctl.CreateTag("users", 1000);
  host_.idctl.Do({"drain", "orders"});
  ExpectFinding(host_.idctl,
                {"warning", "drained", "1 tag: 'orders' drained", "idctl resume orders", 0});
  host_.idctl.Do({"drain"});
  EXPECT_TRUE(Examine(host_.idctl).Has("warning", "drained"));
  EXPECT_THAT(host_.idctl.Run({"doctor"}).out, HasSubstr("the whole host is drained"));
  host_.daemon.Stop();
}

TEST_F(Doctor, NamesAReadOnlyStore) {
  host_.StartWithTag("orders", 1000);
  host_.daemon.Stop();
  const ReadOnlyFile database(host_.daemon.options().database);
  host_.daemon.Start();
  ASSERT_TRUE(WaitUntil(Patience(10s), [&] { return Examine(host_.idctl).exit_status == 1; }));
  ExpectFinding(host_.idctl, {"problem", "store", "read-only, for .*idd\\.db", "writable"});
}

// A reader that pins the log let it grow without a word.
TEST_F(Doctor, NamesALogThatAnotherProgramKeepsFromBeingEmptied) {
  host_.StartWithTag("orders", 1000);
  SqliteFile reader = host_.Database();
  reader.Execute("BEGIN");
  static_cast<void>(reader.QueryInteger("SELECT count(*) FROM leaf_alloc"));
  SqliteFile writer = host_.Database();
  writer.Execute("CREATE TABLE ballast(bytes BLOB)");
  writer.Execute("INSERT INTO ballast VALUES(zeroblob(70000000))");
  ExpectFinding(host_.idctl, {"warning", "disk", "-wal beside the SQLite file has 6. MiB",
                              "fuser -v .*end it", 0});
  reader.Execute("COMMIT");
  // The next leases copy the log into the file, and begin it again.
  EXPECT_TRUE(WaitUntil(Patience(30s), [this] {
    static_cast<void>(host_.idctl.Claim("orders", 2000));
    return !Examine(host_.idctl).Has("warning", "disk");
  })) << Examine(host_.idctl).document.dump(1);
}

TEST_F(Doctor, NamesAQuarantinedTag) {
  host_.StartWithTag("orders", 1000);
  static_cast<void>(host_.idctl.Claim("orders", 300));
  static_cast<void>(host_.idctl.Json({"status"}));  // shows idd the cursor's position
  const std::size_t mark = host_.daemon.LogMark();
  ForgeCursors(*MapRing(host_.daemon.socket(), "orders"), 1);
  ASSERT_TRUE(host_.daemon.WaitForLogLine("ring.quarantined.*orders", mark, Patience(5s)));
  ExpectFinding(host_.idctl, {"problem", "quarantine", "1 tag: 'orders' quarantined",
                              "idctl tag set orders --access socket"});
}

TEST_F(Doctor, NamesANearlyExhaustedTag) {
  host_.daemon.Start();
  host_.idctl.Do({"tag", "create", "orders", "--step", "100", "--max-id", "1000000"});
  host_.idctl.Do({"tag", "create", "bills", "--step", "100", "--max-id", "3000"});
  EXPECT_TRUE(Examine(host_.idctl).Has("ok", "exhaustion")) << "thirty leases are left";
  host_.idctl.Do({"tag", "create", "few", "--step", "100", "--max-id", "1500"});
  EXPECT_TRUE(Examine(host_.idctl).Has("warning", "exhaustion")) << "fifteen leases are left";
  static_cast<void>(host_.idctl.Claim("bills", 2900));
  ASSERT_TRUE(WaitUntil(Patience(10s), [&] { return Examine(host_.idctl).exit_status == 1; }));
  const Examination examination = Examine(host_.idctl);
  ASSERT_TRUE(examination.Has("problem", "exhaustion")) << examination.document.dump(1);
  for (const nlohmann::json& problem : examination.Of("problem")) {
    if (problem.at("check") != "exhaustion") continue;
    EXPECT_THAT(problem.at("found").get<std::string>(), HasSubstr("1 tag: 'bills' (100 ids left"));
    EXPECT_THAT(problem.at("next").get<std::string>(), HasSubstr("idctl tag set bills --max-id N"));
  }
}

TEST_F(Doctor, NamesAPromiseThatCannotBeKept) {
  host_.daemon.Start();
  host_.idctl.Do({"tag", "create", "orders", "--step", "1000", "--max-prefetch", "2000"});
  static_cast<void>(host_.idctl.Claim("orders", 20000));
  ExpectFinding(host_.idctl, {"problem", "promise", "1 tag: 'orders' .covers [0-9]+s of 10m at",
                              "idctl tag set orders --max-prefetch [0-9]+, or"});
}

TEST_F(Doctor, NamesASocketFolderThatOthersMayWrite) {
  host_.daemon.Start();
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0777), 0);
  const Examination examination = Examine(host_.idctl);
  EXPECT_EQ(examination.exit_status, 1);
  EXPECT_TRUE(examination.Has("problem", "socket")) << examination.document.dump(1);
}

TEST_F(Doctor, NamesASecondIddUnderItsName) {
  DaemonOptions options = DaemonOptions::In(dir_, "host-b");
  options.host_id = host_.daemon.options().host_id;
  host_.StartWithTag("orders", 1000);
  static_cast<void>(host_.idctl.Claim("orders", 10));
  EXPECT_TRUE(Examine(host_.idctl).Has("ok", "host"));
  DaemonProcess other(options);
  other.Start();  // abandons what it takes for leases of an earlier run
  ExpectFinding(host_.idctl,
                {"problem", "host", "another idd leases as 'host-a': .*abandoned [1-9]",
                 "another name .--host-id"});
}

TEST_F(Doctor, NamesAnOldClient) {
  host_.daemon.Start();
  RawConnection client(host_.daemon.socket());
  wire::HelloRequest hello;
  hello.abi_version = shm::kAbiVersion;
  std::memcpy(hello.client_version, "0.0.9\x1b[2J", 9);
  ASSERT_TRUE(client.Send(MakeRequest(wire::FrameType::kHello, 1, hello)));
  ASSERT_TRUE(client.Receive(Patience(5s)).has_value());
  const Examination examination = Examine(host_.idctl);
  EXPECT_EQ(examination.exit_status, 0) << "it is served, so it is a warning";
  ASSERT_TRUE(examination.Has("warning", "clients")) << examination.document.dump(1);
  RawConnection older(host_.daemon.socket());
  std::memset(hello.client_version, 0, sizeof hello.client_version);
  std::memcpy(hello.client_version, "0.0.9", 5);
  ASSERT_TRUE(older.Send(MakeRequest(wire::FrameType::kHello, 1, hello)));
  ASSERT_TRUE(older.Receive(Patience(5s)).has_value());
  const IdctlResult text = host_.idctl.Run({"doctor"});
  EXPECT_THAT(text.out, ::testing::ContainsRegex(
                            "warning  clients +old clients, 2 versions: 0\\.0\\.9 .ABI 1\\.[0-9]+. "
                            "in 1 connection, as pid [0-9]+ [^\n]*; next: they are served"));
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos) << "a client must not move the cursor";
}

TEST_F(Doctor, NamesAFullDisk) {
  SmallTmpfs disk(dir_.File("disk"), std::size_t{32} * 1024);
  host_.daemon.options().database = disk.File("idd.db");
  host_.StartWithTag("orders", 100);
  const Examination before = Examine(host_.idctl);
  EXPECT_FALSE(before.Has("problem", "disk")) << before.document.dump(1);
  EXPECT_TRUE(before.Has("problem", "durability")) << "a store in memory is a problem";
  disk.Fill();
  const IdctlResult early = host_.idctl.Run({"doctor"});
  EXPECT_EQ(early.exit_status, 1);
  EXPECT_THAT(early.out, ::testing::ContainsRegex("problem  disk +the folder of the database, "
                                                  "[^\n]* 0 KiB of 32 MiB left; next: free space"));
  // Fills the disk until the store has no room for a lease. A checkpoint may have freed some room
  // meanwhile.
  EXPECT_TRUE(WaitUntil(Patience(60s), [&] {
    if (host_.idctl.Run({"claim", "orders", "-n", "500"}).exit_status == 0) return false;
    disk.Fill();
    return host_.idctl.Run({"doctor"}).out.find("the store's disk is full, for") !=
           std::string::npos;
  })) << host_.idctl.Run({"doctor"}).out;
  disk.Free();
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] {
    return Examine(host_.idctl).Has("ok", "store") && Examine(host_.idctl).Has("ok", "disk");
  }));
}

TEST_F(Doctor, DistinguishesAHangFromAnAbsence) {
  host_.daemon.Start();
  host_.daemon.Signal(SIGSTOP);
  const IdctlResult hangs = host_.idctl.Run({"doctor", "--timeout", "300"});
  EXPECT_EQ(hangs.exit_status, 4) << hangs.out << hangs.err;
  EXPECT_THAT(hangs.out,
              HasSubstr("(pid " + std::to_string(host_.daemon.pid()) + ") does not answer"));
  host_.daemon.Signal(SIGCONT);
  host_.daemon.Kill();
  const IdctlResult dead = host_.idctl.Run({"doctor"});
  EXPECT_EQ(dead.exit_status, 4) << dead.out << dead.err;
  EXPECT_THAT(dead.out, HasSubstr("the file was left by an idd that has ended"));
  const IdctlResult none = Idctl(dir_.File("nowhere")).Run({"doctor"});
  EXPECT_EQ(none.exit_status, 4) << none.out << none.err;
  EXPECT_THAT(none.out, HasSubstr("problem  socket       there is no '"));
  WriteFile(dir_.File("file"), "");
  const IdctlResult file = Idctl(dir_.File("file")).Run({"doctor"});
  EXPECT_NE(file.exit_status, 0);
  EXPECT_THAT(file.out, HasSubstr("is not a socket"));
}

class DoctorForUsers : public HostWithUsers {};

TEST_F(DoctorForUsers, UserThatMayNotConnectLearnsIt) {
  host_.daemon.Start();
  const IdctlResult outsider = host_.idctl.As(kOutsider).Run({"doctor"});
  EXPECT_EQ(outsider.exit_status, 6) << outsider.out << outsider.err;
  EXPECT_THAT(outsider.out, ::testing::ContainsRegex("problem  daemon +[^\n]*12399[^\n]*; next: "
                                                     "[^\n]*access"));
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0700), 0);
  const IdctlResult shut_out = host_.idctl.As(kOutsider).Run({"doctor"});
  EXPECT_EQ(shut_out.exit_status, 6) << shut_out.out << shut_out.err;
  EXPECT_THAT(shut_out.out, ::testing::ContainsRegex("problem  socket +[^\n]*Permission denied; "
                                                     "next: let this user into the folder"));
}

TEST_F(DoctorForUsers, UserWithoutAdminRightsSeesWhatIsLeftOut) {
  Configure(Rule("\"orders\"", kAlice.uid, "access = \"shm\""));
  host_.StartWithTag("orders", 1000);
  host_.idctl.Do({"tag", "create", "secret", "--max-id", "10"});
  EXPECT_TRUE(Examine(host_.idctl).Has("problem", "exhaustion"));
  const Examination alice = Examine(host_.idctl.As(kAlice));
  EXPECT_EQ(alice.exit_status, 0) << alice.document.dump(1);
  EXPECT_TRUE(alice.Has("ok", "exhaustion")) << "she may not see the other tag";
  EXPECT_TRUE(alice.Has("ok", "durability"));
  EXPECT_FALSE(alice.Has("ok", "permissions"));
  EXPECT_THAT(alice.document.at("left_out").dump(), HasSubstr("who administer idd"));
  EXPECT_EQ(alice.document.dump().find("secret"), std::string::npos);
  EXPECT_EQ(alice.document.dump().find(host_.daemon.options().state_dir), std::string::npos);
}

}  // namespace
}  // namespace idd::harness
