// SPDX-License-Identifier: Apache-2.0
//
// A thread that is cancelled in a call of libidclient ends after the call and leaves nothing
// behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

constexpr std::uint32_t kHastyTimeoutMs = 300;
constexpr std::uint64_t kIdsOfALease = 1000;

// A thread that makes one call and then reaches a cancellation point.
class CancelledThread {
 public:
  // Whether the cancellation is already pending at the call, or comes later.
  enum class Cancelled : std::uint8_t { kBefore, kLater };

  CancelledThread(std::function<void()> call, Cancelled when)
      : call_(std::move(call)), when_(when) {
    Require(::pthread_create(&thread_, nullptr, Run, this) == 0, "pthread_create");
  }
  CancelledThread(const CancelledThread&) = delete;
  CancelledThread& operator=(const CancelledThread&) = delete;

  void Cancel() { Require(::pthread_cancel(thread_) == 0, "pthread_cancel"); }
  [[nodiscard]] bool Sleeps() const {
    std::ifstream stat("/proc/self/task/" + std::to_string(tid_.load()) + "/stat");
    std::string text;
    std::getline(stat, text);
    const std::size_t end = text.rfind(')');
    return tid_ != 0 && end != std::string::npos && text.at(end + 2) == 'S';
  }
  // Waits for the end of the thread: after the call, by the cancellation.
  void ExpectEndAfterTheCall() {
    void* result = nullptr;
    ASSERT_EQ(::pthread_join(thread_, &result), 0);
    EXPECT_TRUE(returned_) << "the call did not return";
    EXPECT_EQ(result, PTHREAD_CANCELED) << "the cancellation was lost";
  }

 private:
  static void* Run(void* self) {
    auto& thread = *static_cast<CancelledThread*>(self);
    if (thread.when_ == Cancelled::kBefore) static_cast<void>(::pthread_cancel(::pthread_self()));
    thread.tid_ = ::gettid();
    thread.call_();
    thread.returned_ = true;
    ::pthread_testcancel();
    return nullptr;
  }

  const std::function<void()> call_;
  const Cancelled when_;
  std::atomic<pid_t> tid_{0};
  std::atomic<bool> returned_{false};
  pthread_t thread_{};
};

class CancelledThreads : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.StartWithTag("orders", kIdsOfALease);
    Open(kHastyTimeoutMs, hasty_);
    Open(static_cast<std::uint32_t>(Patience(60s).count()), patient_);
    ASSERT_TRUE(ClaimsOn(hasty_) && ClaimsOn(patient_)) << idclient_last_error();
  }
  void TearDown() override {
    idclient_close(hasty_.client);
    idclient_close(patient_.client);
  }

  struct Handles {
    idclient_options options = IDCLIENT_OPTIONS_INIT;
    idclient_client* client = nullptr;
    idclient_tag* tag = nullptr;
  };

  void Open(std::uint32_t timeout_ms, Handles& handles) {
    handles.options.socket_path = host_.daemon.socket().c_str();
    handles.options.timeout_ms = timeout_ms;
    ASSERT_TRUE(WaitUntil(Patience(30s), [&] {
      return idclient_open(&handles.options, &handles.client) == IDCLIENT_OK;
    })) << idclient_last_error();
    ASSERT_TRUE(WaitUntil(Patience(30s), [&] {
      return idclient_tag_open(handles.client, "orders", &handles.tag) == IDCLIENT_OK;
    })) << idclient_last_error();
  }
  [[nodiscard]] static bool ClaimsOn(const Handles& handles) {
    std::uint64_t id = 0;
    return WaitUntil(Patience(30s),
                     [&] { return idclient_claim(handles.tag, &id) == IDCLIENT_OK; });
  }
  // Stops the daemon, and uses up all ids that can be claimed without it.
  void Dry() {
    host_.daemon.Signal(SIGSTOP);
    std::vector<std::uint64_t> ids(100'000);
    std::size_t claimed = 0;
    while (idclient_claim_many(hasty_.tag, ids.data(), ids.size(), &claimed) == IDCLIENT_OK) {
    }
  }
  static int OpenFiles() {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  }

  // All calls that may wait: for the daemon, or for a place in its backlog.
  [[nodiscard]] static std::vector<std::pair<const char*, std::function<void()>>> Calls(
      const Handles& handles) {
    return {
        {"claim",
         [&handles] {
           std::uint64_t id = 0;
           static_cast<void>(idclient_claim(handles.tag, &id));
         }},
        {"claim_many",
         [&handles] {
           std::uint64_t ids[5];
           std::size_t claimed = 0;
           static_cast<void>(idclient_claim_many(handles.tag, ids, 5, &claimed));
         }},
        {"claim_range",
         [&handles] {
           std::uint64_t first = 0;
           std::size_t claimed = 0;
           static_cast<void>(idclient_claim_range(handles.tag, 5, &first, &claimed));
         }},
        {"tag_open",
         [&handles] {
           idclient_tag* other = nullptr;
           static_cast<void>(idclient_tag_open(handles.client, "users", &other));
         }},
        {"open and close",
         [&handles] {
           idclient_client* other = nullptr;
           static_cast<void>(idclient_open(&handles.options, &other));
           idclient_close(other);
         }},
    };
  }

  const TempDir dir_;
  CleanHost host_{dir_};
  Handles hasty_;
  Handles patient_;
};

// Regression: the unwinding of the cancelled thread reached a noexcept function, which aborted the
// process.
TEST_F(CancelledThreads, WhileTheyWaitEndAfterTheCall) {
  const int before = OpenFiles();
  for (const auto& [name, call] : Calls(patient_)) {
    SCOPED_TRACE(name);
    Dry();
    CancelledThread thread(call, CancelledThread::Cancelled::kLater);
    EXPECT_TRUE(WaitUntil(Patience(30s), [&] { return thread.Sleeps(); }));
    thread.Cancel();
    host_.daemon.Signal(SIGCONT);
    thread.ExpectEndAfterTheCall();
    EXPECT_TRUE(ClaimsOn(patient_)) << "a lock is still held: " << idclient_last_error();
    EXPECT_TRUE(ClaimsOn(hasty_)) << idclient_last_error();
  }
  EXPECT_EQ(OpenFiles(), before);
}

// The same without a daemon: the call sleeps and tries again.
TEST_F(CancelledThreads, WithoutADaemonEndAfterTheCall) {
  Dry();
  host_.daemon.Kill();
  const int before = OpenFiles();
  for (const auto& [name, call] : Calls(hasty_)) {
    SCOPED_TRACE(name);
    CancelledThread thread(call, CancelledThread::Cancelled::kBefore);
    thread.ExpectEndAfterTheCall();
  }
  EXPECT_LE(OpenFiles(), before) << "the connection is gone";
  host_.daemon.Start();
  EXPECT_TRUE(ClaimsOn(hasty_)) << "a lock is still held: " << idclient_last_error();
}

// If several threads wait, one reads for all.
TEST_F(CancelledThreads, OneOfManyThatWaitHarmsNoOther) {
  Dry();
  const auto claim = Calls(patient_).front().second;
  std::vector<std::unique_ptr<CancelledThread>> threads;
  for (int i = 0; i < 6; ++i) {
    threads.push_back(std::make_unique<CancelledThread>(claim, CancelledThread::Cancelled::kLater));
  }
  for (const auto& thread : threads) {
    EXPECT_TRUE(WaitUntil(Patience(30s), [&] { return thread->Sleeps(); }));
  }
  for (const auto& thread : threads) thread->Cancel();
  host_.daemon.Signal(SIGCONT);
  for (const auto& thread : threads) thread->ExpectEndAfterTheCall();
  EXPECT_TRUE(ClaimsOn(patient_)) << "a lock is still held: " << idclient_last_error();
}

// The daemon's wake-up is a cancellation point too; claims that never wait send it.
TEST_F(CancelledThreads, ThatClaimFromTheRingEndAfterwards) {
  std::uint64_t claimed = 0;
  CancelledThread by_call(
      [&] {
        std::uint64_t id = 0;
        for (std::uint64_t i = 0; i < 3 * kIdsOfALease; ++i) {
          if (idclient_claim(patient_.tag, &id) == IDCLIENT_OK) ++claimed;
        }
      },
      CancelledThread::Cancelled::kBefore);
  by_call.ExpectEndAfterTheCall();
  EXPECT_GT(claimed, kIdsOfALease);
  claimed = 0;
  CancelledThread inlined(
      [&] {
        idclient::Options options;
        options.socket_path = host_.daemon.socket();
        options.timeout = Patience(30s);
        idclient::Client client(options);
        idclient::Tag tag = client.tag("orders");
        for (std::uint64_t i = 0; i < 3 * kIdsOfALease; ++i) {
          if (tag.try_claim().has_value()) ++claimed;
        }
      },
      CancelledThread::Cancelled::kBefore);
  inlined.ExpectEndAfterTheCall();
  EXPECT_GT(claimed, kIdsOfALease);
}

}  // namespace
}  // namespace idd::harness
