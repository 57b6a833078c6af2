// SPDX-License-Identifier: Apache-2.0
//
// A client with all the access of an authorised client writes arbitrary values wherever it can,
// while honest clients claim.
//
// Method: the scribbler is a separate process. It attaches like any client, tries to write to the
// table and to resize both memfds, and then fills its cursors with random words, zeros, old values
// and maxima; when its ring is withdrawn it attaches again. Meanwhile honest processes claim from
// its tag and from another one. docs/shm-abi.md says what it can do: make ids of the currently
// published segments come twice. So for its tag the oracle only checks that all ids lie in leases
// of this host; for the other tag it checks everything.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "idd/shm/abi.h"
#include "idd/wire/channel.h"
#include "support/claim_worker_process.h"
#include "support/host.h"
#include "support/ring_request.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr std::uint64_t kFullSeconds = 60;

// Shared with the scribbler's process.
struct Report {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> attaches{0};
  std::atomic<std::uint64_t> writes{0};  // of the whole mapping
  std::array<char, 256> broke_in{};      // how it gained forbidden access, if it did
};

class Scribbler {
 public:
  Scribbler(std::string socket, Report& report) : socket_(std::move(socket)), report_(report) {}

  void Run() {
    while (!report_.stop) {
      std::optional<wire::Message> reply = Attach();
      if (!reply.has_value()) {
        ::usleep(2000);
        continue;
      }
      ++report_.attaches;
      TryToBreakIn(reply->fds[0].get(), reply->fds[1].get());
      Scribble(reply->fds[0].get(), reply->fds[1].get());
    }
  }

 private:
  [[nodiscard]] std::optional<wire::Message> Attach() const {
    const Deadline deadline = Deadline::After(Patience(2s));
    auto channel = ConnectAndGreet(socket_, deadline);
    if (!channel.ok()) return std::nullopt;
    auto reply = RequestRing(channel.value(), "hot", deadline);
    if (!reply.ok() || !reply.value().fds[1].valid()) return std::nullopt;
    return std::move(reply).value();
  }

  void BrokeIn(const char* how) {
    std::snprintf(report_.broke_in.data(), report_.broke_in.size(), "%s", how);
  }

  // A privileged user may open anything through /proc, so it tries that as user nobody.
  void TryToBreakIn(int table, int cursors) {
    if (::mmap(nullptr, shm::kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, table, 0) !=
        MAP_FAILED) {
      BrokeIn("mapped the table writable");
    }
    void* const view = ::mmap(nullptr, shm::kTableBytes, PROT_READ, MAP_SHARED, table, 0);
    if (view != MAP_FAILED) {
      if (::mprotect(view, shm::kTableBytes, PROT_READ | PROT_WRITE) == 0) {
        BrokeIn("made its mapping of the table writable");
      }
      ::munmap(view, shm::kTableBytes);
    }
    const std::uint64_t word = 0;
    if (::pwrite(table, &word, sizeof(word), 512) >= 0) BrokeIn("wrote into the table");
    for (const int fd : {table, cursors}) {
      if (::ftruncate(fd, 0) == 0) BrokeIn("truncated a memfd");
      if (::ftruncate(fd, 1 << 20) == 0) BrokeIn("grew a memfd");
      if (::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0) BrokeIn("added a seal");
      if (::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0 &&
          fd == table) {
        BrokeIn("punched a hole into the table");
      }
    }
    ReopenAsNobody(table);
  }

  void ReopenAsNobody(int table) {
    constexpr uid_t kNobody = 65534;
    const std::string path = "/proc/self/fd/" + std::to_string(table);
    if (::geteuid() == 0) {
      // The fsuid decides file access; the process stays killable and its memory its own.
      const int opened = OpenAs(kNobody, path);
      if (opened >= 0) {
        BrokeIn("opened the table again for writing");
        ::close(opened);
      }
      return;
    }
    const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (opened < 0) return;
    // The daemon runs as this user, who owns the memfd; the seal must still hold.
    if (::mmap(nullptr, shm::kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0) !=
        MAP_FAILED) {
      BrokeIn("opened the table again and mapped it writable");
    }
    ::close(opened);
  }

  [[nodiscard]] static int OpenAs(uid_t uid, const std::string& path) {
    if (::seteuid(uid) != 0) return -1;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    static_cast<void>(::seteuid(0));
    return fd;
  }

  // Runs until the ring is no longer active, and a little longer.
  void Scribble(int table_fd, int cursors_fd) {
    void* const table = ::mmap(nullptr, shm::kTableBytes, PROT_READ, MAP_SHARED, table_fd, 0);
    struct stat info {};
    if (::fstat(cursors_fd, &info) != 0) return;
    const auto bytes = static_cast<std::size_t>(info.st_size);  // with lanes, if there are any
    void* const cursors = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, cursors_fd, 0);
    if (table == MAP_FAILED || cursors == MAP_FAILED) return;
    const auto& live = static_cast<const shm::Table*>(table)->live;
    auto* const words = static_cast<std::atomic<std::uint64_t>*>(cursors);
    const std::size_t count = bytes / sizeof(std::uint64_t);
    std::vector<std::uint64_t> old(count);
    for (int more = 20; more > 0 && !report_.stop;) {
      const auto state = live.state.load(std::memory_order_relaxed);
      if (state != static_cast<std::uint32_t>(shm::RingState::kActive)) --more;
      const std::uint64_t kind = random_() % 5;
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t present = words[i].load(std::memory_order_relaxed);
        words[i].store(Value(kind, present, old[i]), std::memory_order_relaxed);
        if (random_() % 64 == 0) old[i] = present;
      }
      ++report_.writes;
      // Pauses now and then, so that claims reach the spoilt segments.
      if (random_() % 4 == 0) ::usleep(static_cast<useconds_t>(random_() % 3000));
    }
    ::munmap(table, shm::kTableBytes);
    ::munmap(cursors, bytes);
  }

  [[nodiscard]] std::uint64_t Value(std::uint64_t kind, std::uint64_t present, std::uint64_t old) {
    switch (kind) {
      case 0:
        return random_();
      case 1:
        return 0;
      case 2:
        return old;
      case 3:
        return ~std::uint64_t{0} - random_() % 3;
      default:
        return present + random_() % 2000 - 1000;  // close to the present value: inside the segment
    }
  }

  const std::string socket_;
  Report& report_;
  std::mt19937_64 random_{TestSeed()};
};

class HostileClient : public ::testing::Test {
 protected:
  HostileClient()
      : report_(new (::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Report) {}
  ~HostileClient() override {
    EndScribbler();
    ::munmap(report_, sizeof(Report));
  }

  void SetUp() override {
    host_.StartWithTag("hot", 1000);
    host_.idctl.CreateTag("other", 1000);
  }

  void StartScribbler() {
    const pid_t parent = ::getpid();
    scribbler_ = ::fork();
    RequireErrno(scribbler_ >= 0, "fork");
    if (scribbler_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    Scribbler(host_.daemon.socket(), *report_).Run();
    ::_exit(0);
  }

  void EndScribbler() {
    if (scribbler_ <= 0) return;
    report_->stop = true;
    if (!WaitUntil(Patience(5s),
                   [this] { return ::waitpid(scribbler_, nullptr, WNOHANG) == scribbler_; })) {
      ::kill(scribbler_, SIGKILL);
      ::waitpid(scribbler_, nullptr, 0);
    }
    scribbler_ = -1;
  }

  ClaimWorkerProcess& StartWorker(const std::string& tag, int number, bool retry) {
    WorkerPlan plan{
        .socket = host_.daemon.socket(), .tag = tag, .name = tag + std::to_string(number)};
    plan.batch = 20;
    plan.pace_us = 20;
    plan.retry = retry;
    plan.timeout_ms = retry ? 2000 : 120'000;
    plan.log_capacity = 1 << 22;
    plan.seed = static_cast<std::uint64_t>(number);
    workers_.push_back(std::make_unique<ClaimWorkerProcess>(dir_, plan));
    workers_.back()->WaitReady(Patience(10s));
    return *workers_.back();
  }

  [[nodiscard]] std::vector<Claimer> Finish(const std::string& tag) {
    std::vector<Claimer> claimers;
    for (const auto& worker : workers_) {
      if (!worker->name().starts_with(tag)) continue;
      worker->Stop();
      EXPECT_EQ(worker->Finish(Patience(20s)), 0) << worker->Failure();
      worker->AddClaimers(claimers);
    }
    return claimers;
  }

  void ExpectHarmsOnlyItsSegments();
  void ExpectHarmHasEnded(bool ids_rise);

  const TempDir dir_;
  Host host_{dir_};
  Report* const report_;
  pid_t scribbler_ = -1;
  std::vector<std::unique_ptr<ClaimWorkerProcess>> workers_;
};

// The honest clients of a snowflake tag accept no id of another worker, and none of a time that the
// host did not lease or that is too far ahead.
TEST_F(HostileClient, GetsNoSnowflakeOutsideTheLeasedTimeAccepted) {
  host_.idctl.Do({"tag", "delete", "hot", "--force"});
  host_.idctl.Do({"tag", "create", "hot", "--mode", "snowflake"});
  const auto began = std::chrono::steady_clock::now();
  StartScribbler();
  for (int i = 0; i < 2; ++i) StartWorker("hot", i, true);
  for (const auto& worker : workers_) worker->Go();
  const Deadline deadline =
      Deadline::After(std::chrono::seconds(std::max<std::uint64_t>(5, ScaledLoad(kFullSeconds))));
  const Deadline last = Deadline::After(deadline.remaining() + Patience(60s));
  const auto claimed = [&] { return workers_[0]->ids() + workers_[1]->ids(); };
  while (!deadline.passed() || ((claimed() < 100 || report_->attaches < 3) && !last.passed())) {
    std::this_thread::sleep_for(500ms);
    ASSERT_TRUE(host_.daemon.process().Running()) << host_.daemon.Log();
  }
  EndScribbler();
  EXPECT_GT(claimed(), 100U) << "honest clients must continue";
  EXPECT_NE(host_.daemon.Log().find("ring.quarantined"), std::string::npos);
  const std::vector<Claimer> claimers = Finish("hot");
  std::vector<JournalLease> leases;
  const auto document = host_.idctl.Json({"lease", "list", "--tag", "hot"});
  const auto workers = host_.idctl.Json({"tag", "show", "hot"}).at("tag").at("workers");
  for (const auto& worker : workers) {
    const std::string counter = "hot#" + worker.at("worker").dump();
    const std::vector<JournalLease> of = ParseLeases(document, counter);
    leases.insert(leases.end(), of.begin(), of.end());
  }
  for (const Claimer& claimer : claimers) {
    for (const ClaimRecord& record : claimer.records) {
      if (record.count == 0) continue;
      const std::uint64_t number = record.first >> 22 << 12 | (record.first & 4095);
      const std::string counter = "hot#" + std::to_string(record.first >> 12 & 1023);
      ASSERT_TRUE(std::any_of(leases.begin(), leases.end(),
                              [&](const JournalLease& lease) {
                                return lease.tag == counter && lease.base <= number &&
                                       number + record.count <= lease.limit;
                              }))
          << record.first << " is in no window of " << counter;
    }
  }
  // A quarantine, a second one at once, and a pause of ten seconds.
  const auto tenths = (std::chrono::steady_clock::now() - began) / 10s;
  EXPECT_LE(workers.size(), 4 + 2 * static_cast<std::size_t>(tenths))
      << "it cannot use them all up";
  std::printf("%llu ids of %zu worker ids, %llu times written all over\n",
              static_cast<unsigned long long>(CountIds(claimers)), workers.size(),
              static_cast<unsigned long long>(report_->writes));
}

TEST_F(HostileClient, HarmsOnlyTheSegmentsItHas) {
  ExpectHarmsOnlyItsSegments();
  ExpectHarmHasEnded(true);
}

TEST_F(HostileClient, HarmsOnlyTheSegmentsWhoseLanesItHas) {
  host_.idctl.Do({"tag", "delete", "hot", "--force"});
  host_.idctl.Do({"tag", "create", "hot", "--order", "cpu", "--step", "1000"});
  ExpectHarmsOnlyItsSegments();
  // Order `cpu` promises rising ids in a lane only: the claimer may change its CPU, and a batch of
  // a lane block or more passes by what the lane has left.
  ExpectHarmHasEnded(false);
}

void HostileClient::ExpectHarmsOnlyItsSegments() {
  StartScribbler();
  for (int i = 0; i < 2; ++i) StartWorker("hot", i, true);
  StartWorker("other", 0, false);
  for (const auto& worker : workers_) worker->Go();
  const Deadline deadline =
      Deadline::After(std::chrono::seconds(std::max<std::uint64_t>(5, ScaledLoad(kFullSeconds))));
  std::uint64_t hot_before = 0;
  std::uint64_t other_before = 0;
  bool was_quarantined = false;
  const Deadline last = Deadline::After(deadline.remaining() + Patience(60s));
  const auto has_happened = [&] {
    return was_quarantined && report_->attaches > 2 &&
           workers_[0]->ids() + workers_[1]->ids() > 100 && workers_[2]->ids() > 100;
  };
  while (!deadline.passed() || (!has_happened() && !last.passed())) {
    std::this_thread::sleep_for(500ms);
    ASSERT_TRUE(host_.daemon.process().Running()) << host_.daemon.Log();
    for (const auto& worker : workers_) {
      ASSERT_TRUE(worker->process().Running()) << worker->name() << ": " << worker->Failure();
    }
    const auto tags = host_.idctl.Json({"status", "hot"}).at("tags");
    was_quarantined = was_quarantined || tags.at(0).at("state") == "quarantined";
  }
  hot_before = workers_[0]->ids() + workers_[1]->ids();
  other_before = workers_[2]->ids();
  EndScribbler();
  std::printf("%llu attaches, %llu times written all over, %llu + %llu ids claimed meanwhile\n",
              static_cast<unsigned long long>(report_->attaches),
              static_cast<unsigned long long>(report_->writes),
              static_cast<unsigned long long>(hot_before),
              static_cast<unsigned long long>(other_before));
  EXPECT_STREQ(report_->broke_in.data(), "");
  EXPECT_GT(report_->attaches, 2U);
  EXPECT_GT(hot_before, 100U) << "honest clients of the tag must continue";
  EXPECT_GT(other_before, 100U);
  EXPECT_TRUE(was_quarantined) << "status must report it";
  EXPECT_NE(host_.daemon.Log().find("ring.quarantined"), std::string::npos);

  const std::vector<Claimer> hot = Finish("hot");
  EXPECT_EQ(Join(CheckLeased(hot, host_.idctl.Leases("hot"))), "");
  const std::vector<Claimer> other = Finish("other");
  EXPECT_EQ(workers_[2]->errors(), 0U);
  EXPECT_EQ(Join(CheckUnique(other)), "");
  EXPECT_EQ(Join(CheckRising(other)), "");
  EXPECT_EQ(Join(CheckLeased(other, host_.idctl.Leases("other"))), "");
  EXPECT_EQ(Join(CheckAudit(host_.idctl.Audit("other"), CountIds(other), 2000)), "");
}

void HostileClient::ExpectHarmHasEnded(bool ids_rise) {
  static_cast<void>(host_.idctl.Claim("hot", 10));
  std::vector<std::uint64_t> ids = host_.idctl.Claim("hot", 5000);
  EXPECT_TRUE(!ids_rise || std::is_sorted(ids.begin(), ids.end()));
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  host_.daemon.Stop();
}

}  // namespace
}  // namespace idd::harness
