// SPDX-License-Identifier: Apache-2.0
//
// A journal of years: an audit and the lists of it are quick, need the same memory as those of a
// small one and hold no lease up, and neither does folding it; nothing that is killed changes a
// sum.
//
// Method: the real idd, on a database whose journal was filled by SQL as idd itself would have
// filled it. A tag of mode ticket makes each claim a lease, so that claims measure leases.
// IDD_TEST_LOAD_PERCENT=100 makes 10,000,000 leases, and IDD_TEST_FOLD_S bounds the seconds for
// which they are folded: all of it takes hours on SQLite, where idd spends a tenth of its time on
// it. Figures are printed; only those that hold on a busy machine are required.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idclient/idclient.hpp"
#include "support/db_server.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr int kTags = 10;

std::chrono::seconds FoldFor() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
  const char* const wanted = std::getenv("IDD_TEST_FOLD_S");
  return wanted == nullptr ? std::chrono::hours(2) : std::chrono::seconds(std::stoll(wanted));
}

// The times of claims, one after the other, until it ends.
class LeaseMeter {
 public:
  explicit LeaseMeter(const std::string& socket)
      : thread_([this, socket] {
          idclient::Options options;
          options.socket_path = socket;
          idclient::Client client(options);
          const idclient::Tag tag = client.tag("tickets");
          while (!is_done_) {
            const auto began = std::chrono::steady_clock::now();
            static_cast<void>(tag.claim(Patience(20s)));
            const std::chrono::duration<double, std::milli> took =
                std::chrono::steady_clock::now() - began;
            took_ms_.push_back(took.count());
          }
        }) {}
  ~LeaseMeter() {
    is_done_ = true;
    if (thread_.joinable()) thread_.join();
  }
  LeaseMeter(const LeaseMeter&) = delete;
  LeaseMeter& operator=(const LeaseMeter&) = delete;

  struct Figures {
    std::size_t leases = 0;
    double p50 = 0;
    double p99 = 0;
  };
  [[nodiscard]] Figures End() {
    is_done_ = true;
    thread_.join();
    std::sort(took_ms_.begin(), took_ms_.end());
    Require(!took_ms_.empty(), "no lease was taken");
    const auto at = [this](std::size_t percent) {
      return took_ms_[(took_ms_.size() - 1) * percent / 100];
    };
    return {.leases = took_ms_.size(), .p50 = at(50), .p99 = at(99)};
  }

 private:
  std::atomic<bool> is_done_{false};
  std::vector<double> took_ms_;
  std::thread thread_;
};

void Print(const char* what, const LeaseMeter::Figures& figures) {
  std::printf("%-28s %zu leases, p50 %.2f ms, p99 %.2f ms\n", what, figures.leases, figures.p50,
              figures.p99);
  static_cast<void>(std::fflush(stdout));
}

class LargeJournal : public ::testing::TestWithParam<const char*> {
 protected:
  LargeJournal() {
    if (IsMariadb()) {
      server_.emplace(dir_);
      server_->Start({"--innodb-buffer-pool-size=1G", RedoLog("512M")});
      host_.daemon.options().database = server_->Url();
    }
    host_.daemon.options().more_arguments = {"--journal-retention", "0"};
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "tickets", "--mode", "ticket"});
    Fill();
  }
  [[nodiscard]] static bool IsMariadb() { return std::string(GetParam()) == "mariadb"; }

  void Execute(const std::string& sql) const {
    if (IsMariadb()) {
      server_->Session().Execute(sql);
    } else {
      host_.Database().Execute(sql);
    }
  }
  [[nodiscard]] std::uint64_t Count(const std::string& sql) const {
    if (IsMariadb()) return std::stoull(server_->Session().Query(sql));
    return static_cast<std::uint64_t>(host_.Database().QueryInteger(sql));
  }

  // Leases of ten tags and twenty hosts over the last 180 days, one after the other, all ended and
  // settled.
  void Fill() {
    for (int tag = 0; tag < kTags; ++tag) {
      host_.idctl.Do({"tag", "create", "t" + std::to_string(tag), "--step", "1000", "--start",
                      std::to_string(leases_ / kTags * 1000 + 2001)});
    }
    constexpr std::uint64_t kAtOnce = 1'000'000;
    for (std::uint64_t first = 1; first <= leases_; first += kAtOnce) {
      const std::uint64_t last = std::min(leases_, first + kAtOnce - 1);
      IsMariadb() ? FillMariadb(first, last) : FillSqlite(first, last);
    }
    const std::string month =
        IsMariadb() ? "DATE_FORMAT(closed_at, '%Y-%m')" : "substr(closed_at, 1, 7)";
    Execute(
        "INSERT INTO idd_total(biz_tag, host, month, leases, leased, claimed, returned, abandoned,"
        " used_limit, ranges) SELECT biz_tag, host, " +
        month +
        ", COUNT(*), SUM(`limit` - base), SUM(claimed), SUM(returned), SUM(abandoned),"
        " MAX(used_limit), '' FROM idd_ended GROUP BY 1, 2, 3");
    // Later leases have later numbers.
    const std::string next = std::to_string(leases_ + 1);
    Execute("INSERT INTO idd_lease(seq, token, biz_tag, host, base, `limit`) VALUES(" + next +
            ", '0000000000000000000000000000ffff', 'gone', 'gone', 1, 2)");
    AwaitStore();  // idd found its database locked meanwhile
  }
  // A large file takes a while to open.
  void AwaitStore() const {
    Require(WaitUntil(Patience(30s),
                      [this] {
                        return host_.idctl.Run({"audit", "--all-hosts"}).exit_status == 0;
                      }),
            "idd does not open its store");
  }
  void FillSqlite(std::uint64_t first, std::uint64_t last) const {
    const std::string step = std::to_string(180.0 / static_cast<double>(leases_));
    Execute("WITH RECURSIVE n(seq) AS (SELECT " + std::to_string(first) +
            " UNION ALL SELECT seq + 1 FROM n WHERE seq < " + std::to_string(last) +
            ") INSERT INTO idd_ended SELECT seq, printf('%032x', seq), 't' || (seq % 10),"
            " 'h' || (seq % 20), seq / 10 * 1000 + 1, seq / 10 * 1000 + 1001, 'exhausted', 1000, 0,"
            " 0, datetime('now', (seq * " +
            step + " - 180) || ' days'), datetime('now', (seq * " + step +
            " - 180) || ' days', '1 hour'), seq / 10 * 1000 + 1001 FROM n");
  }
  void FillMariadb(std::uint64_t first, std::uint64_t last) const {
    const std::string at = "CURRENT_TIMESTAMP - INTERVAL FLOOR((" + std::to_string(leases_) +
                           " - seq) * 15552000 / " + std::to_string(leases_) + ") SECOND";
    Execute(
        "INSERT INTO idd_ended SELECT seq, LPAD(LOWER(HEX(seq)), 32, '0'),"
        " CONCAT('t', seq % 10), CONCAT('h', seq % 20), seq DIV 10 * 1000 + 1,"
        " seq DIV 10 * 1000 + 1001, 'exhausted', 1000, 0, 0, " +
        at + ", " + at + " + INTERVAL 1 HOUR, seq DIV 10 * 1000 + 1001 FROM " +
        Numbers(first, last));
  }

  // The process's memory that is not shared, in MiB.
  [[nodiscard]] double MemoryOfIdd() const {
    std::ifstream status("/proc/" + std::to_string(host_.daemon.pid()) + "/status");
    std::string word;
    double kib = 0;
    while (status >> word) {
      if (word == "RssAnon:") status >> kib;
    }
    return kib / 1024;
  }
  [[nodiscard]] double SecondsFor(const std::vector<std::string>& arguments) const {
    const auto began = std::chrono::steady_clock::now();
    host_.idctl.Do(arguments);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  [[nodiscard]] double MedianSeconds(const std::vector<std::string>& arguments) const {
    std::vector<double> seconds;
    for (int i = 0; i < 7; ++i) seconds.push_back(SecondsFor(arguments));
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
  // The sums of the filled tags.
  [[nodiscard]] std::string Sums() const {
    std::string sums;
    const nlohmann::json audit = host_.idctl.Json({"audit", "--all-hosts"});
    for (const auto& tag : audit.at("tags")) {
      if (tag.at("tag").get<std::string>().starts_with("t") && tag.at("tag") != "tickets") {
        sums += tag.dump() + "\n";
      }
    }
    return sums;
  }
  void RestartWithRetention(const std::string& retention) {
    host_.daemon.options().more_arguments = {"--journal-retention", retention};
    host_.daemon.Restart();
    AwaitStore();
  }
  [[nodiscard]] LeaseMeter::Figures MeasureFor(std::chrono::milliseconds time,
                                               const std::function<void()>& meanwhile) const {
    LeaseMeter meter(host_.daemon.socket());
    const Deadline deadline = Deadline::After(time);
    while (!deadline.passed()) meanwhile();
    return meter.End();
  }

  // Ten percent of the load are a thousandth of the leases.
  const std::uint64_t leases_ =
      std::max<std::uint64_t>(ScaledLoad(ScaledLoad(ScaledLoad(10'000'000))) / 10 * 10, 10'000);
  const int kills_ = static_cast<int>(std::max<std::uint64_t>(ScaledLoad(10), 3));
  const TempDir dir_;
  std::optional<DbServer> server_;
  Host host_{dir_};
};

TEST_P(LargeJournal, IsAuditedListedAndFoldedBesideLeases) {
  const std::string sums = Sums();
  EXPECT_NE(sums, "");
  static_cast<void>(MeasureFor(500ms, [] { std::this_thread::sleep_for(10ms); }));
  const double memory = MemoryOfIdd();
  const auto alone = MeasureFor(5s, [] { std::this_thread::sleep_for(10ms); });
  const double audit = MedianSeconds({"audit", "--all-hosts"});
  const double list = MedianSeconds({"lease", "list", "--limit", "100"});
  const auto audited = MeasureFor(5s, [this] {
    static_cast<void>(SecondsFor({"audit", "--all-hosts"}));
  });
  const double grown = MemoryOfIdd() - memory;
  std::printf("%s, %llu leases: audit %.2f s, newest 100 %.0f ms, memory +%.1f MiB\n", GetParam(),
              static_cast<unsigned long long>(leases_), audit, list * 1000, grown);
  Print("alone:", alone);
  Print("beside audits:", audited);
  // A sanitizer keeps memory that was freed.
  if (SlowdownFactor() == 1) {
    EXPECT_LT(grown, 10);
  }
  EXPECT_EQ(host_.idctl.Json({"audit", "--all-hosts"}).at("findings").size(), 0U);
  // An id of the middle of the journal, and the newest lease of a tag.
  const std::uint64_t middle = leases_ / 2 / kTags * kTags;
  const std::string id = std::to_string(middle / 10 * 1000 + 5);
  EXPECT_EQ(host_.idctl.Json({"whois", "t0", id}).at("leases").at(0).at("state"), "exhausted");

  // Folding half of it, with kills from its beginning to its end.
  const std::uint64_t to_fold = leases_ / 2;
  const auto folded = [this] { return Count("SELECT SUM(folded_leases) FROM idd_total"); };
  std::mt19937_64 random(TestSeed());
  std::vector<double> ratios;
  int kills = 0;
  const auto began = std::chrono::steady_clock::now();
  const auto done = [&] {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
    return std::max(static_cast<double>(folded()) / static_cast<double>(to_fold),
                    elapsed / FoldFor());
  };
  while (folded() + leases_ / 1000 < to_fold && done() < 1) {
    const auto time = std::chrono::milliseconds(2000 + random() % 2000);
    LeaseMeter::Figures without;
    const bool kill = kills < kills_ && done() * kills_ >= kills;
    if (kill) {
      RestartWithRetention("0");
      without = MeasureFor(time, [] { std::this_thread::sleep_for(10ms); });
      RestartWithRetention("90d");
      std::this_thread::sleep_for(1s);  // until the first batch
    }
    const std::uint64_t before = folded();
    const auto beside = MeasureFor(time, [] { std::this_thread::sleep_for(10ms); });
    EXPECT_EQ(Sums(), sums);
    if (!kill) continue;
    Print("without folding:", without);
    Print("beside folding:", beside);
    std::printf("%28.0f leases folded in a second, %llu in all\n",
                static_cast<double>(folded() - before) * 1000 / static_cast<double>(time.count()),
                static_cast<unsigned long long>(folded()));
    ratios.push_back(beside.p99 / without.p99);
    ++kills;
    host_.daemon.Kill();
    host_.daemon.Start();
    AwaitStore();
    EXPECT_EQ(Sums(), sums);
  }
  EXPECT_GT(folded(), 0U);
  EXPECT_EQ(Sums(), sums);
  std::sort(ratios.begin(), ratios.end());
  std::printf("p99 beside folding : without %.2f, %.2f to %.2f; %llu leases folded, %d kills\n",
              ratios[ratios.size() / 2], ratios.front(), ratios.back(),
              static_cast<unsigned long long>(folded()), kills);
  const IdctlResult full =
      host_.idctl.Run({"--timeout", "3600000", "audit", "--all-hosts", "--full"});
  EXPECT_EQ(full.exit_status, 0) << full.out << full.err
                                 << host_.idctl.Run({"lease", "list", "--state", "active"}).out
                                 << host_.daemon.Log();
  const std::string old_id = std::to_string(folded() / 2 / 10 * 1000 + 5);
  // Several hosts, once there are too many ranges to keep them apart.
  EXPECT_GE(host_.idctl.Json({"whois", "t0", old_id}).at("folded").size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(On, LargeJournal, ::testing::Values("sqlite", "mariadb"),
                         [](const auto& store) { return std::string(store.param); });

}  // namespace
}  // namespace idd::harness
