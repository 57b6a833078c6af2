// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_run.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"
#include "idd/shm/abi.h"

namespace idd::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kRounds = 9;
// Phases: each round has one of raw adds and one of claims, in an order that alternates from round
// to round. Two more phases follow, one of each kind, in which every claim is timed.
constexpr std::uint32_t kPhases = 2 * kRounds + 2;
// Claims between two checks of whether the phase is over.
constexpr std::uint32_t kClaimsPerLook = 64;
constexpr auto kLongestSleep = std::chrono::milliseconds(20);

std::uint64_t NsSince(Clock::time_point begin) {
  const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
  return static_cast<std::uint64_t>(passed.count());
}

enum class Operation : std::uint32_t { kRaw = 0, kClaim = 1 };

struct Phase {
  Operation operation;
  bool is_timed;
};

Phase PhaseAt(std::uint32_t index) {
  if (index >= 2 * kRounds) return {static_cast<Operation>(index - 2 * kRounds), true};
  const std::uint32_t round = index / 2;
  return {static_cast<Operation>((index + round) % 2), false};
}

// The results of one claimer; only that claimer writes them.
struct alignas(shm::kWriterBlockBytes) ClaimerResult {
  std::array<std::uint64_t, kPhases> claims;
  std::array<std::uint64_t, kPhases> ns;
  std::uint64_t ids;
  std::array<LatencyHistogram, 2> latency;  // index: Operation
};

// Shared by all processes of a run. While a phase runs, claimers write only the raw word.
struct alignas(shm::kWriterBlockBytes) Control {
  std::atomic<std::uint32_t> started;  // phases started
  std::atomic<std::uint32_t> ended;
  std::atomic<std::uint32_t> waiting;  // claimers between phases; each counts once a phase
  std::atomic<std::uint32_t> fails;    // 1: a claimer is writing `reason` and then `status`
  std::atomic<std::uint32_t> status;   // the first failure: idclient_status
  std::atomic<std::uint32_t> has_lanes;
  shm::Cursor raw;
  std::array<char, 1024> reason;  // the message for `status`
};

// Zeroed pages that forked processes share.
class SharedPages {
 public:
  explicit SharedPages(std::size_t bytes) : bytes_(bytes) {
    const int fd = ::memfd_create("idctl-bench", MFD_CLOEXEC);
    if (fd < 0) return;
    if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
      address_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (address_ == MAP_FAILED) address_ = nullptr;
    }
    ::close(fd);
  }
  ~SharedPages() {
    if (address_ != nullptr) ::munmap(address_, bytes_);
  }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  [[nodiscard]] void* address() const { return address_; }

 private:
  std::size_t bytes_;
  void* address_ = nullptr;
};

void FailRun(Control& control, idclient_status status, const char* reason) {
  // R11: picks one claimer; it publishes nothing
  if (control.fails.exchange(1, std::memory_order_relaxed) != 0) return;
  std::strncpy(control.reason.data(), reason, control.reason.size() - 1);
  // R8, pairs with R9: a reader that sees the status may read the reason.
  control.status.store(static_cast<std::uint32_t>(status), std::memory_order_release);
}

// Why claims cannot be measured as BenchPlan::needs_lanes asks.
const char* LanesProblem(const BenchPlan& plan, bool has_lanes) {
  if (!plan.needs_lanes.has_value() || *plan.needs_lanes == has_lanes) return nullptr;
  if (has_lanes) return "the tag has order cpu; see 'idctl tag set --order host'";
  return "the tag has order host, or this thread has no restartable sequences (see 'idctl "
         "doctor'); "
         "see 'idctl tag set --order cpu'";
}

class Claimer {
 public:
  Claimer(const BenchPlan& plan, idclient::Tag tag, Control& control, ClaimerResult& result)
      : plan_(plan), tag_(tag), control_(control), result_(result), ids_(plan.batch) {}

  void Run() {
    for (std::uint32_t phase = 0; phase < kPhases; ++phase) {
      control_.waiting.fetch_add(1, std::memory_order_acq_rel);  // R1, with R2
      // R4, pairs with R3.
      while (control_.started.load(std::memory_order_acquire) <= phase) ::usleep(50);
      RunPhase(phase);
    }
  }

 private:
  void RunPhase(std::uint32_t index) {
    const Phase phase = PhaseAt(index);
    const auto began = Clock::now();
    std::uint64_t claims = 0;
    while (control_.ended.load(std::memory_order_relaxed) <= index) {  // R6: a signal, no data
      const bool ok = phase.is_timed ? Timed(phase.operation) : Untimed(phase.operation);
      if (!ok) break;
      claims += kClaimsPerLook;
    }
    result_.claims[index] = claims;
    result_.ns[index] = NsSince(began);
    if (phase.operation == Operation::kClaim) result_.ids += claims * plan_.batch;
  }

  [[nodiscard]] bool Untimed(Operation operation) {
    if (operation == Operation::kRaw) {
      std::uint64_t sum = 0;
      for (std::uint32_t i = 0; i < kClaimsPerLook; ++i) sum += RawAdd();
      ids_[0] = sum;
      return true;
    }
    return plan_.batch == 1 ? ClaimOnes() : ClaimBatches();
  }

  [[nodiscard]] bool Timed(Operation operation) {
    LatencyHistogram& latency = result_.latency[static_cast<std::size_t>(operation)];
    for (std::uint32_t i = 0; i < kClaimsPerLook; ++i) {
      const auto before = Clock::now();
      if (operation == Operation::kRaw) {
        ids_[0] = RawAdd();
      } else if (!Claim()) {
        return false;
      }
      latency.Add(NsSince(before));
    }
    return true;
  }

  [[nodiscard]] std::uint64_t RawAdd() {
    return control_.raw.next.fetch_add(1, std::memory_order_relaxed);  // R7: the number
  }

  // As with the raw adds, nothing is stored between claims: a locked add waits for every earlier
  // store.
  [[nodiscard]] bool ClaimOnes() {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < kClaimsPerLook; ++i) {
      const idclient::Expected<std::uint64_t> id = tag_.try_claim();
      if (!id.has_value()) [[unlikely]]
        return Claim();  // claims again, to get the reason
      sum += *id;
    }
    ids_[0] = sum;
    return true;
  }

  [[nodiscard]] bool ClaimBatches() {
    for (std::uint32_t i = 0; i < kClaimsPerLook; ++i) {
      if (!Claim()) return false;
    }
    return true;
  }

  [[nodiscard]] bool Claim() {
    idclient_status status = IDCLIENT_OK;
    if (plan_.batch == 1) {
      const idclient::Expected<std::uint64_t> id = tag_.try_claim();
      status = id.error();
      if (id.has_value()) [[likely]] {
        ids_[0] = *id;
        return true;
      }
    } else if (tag_.try_claim_many(ids_, &status) == ids_.size()) {
      return true;
    }
    FailRun(control_, status, idclient_last_error());
    return false;
  }

  const BenchPlan& plan_;
  idclient::Tag tag_;
  Control& control_;
  ClaimerResult& result_;
  std::vector<std::uint64_t> ids_;
};

// The life of a claiming process, from its fork to its end.
void RunProcess(const BenchPlan& plan, Control& control, ClaimerResult* results) {
  try {
    idclient::Options options;
    options.socket_path = plan.socket_path;
    options.timeout = std::chrono::milliseconds(plan.timeout_ms);
    options.open_once = true;
    idclient::Client client(options);
    const idclient::Tag tag = client.tag(plan.tag, {.block_size = plan.block});
    const bool has_lanes = idclient_tag_lanes(tag.get(), shm::kLaneViewVersion) != nullptr;
    control.has_lanes.store(has_lanes ? 1 : 0, std::memory_order_relaxed);  // R10: all say the same
    if (const char* const problem = LanesProblem(plan, has_lanes)) {
      return FailRun(control, IDCLIENT_INVALID, problem);
    }
    std::vector<std::thread> threads;
    for (std::uint32_t i = 1; i < plan.threads; ++i) {
      threads.emplace_back(
          [&plan, tag, &control, results, i] { Claimer(plan, tag, control, results[i]).Run(); });
    }
    Claimer(plan, tag, control, results[0]).Run();
    for (std::thread& thread : threads) thread.join();
  } catch (const idclient::Error& error) {
    FailRun(control, error.status(), idclient_last_error());
  }
}

// The processes of a run; none outlives the object.
class Processes {
 public:
  Processes() = default;
  ~Processes() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) {
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  [[nodiscard]] Status Start(const BenchPlan& plan, Control& control, ClaimerResult* results) {
    const pid_t parent = ::getpid();
    for (std::uint32_t i = 0; i < plan.processes; ++i) {
      const pid_t pid = ::fork();
      if (pid < 0) return Status::FromErrno(errno, "fork");
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        try {
          RunProcess(plan, control, results + std::size_t{i} * plan.threads);
        } catch (const std::exception& error) {
          FailRun(control, IDCLIENT_SYSTEM, error.what());
        }
        ::_exit(0);
      }
      pids_.push_back(pid);
    }
    return Status::Ok();
  }

  void WaitForAll() const {
    for (const pid_t pid : pids_) {
      siginfo_t info{};
      while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 &&
             errno == EINTR) {
      }
    }
  }

  [[nodiscard]] bool AnyEnded() const {
    return std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) {
      siginfo_t info{};
      return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
             info.si_pid != 0;
    });
  }

 private:
  std::vector<pid_t> pids_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Run {
 public:
  Run(const BenchPlan& plan, Control& control, const ClaimerResult* results)
      : plan_(plan),
        control_(control),
        results_(results),
        claimers_(plan.processes * plan.threads) {}

  [[nodiscard]] Status Drive(const Processes& processes,
                             const std::function<void(double part)>& on_progress) {
    const auto length =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(plan_.seconds)) /
        kPhases;
    for (std::uint32_t phase = 0; phase < kPhases; ++phase) {
      on_progress(static_cast<double>(phase) / kPhases);
      // R2, pairs with R1.
      while (control_.waiting.load(std::memory_order_acquire) < claimers_ * (phase + 1)) {
        if (Status status = CheckClaimers(processes); !status.ok()) return status;
        ::usleep(100);
      }
      control_.started.store(phase + 1, std::memory_order_release);  // R3, pairs with R4
      // Sleeps in short steps, because a claim that fails ends the run.
      const auto end = Clock::now() + length;
      while (Clock::now() < end && CheckClaimers(processes).ok()) {
        std::this_thread::sleep_for(std::min<Clock::duration>(kLongestSleep, end - Clock::now()));
      }
      control_.ended.store(phase + 1, std::memory_order_release);  // R5, read at R6
    }
    processes.WaitForAll();
    return Failure();
  }

  [[nodiscard]] BenchReport Report() const {
    BenchReport report;
    report.rounds = kRounds;
    report.has_lanes = control_.has_lanes.load(std::memory_order_relaxed) != 0;  // R10
    std::vector<double> ratios;
    std::array<std::vector<double>, 2> rates;
    std::array<std::vector<double>, 2> times;
    for (std::uint32_t phase = 0; phase < 2 * kRounds; ++phase) {
      double ids_per_s = 0;
      double ns_per_id = 0;
      const Operation operation = PhaseAt(phase).operation;
      const std::uint64_t ids_of_one = operation == Operation::kClaim ? plan_.batch : 1;
      for (std::uint32_t i = 0; i < claimers_; ++i) {
        const auto ids = static_cast<double>(results_[i].claims[phase] * ids_of_one);
        const auto ns = static_cast<double>(results_[i].ns[phase]);
        if (ids == 0) continue;
        ids_per_s += ids / ns * 1e9;
        ns_per_id += ns / ids / claimers_;
      }
      const auto side = static_cast<std::size_t>(operation);
      rates[side].push_back(ids_per_s);
      times[side].push_back(ns_per_id);
    }
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      ratios.push_back(times[1][round] / times[0][round]);
    }
    report.ratio = Median(ratios);
    BenchSide* const sides[] = {&report.raw, &report.claim};
    for (std::size_t side = 0; side < 2; ++side) {
      sides[side]->ids_per_s = Median(rates[side]);
      sides[side]->ns_per_id = Median(times[side]);
      for (std::uint32_t i = 0; i < claimers_; ++i) {
        sides[side]->latency.Add(results_[i].latency[side]);
      }
    }
    for (std::uint32_t i = 0; i < claimers_; ++i) report.ids += results_[i].ids;
    return report;
  }

 private:
  [[nodiscard]] Status Failure() const {
    const std::uint32_t status = control_.status.load(std::memory_order_acquire);  // R9, with R8
    if (status == IDCLIENT_OK) return Status::Ok();
    return {CodeFromNumber(status), control_.reason.data()};
  }

  [[nodiscard]] Status CheckClaimers(const Processes& processes) const {
    const bool ended =
        processes.AnyEnded();  // looked at first: a claimer that fails reports, then ends
    if (Status status = Failure(); !status.ok()) return status;
    if (ended) return {Code::kSystem, "a claiming process ended early"};
    return Status::Ok();
  }

  const BenchPlan& plan_;
  Control& control_;
  const ClaimerResult* results_;
  const std::uint32_t claimers_;
};

}  // namespace

Result<BenchReport> RunBench(const BenchPlan& plan,
                             const std::function<void(double part)>& on_progress) {
  const std::size_t claimers = std::size_t{plan.processes} * plan.threads;
  const SharedPages pages(sizeof(Control) + claimers * sizeof(ClaimerResult));
  if (pages.address() == nullptr) return Status::FromErrno(errno, "shared memory for the results");
  auto* const control = new (pages.address()) Control{};
  auto* const results = reinterpret_cast<ClaimerResult*>(control + 1);  // zeroed pages
  Processes processes;
  if (Status status = processes.Start(plan, *control, results); !status.ok()) return status;
  Run run(plan, *control, results);
  if (Status status = run.Drive(processes, on_progress); !status.ok()) return status;
  return run.Report();
}

}  // namespace idd::tools
