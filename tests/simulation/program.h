// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_PROGRAM_H_
#define IDD_TESTS_SIMULATION_PROGRAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/status.h"
#include "idd/shm/ring_claimer.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/snowflake_claimer.h"
#include "machine.h"
#include "oracle.h"
#include "world.h"

namespace idd::simulation {

// A program that claims ids, as libidclient does it: from the ring's memory with the library's
// code, and from idd when the ring is dry. Between any two steps of a claim it may be stopped for a
// long time, or killed.
class Program {
 public:
  struct Habits {
    std::vector<std::string> tags;
    Nanos pause = 10 * kMillisecond;  // between two claims, on the average
    std::uint64_t most = 1;           // ids of one claim
    unsigned stalls = 0;              // of 100 claims, how many stop in the middle
    unsigned loses_refills = 0;       // of 100 refill notices
    Nanos timeout = 2 * kSecond;
    bool is_hostile = false;  // overwrites the cursors of its rings; what it gets does not count
  };
  // The rings that it has mapped; a forked child shares them.
  struct Attachment {
    explicit Attachment(std::unique_ptr<shm::RingMemory> mapped);
    std::unique_ptr<shm::RingMemory> memory;  // null: the tag is claimed over the socket
    shm::ClaimView view;
    std::unique_ptr<shm::RingClaimer> claimer;
    std::unique_ptr<shm::SnowflakeClaimer> timed;  // in mode snowflake
  };
  using Attachments = std::map<std::string, std::shared_ptr<Attachment>>;

  Program(std::string name, Machine& machine, Oracle& oracle, Habits habits,
          Attachments attachments = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return process_.name(); }
  [[nodiscard]] Machine& machine() noexcept { return machine_; }
  [[nodiscard]] Process& process() noexcept { return process_; }
  [[nodiscard]] const Habits& habits() const noexcept { return habits_; }
  [[nodiscard]] const Attachments& attachments() const noexcept { return attachments_; }
  // When it last got ids of a tag; nothing: never.
  [[nodiscard]] std::optional<Nanos> LastClaim(const std::string& tag) const;
  // The error of its last claim of a tag; ok if that claim succeeded.
  [[nodiscard]] Status LastStatus(const std::string& tag) const;

 private:
  void Main();
  void ClaimOnce(const std::string& tag, std::uint64_t count);
  void Forge(const std::string& tag);
  void ClaimUntil(Nanos deadline, const std::string& tag, std::uint64_t count);
  [[nodiscard]] Result<shm::IdRange> ClaimFromRing(const std::string& tag, std::uint64_t count,
                                                   Nanos deadline);
  [[nodiscard]] Result<shm::IdRange> ClaimTimed(Attachment& attachment, std::uint64_t count,
                                                Nanos deadline);
  [[nodiscard]] shm::SnowflakeClaim ClaimTimedOnce(Attachment& attachment, std::uint64_t count);
  [[nodiscard]] static shm::SnowflakeClaim ClaimTimedStalling(Attachment& attachment,
                                                              std::uint64_t count);
  void NoteRefusal(const Status& status);
  // The scope in which the ids of a claim rise.
  [[nodiscard]] std::string Scope(const std::string& tag) const;
  [[nodiscard]] shm::IdRange ClaimStalling(Attachment& attachment, std::uint64_t count,
                                           bool& wakes_daemon);
  [[nodiscard]] Result<shm::IdRange> AskDaemon(const std::string& tag, std::uint64_t count,
                                               Nanos deadline);
  [[nodiscard]] Status Attach(const std::string& tag, Nanos deadline);
  [[nodiscard]] bool NeedsAttach(const std::string& tag) const;
  template <typename Reply>
  [[nodiscard]] bool AwaitReply(Reply& reply, std::uint64_t run, Nanos deadline);

  Machine& machine_;
  Oracle& oracle_;
  const Habits habits_;
  const std::uint64_t owner_;
  Attachments attachments_;
  bool reads_clock_ = true;  // who made the last ids of a snowflake tag
  std::map<std::string, Nanos> last_claims_;
  std::map<std::string, Status> last_statuses_;
  Process process_;  // last: it ends before the rest goes
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_PROGRAM_H_
