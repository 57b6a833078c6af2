// SPDX-License-Identifier: Apache-2.0
//
// A struct rseq that the kernel does not know, and a signal handler that plays the kernel.
#ifndef IDD_TESTS_UNIT_SUPPORT_FAKE_RSEQ_H_
#define IDD_TESTS_UNIT_SUPPORT_FAKE_RSEQ_H_

#include <signal.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace idd::shm {

// What the C library keeps for a thread. The kernel interrupts no sequence that uses this one.
class alignas(32) FakeRseq {
 public:
  explicit FakeRseq(std::uint32_t cpu) : cpu_id_start_(cpu), cpu_id_(cpu) {}
  FakeRseq(const FakeRseq&) = delete;
  FakeRseq& operator=(const FakeRseq&) = delete;

  // From the thread pointer of the calling thread.
  [[nodiscard]] std::ptrdiff_t offset() const {
    return reinterpret_cast<const char*>(this) -
           static_cast<const char*>(__builtin_thread_pointer());
  }

  // As <linux/rseq.h> has it.
  struct Sequence {
    std::uint32_t version;
    std::uint32_t flags;
    std::uint64_t start_ip;
    std::uint64_t post_commit_offset;
    std::uint64_t abort_ip;
  };
  // Where a thread that was interrupted at `ip` has to go on; 0: where it was.
  [[nodiscard]] std::uint64_t Interrupt(std::uint64_t ip) {
    if (sequence_ == nullptr) return 0;
    const Sequence& sequence = *sequence_;
    if (ip - sequence.start_ip >= sequence.post_commit_offset) return 0;
    sequence_ = nullptr;
    return sequence.abort_ip;
  }
  [[nodiscard]] bool IsIn(std::uint64_t ip) const {
    return sequence_ != nullptr && ip - sequence_->start_ip < sequence_->post_commit_offset;
  }

 private:
  std::uint32_t cpu_id_start_;
  std::uint32_t cpu_id_;
  const Sequence* sequence_ = nullptr;
  std::uint32_t flags_ = 0;
};

#if defined(__x86_64__)

// Runs code one instruction at a time.
class SingleStepper {
 public:
  // Before instruction `at` (0, 1, ...) of a sequence of `thread`, `between` runs and the sequence
  // is aborted.
  SingleStepper(FakeRseq& thread, int at, std::function<void()> between)
      : thread_(thread), left_(at), between_(std::move(between)) {
    running_ = this;
    struct sigaction action {};
    action.sa_sigaction = &SingleStepper::OnStep;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGTRAP, &action, &before_);
  }
  ~SingleStepper() {
    ::sigaction(SIGTRAP, &before_, nullptr);
    running_ = nullptr;
  }
  SingleStepper(const SingleStepper&) = delete;
  SingleStepper& operator=(const SingleStepper&) = delete;

  void Run(const std::function<void()>& code) {
    is_on_ = true;
    ::raise(SIGTRAP);  // the handler turns stepping on
    code();
    is_on_ = false;
    ::raise(SIGTRAP);
  }
  [[nodiscard]] bool has_interrupted() const { return has_interrupted_; }

 private:
  static constexpr greg_t kTrapFlag = 0x100;

  static void OnStep(int /*signal*/, siginfo_t* /*info*/, void* context) {
    running_->Step(*static_cast<ucontext_t*>(context));
  }
  void Step(ucontext_t& context) {
    greg_t& flags = context.uc_mcontext.gregs[REG_EFL];
    flags = is_on_ ? flags | kTrapFlag : flags & ~kTrapFlag;
    greg_t& ip = context.uc_mcontext.gregs[REG_RIP];
    if (has_interrupted_ || !thread_.IsIn(static_cast<std::uint64_t>(ip))) return;
    if (left_-- > 0) return;
    has_interrupted_ = true;
    between_();
    ip = static_cast<greg_t>(thread_.Interrupt(static_cast<std::uint64_t>(ip)));
  }

  static inline SingleStepper* running_ = nullptr;
  FakeRseq& thread_;
  int left_;
  std::function<void()> between_;
  bool is_on_ = false;
  bool has_interrupted_ = false;
  struct sigaction before_ {};
};

#endif

}  // namespace idd::shm

#endif  // IDD_TESTS_UNIT_SUPPORT_FAKE_RSEQ_H_
