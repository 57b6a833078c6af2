// SPDX-License-Identifier: Apache-2.0
//
// idd_claim_worker: a program that claims ids through libidclient and logs every claim.
//
//   idd_claim_worker --socket PATH --tag TAG --log PREFIX [--ids N] [--batch N] [--pace-us N]
//                    [--threads N] [--children N] [--timeout-ms N] [--retry] [--await-tag]
//                    [--tally] [--bitmap FILE] [--block N]
//                    [--seed N]
//
// Thread i writes to PREFIX.i, the forked child i to PREFIX.(threads + i). The test made these
// files (claim_log.h), starts the claimers, and may stop them. Threads share one handle; children
// are forked while it is open and the other threads claim. A batch above 1 mixes single claims,
// ranges and batches. --retry logs TIMEOUT and UNAVAILABLE and tries again; --await-tag does the
// same for NO_SUCH_TAG. Any other failure ends the claimer, as these do without the options.
// --tally makes single claims as fast as it can and, instead of a record of each, keeps their
// count, their sums and the slowest. --bitmap claims as fast as it can, by call, inlined and in
// ranges, and marks each id in that file (id_bitmap.h): an id that is marked already ends the
// claimer. --block opens the tag with a block size. Exit status 0 if every claimer of the process
// completed its work.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"
#include "support/claim_log.h"
#include "support/id_bitmap.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

struct WorkerOptions {
  std::string socket;
  std::string tag;
  std::string log;
  std::uint64_t ids = UINT64_MAX;  // for each claimer
  std::uint64_t batch = 1;
  std::uint64_t pace_us = 0;
  std::uint64_t threads = 1;
  std::uint64_t children = 0;
  std::uint64_t timeout_ms = 0;
  std::uint64_t seed = 1;
  bool retry = false;
  bool awaits_tag = false;
  bool tally = false;
  std::string bitmap;
  std::uint64_t block = 0;
};

WorkerOptions ParseOptions(int argc, char** argv) {
  WorkerOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--retry") {
      options.retry = true;
      continue;
    }
    if (name == "--await-tag") {
      options.awaits_tag = true;
      continue;
    }
    if (name == "--tally") {
      options.tally = true;
      continue;
    }
    Require(i + 1 < argc, std::string(name) + " needs a value");
    const char* value = argv[++i];
    const std::uint64_t number = std::strtoull(value, nullptr, 10);
    if (name == "--socket")
      options.socket = value;
    else if (name == "--tag")
      options.tag = value;
    else if (name == "--log")
      options.log = value;
    else if (name == "--ids")
      options.ids = number;
    else if (name == "--batch")
      options.batch = number;
    else if (name == "--pace-us")
      options.pace_us = number;
    else if (name == "--threads")
      options.threads = number;
    else if (name == "--children")
      options.children = number;
    else if (name == "--timeout-ms")
      options.timeout_ms = number;
    else if (name == "--bitmap")
      options.bitmap = value;
    else if (name == "--block")
      options.block = number;
    else if (name == "--seed")
      options.seed = number;
    else
      throw HarnessError("unknown option " + std::string(name));
  }
  return options;
}

// Holds the claimers of a process until the test starts or stops them. One of them polls for all:
// thousands of pollers would leave no processor for the processes that are still starting.
class StartGate {
 public:
  template <typename IsOpen>
  void Wait(IsOpen is_open) {
    if (has_poller_.exchange(true)) {
      is_open_.wait(false);
      return;
    }
    while (!is_open()) ::usleep(1000);
    is_open_.store(true);
    is_open_.notify_all();
  }

 private:
  std::atomic<bool> has_poller_{false};
  std::atomic<bool> is_open_{false};
};

// One thread's claims on a tag, into its own log.
class ClaimerLoop {
 public:
  ClaimerLoop(const WorkerOptions& options, idclient_tag* tag, idclient::Tag* inlined,
              IdBitmap* bitmap, ClaimLog& log, std::uint64_t index)
      : options_(options),
        tag_(tag),
        inlined_(inlined),
        bitmap_(bitmap),
        log_(log),
        random_(options.seed * 1000 + index) {
    ids_.resize(options.batch);
  }

  // False if it gave up; the log has the reason.
  [[nodiscard]] bool Run(StartGate& gate) {
    log_.SetState(ClaimerState::kReady);
    gate.Wait(
        [this] { return Stopped() || log_.header().go.load(std::memory_order_acquire) != 0; });
    log_.SetState(ClaimerState::kClaiming);
    while (!Stopped() && !log_.Full() && claimed_ < options_.ids) {
      if (!(options_.tally ? TallySome() : bitmap_ != nullptr ? MarkSome() : ClaimSome()))
        return false;
      if (options_.pace_us > 0) ::usleep(static_cast<useconds_t>(options_.pace_us));
    }
    log_.SetState(ClaimerState::kDone);
    return true;
  }

 private:
  [[nodiscard]] bool Stopped() const {
    return log_.header().stop.load(std::memory_order_relaxed) != 0;
  }

  void Record(const ClaimRecord& record) {
    if (log_.Full()) return;  // The ids are a gap to the oracle.
    log_.Append(record);
    claimed_ += record.count;
  }

  [[nodiscard]] bool ClaimSome() {
    const std::uint64_t left = options_.ids - claimed_;
    const std::uint64_t most = std::min(options_.batch, left);
    if (most <= 1) return ClaimOne();
    const std::uint64_t count = 1 + random_() % most;
    switch (random_() % 3) {
      case 0:
        return ClaimOne();
      case 1:
        return ClaimRange(count);
      default:
        return ClaimMany(count);
    }
  }

  [[nodiscard]] bool TallySome() {
    constexpr int kClaims = 64;
    ClaimLogHeader& header = log_.header();
    std::uint64_t before = MonotonicNs();
    for (int i = 0; i < kClaims; ++i) {
      std::uint64_t id = 0;
      const idclient_status status = idclient_claim(tag_, &id);
      const std::uint64_t after = MonotonicNs();
      if (status != IDCLIENT_OK) return Failed(status, before, after);
      slowest_ns_ = std::max(slowest_ns_, after - before);
      before = after;
      if (id <= last_) return Fail("an id is not above the one before");
      last_ = id;
      ++claimed_;
      sum_ += id;
      sum_of_squares_ += id * id;
      sum_of_cubes_ += id * id * id;
    }
    header.ids.store(claimed_, std::memory_order_relaxed);
    header.last_id.store(last_, std::memory_order_relaxed);
    header.sum.store(sum_, std::memory_order_relaxed);
    header.sum_of_squares.store(sum_of_squares_, std::memory_order_relaxed);
    header.sum_of_cubes.store(sum_of_cubes_, std::memory_order_relaxed);
    header.slowest_ns.store(slowest_ns_, std::memory_order_relaxed);
    return true;
  }

  // A few dozen claims of each kind.
  [[nodiscard]] bool MarkSome() {
    constexpr int kClaims = 32;
    const std::uint64_t before = MonotonicNs();
    idclient_status status = IDCLIENT_OK;
    for (int i = 0; i < kClaims && status == IDCLIENT_OK; ++i) {
      std::uint64_t id = 0;
      status = idclient_claim(tag_, &id);
      if (status == IDCLIENT_OK && !MarkRun(id, 1)) return false;
      if (status != IDCLIENT_OK) break;
      const idclient::Expected<std::uint64_t> inlined = inlined_->try_claim();
      status = inlined.error();
      if (inlined.has_value() && !MarkRun(*inlined, 1)) return false;
    }
    if (status == IDCLIENT_OK && options_.batch > 1) {
      std::uint64_t first = 0;
      std::size_t claimed = 0;
      status = idclient_claim_range(tag_, 1 + random_() % options_.batch, &first, &claimed);
      if (status == IDCLIENT_OK && !MarkRun(first, claimed)) return false;
    }
    log_.header().ids.store(claimed_, std::memory_order_relaxed);
    return status == IDCLIENT_OK || Failed(status, before, MonotonicNs());
  }

  [[nodiscard]] bool MarkRun(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t id = first; id < first + count; ++id) {
      if (id >= IdBitmap::kIds) return Fail("id " + std::to_string(id) + " is too large");
      if (!bitmap_->Mark(id)) return Fail("id " + std::to_string(id) + " came twice");
    }
    claimed_ += count;
    return true;
  }

  [[nodiscard]] bool ClaimOne() {
    std::uint64_t id = 0;
    const std::uint64_t before = MonotonicNs();
    const idclient_status status = idclient_claim(tag_, &id);
    const std::uint64_t after = MonotonicNs();
    if (status == IDCLIENT_OK) Record({before, after, id, 1});
    return status == IDCLIENT_OK || Failed(status, before, after);
  }

  [[nodiscard]] bool ClaimRange(std::uint64_t count) {
    std::uint64_t first = 0;
    std::size_t claimed = 0;
    const std::uint64_t before = MonotonicNs();
    const idclient_status status = idclient_claim_range(tag_, count, &first, &claimed);
    const std::uint64_t after = MonotonicNs();
    if (status != IDCLIENT_OK) return Failed(status, before, after);
    if (claimed == 0 || claimed > count) return Fail("claim_range said OK for a wrong count");
    Record({before, after, first, claimed});
    return true;
  }

  [[nodiscard]] bool ClaimMany(std::uint64_t count) {
    std::size_t claimed = 0;
    const std::uint64_t before = MonotonicNs();
    const idclient_status status = idclient_claim_many(tag_, ids_.data(), count, &claimed);
    const std::uint64_t after = MonotonicNs();
    if (claimed > count || (status == IDCLIENT_OK && claimed != count)) {
      return Fail("claim_many said OK for a wrong count");
    }
    RecordRuns(before, after, claimed);
    return status == IDCLIENT_OK || Failed(status, before, after);
  }

  // ids_[0 .. claimed) as runs of contiguous ids.
  void RecordRuns(std::uint64_t before, std::uint64_t after, std::size_t claimed) {
    std::size_t begin = 0;
    for (std::size_t i = 1; i <= claimed; ++i) {
      if (i < claimed && ids_[i] == ids_[i - 1] + 1) continue;
      Record({before, after, ids_[begin], i - begin});
      begin = i;
    }
  }

  [[nodiscard]] bool Failed(idclient_status status, std::uint64_t before, std::uint64_t after) {
    const std::string reason =
        std::string(idclient_status_name(status)) + ": " + idclient_last_error();
    Record({before, after, static_cast<std::uint64_t>(status), 0});
    const bool passing = status == IDCLIENT_TIMEOUT || status == IDCLIENT_UNAVAILABLE ||
                         (options_.awaits_tag && status == IDCLIENT_NO_SUCH_TAG);
    if (!options_.retry || !passing) return Fail(reason);
    ::usleep(2000);  // An absent daemon should not fill the log.
    return true;
  }

  [[nodiscard]] bool Fail(std::string_view reason) {
    log_.Fail(reason);
    return false;
  }

  const WorkerOptions& options_;
  idclient_tag* tag_;
  idclient::Tag* inlined_;  // with a bitmap
  IdBitmap* bitmap_;        // or null
  ClaimLog& log_;
  std::mt19937_64 random_;
  std::vector<std::uint64_t> ids_;
  std::uint64_t claimed_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t sum_of_squares_ = 0;
  std::uint64_t sum_of_cubes_ = 0;
  std::uint64_t slowest_ns_ = 0;
};

// The process: opens the tag once, forks the children and runs the threads.
class Worker {
 public:
  explicit Worker(const WorkerOptions& options) : options_(options) {
    for (std::uint64_t i = 0; i < options.threads + options.children; ++i) {
      logs_.push_back(ClaimLog::Open(options.log + "." + std::to_string(i)));
    }
  }

  [[nodiscard]] int Run() {
    if (!OpenTag()) return 1;
    std::vector<std::thread> threads;
    std::vector<char> ok(options_.threads, 1);
    for (std::uint64_t i = 1; i < options_.threads; ++i) {
      threads.emplace_back([this, &ok, i] { ok[i] = RunClaimer(i) ? 1 : 0; });
    }
    if (options_.children > 0 && !ForkChildren()) return 1;
    ok[0] = RunClaimer(0) ? 1 : 0;
    for (std::thread& thread : threads) thread.join();
    const bool children_ok = WaitForChildren();
    idclient_close(client_);
    const bool all_ok =
        std::count(ok.begin(), ok.end(), 1) == static_cast<std::ptrdiff_t>(ok.size());
    return all_ok && children_ok ? 0 : 1;
  }

 private:
  [[nodiscard]] bool OpenTag() {
    idclient_options options = IDCLIENT_OPTIONS_INIT;
    options.socket_path = options_.socket.c_str();
    options.timeout_ms = static_cast<std::uint32_t>(options_.timeout_ms);
    idclient_status status = IDCLIENT_SYSTEM;
    // The client's deadline is for claims; on a busy machine the first answer may take longer.
    const Deadline last = Deadline::After(std::chrono::minutes(1));
    do {
      status = idclient_open(&options, &client_);
      idclient_tag_options tag_options = IDCLIENT_TAG_OPTIONS_INIT;
      tag_options.block_size = static_cast<std::uint32_t>(options_.block);
      if (status == IDCLIENT_OK) {
        status = idclient_tag_open_with(client_, options_.tag.c_str(), &tag_options, &tag_);
      }
      if (status == IDCLIENT_OK) status = OpenInlined();
      if (status == IDCLIENT_OK) return true;
      if (client_ != nullptr) idclient_close(std::exchange(client_, nullptr));
    } while ((status == IDCLIENT_TIMEOUT || status == IDCLIENT_UNAVAILABLE) && !last.passed());
    logs_[0].Fail(std::string("open: ") + idclient_status_name(status) + ": " +
                  idclient_last_error());
    return false;
  }

  // A second connection, for the claims through idclient.hpp.
  [[nodiscard]] idclient_status OpenInlined() {
    if (options_.bitmap.empty()) return IDCLIENT_OK;
    try {
      if (!bitmap_.has_value()) bitmap_.emplace(IdBitmap::Open(options_.bitmap));
      idclient::Options options;
      options.socket_path = options_.socket;
      options.timeout = std::chrono::milliseconds(options_.timeout_ms);
      cpp_client_.emplace(options);
      inlined_.emplace(cpp_client_->tag(
          options_.tag, {.block_size = static_cast<std::uint32_t>(options_.block)}));
      return IDCLIENT_OK;
    } catch (const idclient::Error& error) {
      return error.status();
    }
  }

  [[nodiscard]] bool RunClaimer(std::uint64_t index) {
    return ClaimerLoop(options_, tag_, inlined_ ? &*inlined_ : nullptr,
                       bitmap_ ? &*bitmap_ : nullptr, logs_[index], index)
        .Run(gate_);
  }

  // The first child waits until the threads claim, so that the fork happens in the middle. The
  // parent claims once before, so that there is state to inherit.
  [[nodiscard]] bool ForkChildren() {
    std::uint64_t id = 0;
    if (idclient_claim(tag_, &id) != IDCLIENT_OK) {
      logs_[0].Fail(std::string("before the fork: ") + idclient_last_error());
      return false;
    }
    for (std::uint64_t i = 1; i < options_.threads; ++i) {
      while (logs_[i].state() == ClaimerState::kStarting ||
             logs_[i].state() == ClaimerState::kReady) {
        ::usleep(static_cast<useconds_t>(100 * options_.threads));
      }
    }
    for (std::uint64_t i = 0; i < options_.children; ++i) {
      const pid_t parent = ::getpid();
      const pid_t pid = ::fork();
      if (pid == 0) RunForkedChild(parent, options_.threads + i);
      if (pid < 0) {
        logs_[0].Fail("fork failed");
        return false;
      }
      children_.push_back(pid);
    }
    return true;
  }

  [[noreturn]] void RunForkedChild(pid_t parent, std::uint64_t index) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    const bool ok = RunClaimer(index);
    ::_exit(ok ? 0 : 1);
  }

  [[nodiscard]] bool WaitForChildren() {
    bool ok = true;
    for (const pid_t pid : children_) {
      int status = 0;
      while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      }
      ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return ok;
  }

  const WorkerOptions& options_;
  std::vector<ClaimLog> logs_;
  idclient_client* client_ = nullptr;
  idclient_tag* tag_ = nullptr;
  std::optional<IdBitmap> bitmap_;
  std::optional<idclient::Client> cpp_client_;
  std::optional<idclient::Tag> inlined_;
  std::vector<pid_t> children_;
  StartGate gate_;
};

}  // namespace
}  // namespace idd::harness

int main(int argc, char** argv) {
  try {
    const idd::harness::WorkerOptions options = idd::harness::ParseOptions(argc, argv);
    return idd::harness::Worker(options).Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "idd_claim_worker: %s\n", error.what());
    return 2;
  }
}
