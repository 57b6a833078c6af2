// SPDX-License-Identifier: Apache-2.0
//
// The ways to get idd's metrics: HTTP, the file, idctl. Covers the errors of each; and claims must
// not wait for many scrapers, for slow ones, or for thousands of tags.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/free_ports.h"
#include "support/host.h"
#include "support/ring_request.h"
#include "support/scrape.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class MetricsWays : public ::testing::Test {
 protected:
  // Starts idd with metrics over HTTP.
  void StartListening() {
    host_.daemon.options().more_arguments = {"--metrics-listen",
                                             "127.0.0.1:" + std::to_string(port_)};
    host_.daemon.Start();
  }
  void Reload(const std::string& config) {
    WriteFile(host_.daemon.options().config, config);
    const std::size_t mark = host_.daemon.LogMark();
    host_.daemon.Signal(SIGHUP);
    ASSERT_TRUE(host_.daemon.WaitForLogLine("config.reloaded", mark, Patience(5s)));
  }
  // The start fails with that exit status and reports why.
  void ExpectRefused(const std::string& address, int status, const std::string& why) {
    host_.daemon.options().more_arguments = {"--metrics-listen", address};
    const std::size_t mark = host_.daemon.LogMark();
    EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(10s)), status) << address;
    EXPECT_THAT(host_.daemon.LogSince(mark), HasSubstr(why)) << address;
    EXPECT_FALSE(Exists(host_.daemon.options().database)) << "idd accessed the store";
  }

  const TempDir dir_;
  CleanHost host_{dir_};
  const std::uint16_t port_ = FreePorts(1).front();
};

TEST_F(MetricsWays, AllThreeReportTheSame) {
  const std::string file = dir_.File("idd.prom");
  StartListening();
  host_.idctl.CreateTag("orders", 100);
  static_cast<void>(host_.idctl.Claim("orders", 42));
  const HttpAnswer answer = Http(port_, "GET", "/metrics");
  ASSERT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, HasSubstr("text/plain; version=0.0.4"));
  Reload("metrics_textfile = '" + file + "'\n");
  ASSERT_TRUE(WaitUntil(Patience(5s), [&file] { return Exists(file); }));
  const std::string by_idctl = host_.idctl.Run({"metrics"}).out;
  for (const std::string& text : {answer.body, ReadFile(file), by_idctl}) {
    const Scrape page(text);
    EXPECT_EQ(page.Sum("idd_tag_claimed_ids_total"), 42);
    EXPECT_EQ(page.At("idd_store_up"), 1);
    EXPECT_EQ(page.types(), Scrape(by_idctl).types());
    EXPECT_EQ(PromtoolFindings(text), "");
  }
}

TEST_F(MetricsWays, HttpIsReadOnly) {
  StartListening();
  EXPECT_EQ(Http(port_, "GET", "/").status, 404);
  EXPECT_EQ(Http(port_, "GET", "/metrics/x").status, 404);
  EXPECT_EQ(Http(port_, "GET", "/../../etc/passwd").status, 404);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const HttpAnswer answer = Http(port_, method, "/metrics");
    EXPECT_NE(answer.status, 200) << method;
    EXPECT_THAT(answer.body, Not(HasSubstr("idd_store_up"))) << method;
  }
  const HttpAnswer head = Http(port_, "HEAD", "/metrics");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(Http(port_, "GET", "/metrics").status, 200);
}

TEST_F(MetricsWays, ScrapersOfOneSecondShareAPage) {
  StartListening();
  const auto turns = [this] {
    return Scrape(host_.idctl.Run({"metrics"}).out).At("idd_metrics_turn_seconds_count");
  };
  const double before = turns();
  const auto began = MonotonicClock::now();
  for (int i = 0; i < 40; ++i) EXPECT_EQ(Http(port_, "GET", "/metrics").status, 200);
  const std::chrono::duration<double> took = MonotonicClock::now() - began;
  EXPECT_LE(turns() - before, took.count() + 3) << "each scrape cost the loop a sample";
}

TEST_F(MetricsWays, SlowScrapersDelayNeitherClaimsNorOthersIndefinitely) {
  StartListening();
  host_.idctl.CreateTag("orders", 1000);
  std::vector<ScopedFd> silent;
  silent.reserve(8);
  for (int i = 0; i < 8; ++i) silent.push_back(ConnectTo(port_));
  for (const ScopedFd& fd : silent) ASSERT_EQ(::write(fd.get(), "GET /met", 8), 8);
  for (int i = 0; i < 5; ++i) {
    const IdctlResult claim = host_.idctl.Run({"claim", "orders", "--timeout", "60000"});
    EXPECT_EQ(claim.exit_status, 0) << claim.err;
    EXPECT_LT(claim.duration, 30s) << "the claim waited for the scrapers";
  }
  EXPECT_TRUE(WaitUntil(Patience(60s), [this] {
    try {
      return Http(port_, "GET", "/metrics", 2s).status == 200;
    } catch (const HarnessError&) {  // refused while all are in use
      return false;
    }
  }));
  for (const ScopedFd& fd : silent) {
    std::array<char, 4096> answer{};
    ASSERT_GT(::recv(fd.get(), answer.data(), answer.size() - 1, 0), 0);
    EXPECT_THAT(answer.data(), StartsWith("HTTP/1.1 4"));
  }
}

// Fifty requests that never ended kept scrapes out for more than ten seconds, Prometheus' timeout;
// these would have for six minutes.
TEST_F(MetricsWays, RequestsThatNeverEndKeepNoScrapeOut) {
  StartListening();
  std::vector<ScopedFd> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(ConnectTo(port_));
    ASSERT_EQ(::write(silent.back().get(), "GET /met", 8), 8);
  }
  EXPECT_EQ(Http(port_, "GET", "/metrics", Patience(10s)).status, 200);
  EXPECT_EQ(Http(port_, "GET", "/metrics", Patience(10s)).status, 200);
}

TEST_F(MetricsWays, NonsenseIsAnsweredAndEndsThere) {
  StartListening();
  for (const char* nonsense : {"GET\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n",
                               "GET /metrics HTTP/9.9\r\n\r\n", "HEAD\r\n\r\n"}) {
    const ScopedFd fd = ConnectTo(port_);
    ASSERT_GT(::write(fd.get(), nonsense, std::strlen(nonsense)), 0);
    std::array<char, 4096> answer{};
    ASSERT_GT(::recv(fd.get(), answer.data(), answer.size() - 1, 0), 0) << nonsense;
    EXPECT_THAT(answer.data(), AnyOf(StartsWith("HTTP/1.1 4"), StartsWith("HTTP/1.1 505 ")))
        << nonsense;
  }
  EXPECT_EQ(Http(port_, "GET", "/metrics").status, 200);
}

TEST_F(MetricsWays, AddressThatCannotBeEndsTheStart) {
  ExpectRefused("9742", 2, "metrics-listen");
  ExpectRefused("nonsense:80", 2, "127.0.0.1:9742");
  ExpectRefused("192.0.2.1:9742", 1, "cannot serve metrics at 192.0.2.1:9742");
  host_.daemon.options().more_arguments = {"--check-config", "--metrics-listen", "x"};
  EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(10s)), 2);
  host_.daemon.options().more_arguments = {};
  host_.daemon.options().environment = {"IDD_METRICS_LISTEN=:1"};
  EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(10s)), 2);
}

TEST_F(MetricsWays, PortThatIsTakenEndsTheStartOfTheSecondAlone) {
  StartListening();
  Host other(dir_, "host-b");
  other.daemon.options().more_arguments = host_.daemon.options().more_arguments;
  EXPECT_EQ(other.daemon.LaunchAndWait(Patience(10s)), 1);
  EXPECT_THAT(other.daemon.Log(), HasSubstr("Address already in use"));
  EXPECT_THAT(other.daemon.Log(), HasSubstr("metrics-listen"));
  EXPECT_EQ(Http(port_, "GET", "/metrics").status, 200);
}

TEST_F(MetricsWays, NoPortIsOpenByDefault) {
  host_.daemon.Start();
  EXPECT_THROW(static_cast<void>(ConnectTo(port_)), HarnessError);
}

TEST_F(MetricsWays, StopWithAScraperConnectedIsClean) {
  StartListening();
  const ScopedFd silent = ConnectTo(port_);
  ASSERT_EQ(::write(silent.get(), "GET ", 4), 4);
  EXPECT_EQ(Http(port_, "GET", "/metrics").status, 200);
  host_.daemon.Stop();
}

TEST_F(MetricsWays, FileIsWholeReadableAndGoesWithIdd) {
  const std::string file = dir_.File("idd.prom");
  // idd does not follow a symbolic link at the file's temporary name.
  const std::string elsewhere = dir_.File("elsewhere");
  WriteFile(elsewhere, "mine");
  std::filesystem::create_symlink(elsewhere, file + ".new");
  host_.daemon.options().more_arguments = {"--metrics-textfile", file};
  host_.daemon.Start();
  ASSERT_TRUE(WaitUntil(Patience(5s), [&file] { return Exists(file); }));
  EXPECT_EQ(ReadFile(elsewhere), "mine");
  struct stat info {};
  ASSERT_EQ(::lstat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, static_cast<mode_t>(S_IFREG | 0644));
  EXPECT_EQ(Scrape(ReadFile(file)).At("idd_build_info{version=\"" IDD_TEST_VERSION "\"}"), 1);
  // The next file is written some 15 seconds later.
  const ino_t first = info.st_ino;
  EXPECT_TRUE(WaitUntil(Patience(60s),
                        [&] { return ::lstat(file.c_str(), &info) == 0 && info.st_ino != first; }));
  host_.daemon.Stop();
  EXPECT_FALSE(Exists(file)) << "outdated numbers remain";
  EXPECT_FALSE(Exists(file + ".new"));
}

TEST_F(MetricsWays, FileThatCannotBeWrittenIsLoggedOnceAndTriedAgain) {
  const std::string folder = dir_.File("later");
  const std::string file = folder + "/idd.prom";
  host_.daemon.options().more_arguments = {"--metrics-textfile", file};
  host_.daemon.Start();
  ASSERT_TRUE(host_.daemon.WaitForLogLine("metrics.textfile_failed.*directory .* does not exist", 0,
                                          Patience(5s)));
  EXPECT_EQ(host_.idctl.Run({"metrics"}).exit_status, 0);
  std::filesystem::create_directory(folder);
  ASSERT_TRUE(host_.daemon.WaitForLogLine("metrics.textfile_written", 0, Patience(60s)));
  EXPECT_TRUE(Exists(file));
  const std::string log = host_.daemon.Log();
  const std::size_t told = log.find("metrics.textfile_failed");
  EXPECT_EQ(log.find("metrics.textfile_failed", told + 1), std::string::npos) << log;
}

TEST_F(MetricsWays, ReloadMovesTheFileAndNamesWhatNeedsARestart) {
  const std::string first = dir_.File("first.prom");
  const std::string second = dir_.File("second.prom");
  host_.daemon.Start();
  Reload("metrics_textfile = '" + first + "'\n");
  ASSERT_TRUE(WaitUntil(Patience(5s), [&] { return Exists(first); }));
  Reload("metrics_textfile = '" + second + "'\n");
  ASSERT_TRUE(WaitUntil(Patience(5s), [&] { return Exists(second) && !Exists(first); }));
  const std::size_t mark = host_.daemon.LogMark();
  Reload("metrics_listen = '127.0.0.1:" + std::to_string(port_) + "'\n");
  EXPECT_TRUE(
      host_.daemon.WaitForLogLine("config.needs_restart.*metrics_listen", mark, Patience(5s)));
  EXPECT_TRUE(WaitUntil(Patience(5s), [&] { return !Exists(second); })) << "it is switched off";
  EXPECT_THROW(static_cast<void>(ConnectTo(port_)), HarnessError);
}

TEST_F(MetricsWays, ReaderThatGoesAwayNeedsNoMessage) {
  host_.daemon.Start();
  for (const char* json : {"", "--json "}) {
    std::array<int, 2> ends{};
    RequireErrno(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe2");
    const ScopedFd writer(ends[1]);
    ::close(ends[0]);  // the reader is gone
    ChildProcess shell(
        {.argv = {"/bin/sh", "-c",
                  R"("$0" --socket "$1" )" + std::string(json) + "metrics; echo status $? >&2",
                  IdctlBinary(), host_.daemon.socket()},
         .environment = {},
         .stdout_fd = writer.get()});
    ASSERT_EQ(shell.WaitFor(Patience(20s)), 0);
    EXPECT_EQ(shell.stderr_text(), "status 1\n");
  }
}

TEST_F(MetricsWays, IdctlSaysWhatIsWrong) {
  EXPECT_EQ(host_.idctl.Run({"metrics"}).exit_status, 4) << "no process listens";
  host_.daemon.Start();
  const IdctlResult usage = host_.idctl.Run({"metrics", "orders"});
  EXPECT_EQ(usage.exit_status, 2);
  EXPECT_THAT(usage.err, HasSubstr("orders"));
  EXPECT_EQ(usage.out, "");
}

// Two thousand tags, each with a ring, as on a large host.
class MetricsOfManyTags : public MetricsWays {
 protected:
  static constexpr int kTags = 2000;

  void SetUp() override {
    host_.daemon.Start();  // creates the tables
    host_.daemon.Stop();
    host_.Database().Execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
        std::to_string(kTags) +
        ") INSERT INTO leaf_alloc(biz_tag, max_id, step) SELECT printf('tag-%04d', i), 1, 100 "
        "FROM n");
    StartListening();
    AttachAll();
  }
  void AttachAll() const {
    const Deadline deadline = Deadline::After(Patience(100s));
    auto channel = ConnectAndGreet(host_.daemon.socket(), deadline);
    Require(channel.ok(), channel.status().message());
    for (int i = 1; i <= kTags; ++i) {
      std::array<char, 16> name{};
      std::snprintf(name.data(), name.size(), "tag-%04d", i);
      const auto reply = RequestRing(channel.value(), name.data(), deadline);
      Require(reply.ok(), reply.status().message());
    }
  }
};

// scripts/bench measures the time of a scrape, of its turns, and of claims meanwhile.
TEST_F(MetricsOfManyTags, AreSampledInManyTurnsAndClaimsAreServedMeanwhile) {
  std::atomic<bool> stop = false;
  std::thread claimer([&] {
    while (!stop) {
      const IdctlResult claim = host_.idctl.Run({"claim", "tag-0001", "--timeout", "60000"});
      EXPECT_EQ(claim.exit_status, 0) << claim.err;
    }
  });
  for (int i = 0; i < 3; ++i) {
    const HttpAnswer answer = Http(port_, "GET", "/metrics", Patience(60s));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(Scrape(answer.body).At("idd_tags"), kTags);
    EXPECT_EQ(host_.idctl.Json({"metrics"}).at("metrics").size(),
              Scrape(answer.body).types().size());
  }
  stop = true;
  claimer.join();
  const Scrape page(host_.idctl.Run({"metrics"}).out);
  EXPECT_GE(page.At("idd_metrics_turn_seconds_count"), kTags / 100.0) << "all tags in one turn";
}

}  // namespace
}  // namespace idd::harness
