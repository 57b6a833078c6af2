// SPDX-License-Identifier: Apache-2.0
//
// Thousands of tags with a ring each: no operation on all of them holds the event loop for long. A
// claimer of one tag asks idd all the time, and the test prints how long it waited. What the test
// asserts is the processor time of the loop's turns, because a busy machine may delay any answer.
//
// IDD_TEST_TAGS sets how many tags; 10,000 take some minutes.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "idd/wire/frames.h"
#include "support/raw_connection.h"
#include "support/scrape.h"
#include "support/service_manager_stand_in.h"
#include "support/test_environment.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;
using std::chrono_literals::operator""s;
using Micros = std::chrono::duration<double, std::micro>;

// A turn of the loop aims at a millisecond. One in a thousand may be this much longer.
constexpr const char* kLongTurn = "0.05";

// As many as idd, and the stand-in of the service manager, have descriptors for: two for each tag.
int Tags() {
  rlimit limit{};
  RequireErrno(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  limit.rlim_cur = limit.rlim_max;
  RequireErrno(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  constexpr std::uint64_t kOthers = 400;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): before the first thread
  const char* const wanted = std::getenv("IDD_TEST_TAGS");
  const std::uint64_t tags = wanted == nullptr ? ScaledLoad(2'000) : std::stoull(wanted);
  return static_cast<int>(std::min<std::uint64_t>(tags, (limit.rlim_max - kOthers) / 2));
}

std::string TagName(int number) { return "tag-" + std::to_string(number); }

// Claims one id after the other over the socket, and notes how long each answer took.
class SocketClaimer {
 public:
  explicit SocketClaimer(const std::string& socket)
      : socket_(socket), thread_([this] { ClaimUntilTheEnd(); }) {}
  ~SocketClaimer() {
    is_over_ = true;
    thread_.join();
  }
  SocketClaimer(const SocketClaimer&) = delete;
  SocketClaimer& operator=(const SocketClaimer&) = delete;

  // The waits since the last call, sorted.
  [[nodiscard]] std::uint64_t answers() const noexcept { return answers_; }
  [[nodiscard]] std::vector<Micros> TakeWaits() {
    const std::lock_guard lock(mutex_);
    std::vector<Micros> waits = std::move(waits_);
    waits_.clear();
    std::sort(waits.begin(), waits.end());
    return waits;
  }

 private:
  void ClaimUntilTheEnd() {
    std::optional<RawConnection> connection;
    while (!is_over_) {
      if (!connection.has_value()) connection = Connect();
      const auto before = std::chrono::steady_clock::now();
      const bool is_answered =
          connection.has_value() &&
          connection->SendWithin(Patience(60s), MakeClaim("asked", 1, 1, 60'000)) &&
          connection->Receive(Patience(60s)).has_value();
      const Micros waited = std::chrono::steady_clock::now() - before;
      if (is_answered) {
        const std::lock_guard lock(mutex_);
        waits_.push_back(waited);
        ++answers_;
      } else {
        connection.reset();  // idd is between two runs
      }
      std::this_thread::sleep_for(300us);
    }
  }
  [[nodiscard]] std::optional<RawConnection> Connect() const {
    std::optional<RawConnection> connection = RawConnection::TryConnect(socket_);
    if (!connection.has_value() || !connection->SendWithin(Patience(60s), MakeHello()) ||
        !connection->Receive(Patience(60s)).has_value()) {
      return std::nullopt;
    }
    return connection;
  }

  const std::string socket_;
  std::atomic<bool> is_over_{false};
  std::atomic<std::uint64_t> answers_{0};
  std::mutex mutex_;
  std::vector<Micros> waits_;
  std::thread thread_;  // last
};

// Attaches to all tags over one connection, as a program that opens them does. Returns how many
// rings it got.
int AttachToAll(const std::string& socket, int tags) {
  constexpr int kUnderWay = 64;
  RawConnection connection(socket);
  connection.Hello();
  int rings = 0;
  for (int sent = 0, received = 0; received < tags; ++received) {
    for (; sent < tags && sent - received < kUnderWay; ++sent) {
      const auto number = static_cast<std::uint64_t>(sent) + 1;
      Require(connection.SendWithin(Patience(60s), MakeAttach(TagName(sent + 1), number)),
              "not sent");
    }
    const std::optional<Reply> reply = connection.Receive(Patience(60s));
    Require(reply.has_value(), "no answer to an ATTACH");
    const auto attached = reply->As<wire::AttachReply>();
    Require(attached.status == 0, reply->Reason<wire::AttachReply>());
    if (attached.ring_id != 0) ++rings;
  }
  return rings;
}

class LoopTurns : public ::testing::Test {
 protected:
  LoopTurns() { host_.daemon.options().manager = &manager_; }

  void SetUp() override {
    RequireErrno(::chmod(dir_.File("").c_str(), 0711) == 0, "chmod");
    host_.daemon.options().more_arguments = {"--lease-limit", "100000"};
    Configure("access = 'shm'");
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "asked", "--step", "1000000", "--access", "socket"});
    host_.Database().Execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
        std::to_string(tags_) +
        ") INSERT INTO leaf_alloc(biz_tag, max_id, step, description) "
        "SELECT 'tag-' || i, 1, 100, '' FROM n");
    claimer_.emplace(host_.daemon.socket());
  }
  // What Alice may do with every tag.
  void Configure(const std::string& grant) {
    WriteFile(host_.daemon.options().config, "[[access]]\ntags = ['*']\nusers = [" +
                                                 std::to_string(kAlice.uid) + "]\n" + grant + "\n");
  }
  [[nodiscard]] Scrape Look() const {
    const IdctlResult page = host_.idctl.Run({"--timeout", "300000", "metrics"});
    Require(page.exit_status == 0, "idctl metrics: " + page.err);
    return Scrape(page.out);
  }
  // Attaches to all tags, over several connections at a time.
  void AttachBy(int connections) {
    std::vector<std::thread> threads;
    std::atomic<int> rings{0};
    for (int i = 0; i < connections; ++i) {
      threads.emplace_back([this, &rings] {
        std::optional<ScopedIdentity> alice;
        if (::geteuid() == 0) alice.emplace(kAlice);
        rings += AttachToAll(host_.daemon.socket(), tags_);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(rings, connections * tags_);
  }
  // Until each tag has a lease.
  void AwaitLeases(double leases) {
    EXPECT_TRUE(WaitUntil(Patience(300s), [this, leases] {
      std::this_thread::sleep_for(500ms);
      return Look().At("idd_leases_taken_total") >= leases;
    }));
  }
  // SIGHUP after the rules have changed, until each ring that Alice has is replaced: names are used
  // again as late as possible.
  void WithdrawAll() {
    const std::vector<std::string> before = manager_.Names();
    Configure("access = 'socket'");
    host_.daemon.Signal(SIGHUP);
    EXPECT_TRUE(WaitUntil(Patience(300s), [this, &before] {
      std::this_thread::sleep_for(500ms);
      std::vector<std::string> both;
      const std::vector<std::string> now = manager_.Names();
      std::set_intersection(before.begin(), before.end(), now.begin(), now.end(),
                            std::back_inserter(both));
      return both.size() <= 3;  // the list, and the ring of the tag that is asked over the socket
    }));
  }
  // Leaves the rings to the next idd, and waits until it has answered a claim. Returns how long it
  // took from its start.
  std::chrono::duration<double> Restart() {
    const auto asked = std::chrono::steady_clock::now();
    host_.daemon.Leave();
    const std::uint64_t answers = claimer_->answers();
    const auto begun = std::chrono::steady_clock::now();
    const std::chrono::duration<double> left = begun - asked;
    std::printf("left in %.2f s\n", left.count());
    host_.daemon.Launch();
    EXPECT_TRUE(WaitUntil(Patience(60s), [&] { return claimer_->answers() > answers; }));
    return std::chrono::steady_clock::now() - begun;
  }
  // Runs `operation` and asserts that no turn of the loop was long meanwhile.
  void Measure(const std::string& name, const std::function<void()>& operation) {
    const Scrape before = Look();
    (void)claimer_->TakeWaits();
    const auto begun = std::chrono::steady_clock::now();
    operation();
    const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - begun;
    const std::vector<Micros> waits = claimer_->TakeWaits();
    const Scrape after = Look();
    Print(name, lasted, waits, before, after);
    EXPECT_EQ(LongTurns(before, after, kLongTurn), 0.0) << name;
  }

  const int tags_ = Tags();
  const TempDir dir_;
  ServiceManagerStandIn manager_{dir_};
  Host host_{dir_};
  std::optional<SocketClaimer> claimer_;

 private:
  static double TurnsUpTo(const Scrape& page, const std::string& seconds) {
    return page.At("idd_event_loop_turn_seconds_bucket{le=\"" + seconds + "\"}");
  }
  // The turns that took longer than so many seconds of processor time, between two looks at one
  // idd.
  static double LongTurns(const Scrape& before, const Scrape& after, const std::string& seconds) {
    const auto beyond = [&seconds](const Scrape& page) {
      return TurnsUpTo(page, "+Inf") - TurnsUpTo(page, seconds);
    };
    const bool is_another = TurnsUpTo(after, "+Inf") < TurnsUpTo(before, "+Inf");
    return beyond(after) - (is_another ? 0 : beyond(before));
  }
  static void Print(const std::string& name, std::chrono::duration<double> lasted,
                    const std::vector<Micros>& waits, const Scrape& before, const Scrape& after) {
    std::string longest = "above 1";
    for (const char* bound : {"0.3", "0.1", "0.05", "0.02", "0.01", "0.005", "0.003", "0.002"}) {
      if (LongTurns(before, after, bound) > 0) break;
      longest = bound;
    }
    const std::size_t count = waits.size();
    const double p999 = count == 0 ? 0 : waits[count - 1 - count / 1000].count() / 1000;
    const double p99 = count == 0 ? 0 : waits[count - 1 - count / 100].count() / 1000;
    const double most = count == 0 ? 0 : waits.back().count() / 1000;
    std::printf(
        "%-28s %6.2f s, %6zu claims: p99 %6.2f ms, p99.9 %6.2f ms, longest %6.2f ms; "
        "longest turn %s s\n",
        name.c_str(), lasted.count(), count, p99, p999, most, longest.c_str());
    static_cast<void>(std::fflush(stdout));
  }
};

TEST_F(LoopTurns, AreShortWhateverIsDoneWithAllTags) {
  std::printf("%d tags\n", tags_);
  Measure("rest", [] { std::this_thread::sleep_for(3s); });
  Measure("attach, new tags", [this] { AttachBy(1); });
  AwaitLeases(tags_ + 1);
  Measure("rest, with rings", [] { std::this_thread::sleep_for(6s); });
  Measure("attach, 4 processes", [this] { AttachBy(4); });
  Measure("status", [this] { (void)host_.idctl.Json({"status"}); });
  Measure("doctor", [this] { (void)host_.idctl.Run({"--json", "--timeout", "300000", "doctor"}); });
  Measure("drain", [this] { (void)host_.idctl.Json({"drain"}); });
  Measure("status, drained", [this] { (void)host_.idctl.Json({"status"}); });
  Measure("resume", [this] { (void)host_.idctl.Json({"resume"}); });
  Measure("warm-up", [this] { AwaitLeases(2.0 * tags_); });
  if (::geteuid() == 0) {  // else there are no other users
    AttachBy(1);
    Measure("reload, all rings withdrawn", [this] { WithdrawAll(); });
    Configure("access = 'shm'");
  }
  std::chrono::duration<double> served{};
  Measure("restart", [&] {
    served = Restart();
    EXPECT_TRUE(host_.daemon.WaitReady(Patience(300s)));
  });
  std::printf("served %.2f s after the start\n", served.count());
  const Scrape page = Look();
  EXPECT_GE(page.At("idd_inherited_rings"), tags_) << "too many descriptors for the manager?";
}

}  // namespace
}  // namespace idd::harness
