// SPDX-License-Identifier: Apache-2.0
//
// The log of one claimer (a thread of a process): a file that the claimer and the test both map.
//
// A record is written before the count that covers it, so the log of a process killed at any
// instruction is readable up to its last complete record. Ids that it claimed but could not log are
// a gap to the oracle, never a duplicate.
#ifndef IDD_TESTS_SUPPORT_CLAIM_LOG_H_
#define IDD_TESTS_SUPPORT_CLAIM_LOG_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace idd::harness {

// One claim, or one run of a claim whose ids were not contiguous. The times are CLOCK_MONOTONIC
// before and after the call. count 0: the call failed, and `first` is its idclient_status.
struct ClaimRecord {
  std::uint64_t before_ns = 0;
  std::uint64_t after_ns = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

enum class ClaimerState : std::uint32_t {
  kStarting = 0,
  kReady = 1,  // the tag is open, waiting for go
  kClaiming = 2,
  kDone = 3,
  kFailed = 4,  // `message` says why
};

struct ClaimLogHeader {
  std::uint64_t capacity;              // records
  std::atomic<std::uint64_t> records;  // complete ones
  std::atomic<std::uint64_t> ids;      // sum of their counts
  std::atomic<std::uint64_t> errors;   // records with count 0
  std::atomic<std::uint64_t> last_id;  // the highest so far
  std::atomic<std::uint32_t> state;    // ClaimerState, written by the claimer
  std::atomic<std::uint32_t> go;       // written by the test
  std::atomic<std::uint32_t> stop;     // written by the test
  std::uint32_t reserved;
  // For a claimer that tallies its single claims instead of recording them; sums modulo 2^64.
  std::atomic<std::uint64_t> sum;
  std::atomic<std::uint64_t> sum_of_squares;
  std::atomic<std::uint64_t> sum_of_cubes;
  std::atomic<std::uint64_t> slowest_ns;  // the slowest claim
  char message[512];
};

// Thread safety: one writer; any thread may use the header's atomics.
class ClaimLog {
 public:
  // The file is sparse: unused capacity costs nothing.
  [[nodiscard]] static ClaimLog Create(const std::string& path, std::uint64_t capacity);
  [[nodiscard]] static ClaimLog Open(const std::string& path);
  ~ClaimLog();
  ClaimLog(ClaimLog&& other) noexcept;
  ClaimLog& operator=(ClaimLog&&) = delete;
  ClaimLog(const ClaimLog&) = delete;
  ClaimLog& operator=(const ClaimLog&) = delete;

  [[nodiscard]] ClaimLogHeader& header() const noexcept { return *header_; }
  [[nodiscard]] std::span<const ClaimRecord> records() const noexcept;
  [[nodiscard]] ClaimerState state() const noexcept;
  [[nodiscard]] std::string message() const;

  [[nodiscard]] bool Full() const noexcept;
  // Precondition: not Full().
  void Append(const ClaimRecord& record) noexcept;
  void SetState(ClaimerState state) noexcept;
  void Fail(std::string_view message) noexcept;

 private:
  ClaimLog(void* address, std::size_t bytes) noexcept;

  ClaimLogHeader* header_;
  ClaimRecord* records_;
  std::size_t bytes_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_CLAIM_LOG_H_
