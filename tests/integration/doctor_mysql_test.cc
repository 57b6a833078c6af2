// SPDX-License-Identifier: Apache-2.0
//
// `idctl doctor` on a real idd and a real server, with faults staged in the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/db_server.h"
#include "support/doctor.h"
#include "support/host.h"
#include "support/mysql_proxy.h"
#include "support/test_clock.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

class DoctorOnServer : public ::testing::Test {
 protected:
  void Start(const std::string& url) {
    host_.daemon.options().database = url;
    host_.daemon.Start();
  }
  // idd notices within a second that the store is unavailable.
  [[nodiscard]] bool WaitForProblem(const std::string& check) const {
    return WaitUntil(Patience(20s), [&] { return Examine(host_.idctl).Has("problem", check); });
  }

  const TempDir server_dir_;  // writable for the server's user; idd's socket is elsewhere
  const TempDir dir_;
  DbServer server_{server_dir_};
  Host host_{dir_};
};

TEST_F(DoctorOnServer, FindsNothingOnAHealthyServerAndThenThatItIsDown) {
  server_.Start();
  Start(server_.Url());
  host_.idctl.CreateTag("orders", 1000);
  static_cast<void>(host_.idctl.Claim("orders", 10));
  const Examination healthy = Examine(host_.idctl);
  EXPECT_EQ(healthy.exit_status, 0) << healthy.document.dump(1);
  for (const char* check : {"store", "writable", "durability", "clock", "host", "marks"}) {
    EXPECT_TRUE(healthy.Has("ok", check)) << check << healthy.document.dump(1);
  }
  EXPECT_THAT(healthy.document.dump(), HasSubstr(IsMysql() ? "MySQL" : "MariaDB"));
  EXPECT_THAT(healthy.document.dump(),
              HasSubstr("the store's clock agrees with this host's within "));
  server_.Kill();
  ASSERT_TRUE(WaitForProblem("store"));
  ExpectFinding(host_.idctl, {"problem", "store", "cannot be reached, for .*error 20",
                              "start the database server"});
  EXPECT_THAT(Examine(host_.idctl).document.at("left_out").dump(), HasSubstr("durability, clock"));
  server_.Start();
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] { return Examine(host_.idctl).exit_status == 0; }));
}

TEST_F(DoctorOnServer, NamesAReadOnlyServer) {
  server_.Start();
  Start(server_.Url());
  host_.idctl.CreateTag("orders", 1000);
  server_.Session("").Execute("SET GLOBAL read_only = 1");
  const Examination examination = Examine(host_.idctl);
  EXPECT_EQ(examination.exit_status, 1);
  ASSERT_EQ(examination.Of("problem").size(), 1U) << examination.document.dump(1);
  const nlohmann::json problem = examination.Of("problem").front();
  EXPECT_THAT(problem.at("found").get<std::string>(), HasSubstr("read-only"));
  EXPECT_THAT(problem.at("next").get<std::string>(), HasSubstr("SET GLOBAL read_only = OFF"));
}

TEST_F(DoctorOnServer, NamesAWrongPasswordAndHidesIt) {
  server_.Start();
  std::string url = server_.Url();
  url.replace(url.find("secret"), 6, "Pa55word");
  Start(url);
  ASSERT_TRUE(WaitForProblem("store"));
  ExpectFinding(host_.idctl, {"problem", "store", "refuses the password, for .*error 1045",
                              "correct user and password"});
  EXPECT_EQ(Examine(host_.idctl).document.dump().find("Pa55word"), std::string::npos);
}

TEST_F(DoctorOnServer, NamesAClockThatIsOff) {
  if (SlowdownFactor() != 1) GTEST_SKIP() << "a sanitizer's runtime must be loaded first";
  TestClock clock(dir_, "host-a");
  clock.ShiftTo(3'600'000);
  host_.daemon.options().environment = clock.environment();
  server_.Start();
  Start(server_.Url());
  ExpectFinding(host_.idctl,
                {"problem", "clock", "clock is 3[56][0-9]{5} ms behind this host's", "NTP"});
}

TEST_F(DoctorOnServer, NamesASecondHostOfItsName) {
  server_.Start();
  Start(server_.Url());
  const TempDir elsewhere;
  Host twin(elsewhere, "host-b");
  twin.daemon.options().host_id = host_.daemon.options().host_id;
  twin.daemon.options().database = server_.Url();
  twin.daemon.Start();
  ASSERT_TRUE(
      WaitUntil(Patience(20s), [&] { return Examine(twin.idctl).Has("problem", "store"); }));
  ExpectFinding(twin.idctl, {"problem", "store",
                             "another host has this host's name, for .*'host-a'", "--host-id"});
  EXPECT_EQ(Examine(host_.idctl).exit_status, 0) << "the first host must be fine";
}

TEST_F(DoctorOnServer, NamesWeakDurability) {
  server_.Start({"--innodb-flush-log-at-trx-commit=0"});
  Start(server_.Url());
  ExpectFinding(host_.idctl,
                {"warning", "durability", "innodb_flush_log_at_trx_commit is 0: a crash",
                 "SET GLOBAL innodb_flush_log_at_trx_commit = 1", 0});
}

TEST_F(DoctorOnServer, AnswersBesideAServerThatHangs) {
  server_.Start();
  MysqlProxy proxy(server_dir_.File("proxy"), server_.socket());
  std::string url = server_.Url();
  url.replace(url.find(server_.socket()), server_.socket().size(), server_dir_.File("proxy"));
  Start(url);
  host_.idctl.CreateTag("orders", 1000);
  proxy.Hang(true);
  const Examination examination = Examine(host_.idctl);
  EXPECT_EQ(examination.exit_status, 1) << examination.document.dump(1);
  EXPECT_TRUE(examination.Has("problem", "store")) << examination.document.dump(1);
  proxy.Hang(false);
}

}  // namespace
}  // namespace idd::harness
