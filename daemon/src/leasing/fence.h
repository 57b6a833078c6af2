// SPDX-License-Identifier: Apache-2.0
//
// Keeps hosts from leasing ids again that a lost data set had granted to another host.
//
// A store can be replaced by one that lacks the last commits: a replica that lags is promoted, a
// dump is restored, an older node is bootstrapped. Each host's marks cover what it was granted
// itself. The fence covers what other hosts were granted, even hosts that never come back: every
// tag has a ceiling in the data set, no lease ends above the ceiling, and it is raised only after
// every live member has the new one on its disk. So a live member knows a bound for all leases of
// all hosts, and the first live member that comes to a replaced data set lifts it to that bound.
// docs/adr/0016 has the argument, tests/model/fence.pml the model.
#ifndef IDD_DAEMON_LEASING_FENCE_H_
#define IDD_DAEMON_LEASING_FENCE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/status.h"
#include "leasing/ceilings.h"
#include "leasing/high_water.h"
#include "leasing/other_hosts.h"
#include "store/fence_store.h"

namespace idd::daemon {

struct FenceSettings {
  std::string host;
  std::string boot_id;
  // How long a silent host keeps others from raising ceilings, so that a host that was cut off for
  // less still knows all of them.
  std::chrono::seconds silence = kDefaultFenceAfter;
  // Milliseconds of CLOCK_BOOTTIME, which continues while the machine is suspended.
  std::function<std::int64_t()> now_ms;
};
[[nodiscard]] std::int64_t BootTimeMs();

// A host that leasing waits for.
struct FenceWait {
  std::string host;
  std::int64_t silent_ms = 0;  // as far as this host has seen
  // Time until leasing no longer waits for it; nothing: it waits until the host comes or is
  // forgotten.
  std::optional<std::int64_t> left_ms{};
  friend bool operator==(const FenceWait&, const FenceWait&) = default;
};

struct FenceReport {
  std::string state = "none";  // "live", "watching", "waiting"; "none": the store has no fence
  std::string server;
  std::vector<FenceWait> waits;
  std::string reason;  // why leasing waits, for people; empty: it does not
  friend bool operator==(const FenceReport&, const FenceReport&) = default;
};

// Invariants: while the state is live, every ceiling of the data set that is or was active is noted
// in the marks. Nothing is leased in another state.
//
// It has more members than a class should: the state, what is noted and the facts about other hosts
// change together, and the invariant is about all three.
//
// Thread safety: none; the lease worker's thread.
class Fence {
 public:
  Fence() : Fence(FenceSettings{}) {}
  explicit Fence(FenceSettings settings);

  // The first step after a store was opened. It decides whether the marks must be pushed together
  // with the ceilings (the marks then include them), and whether this host may lease afterwards.
  // `is_replaced`: the store may not be the one that was open before. At the first Open() of a run,
  // this call finds that out itself.
  struct Arrival {
    bool pushes_ceilings = false;
    bool joins = false;
    bool is_complete = false;    // the marks have all ceilings
    std::int64_t proven_ms = 0;  // what was found is from this time
  };
  [[nodiscard]] Result<Arrival> Arrive(FenceStore& store, HighWaterMarks& marks,
                                       const std::string& incarnation, bool is_replaced);
  // The second step, once the marks are pushed.
  [[nodiscard]] Status Settle(FenceStore& store, HighWaterMarks& marks, const Arrival& arrival);

  // Looks at the fence if a second has passed or something waits for it. False: Arrive() must be
  // called again.
  [[nodiscard]] Result<bool> Refresh(FenceStore& store, HighWaterMarks& marks);

  // Makes room for leases: raises the ceilings of tags that need it soon, and updates `ceiling` of
  // each need.
  [[nodiscard]] Status Cover(FenceStore& store, HighWaterMarks& marks,
                             std::vector<Ceilings::Need>& needs);

  [[nodiscard]] bool may_lease() const noexcept { return state_ == State::kLive; }
  // Whether this host is live, but looked so long ago, because it was suspended, that meanwhile the
  // server's machine may have been set back to a snapshot of its memory, or that half of `silence`
  // has passed. After such a setback this host's row and connection look as this host left them:
  // they show neither what others were granted since, nor that others have put this host out.
  [[nodiscard]] bool IsLate() const;
  // Including this host.
  [[nodiscard]] std::size_t live_members() const { return others_.LiveMembers() + 1; }
  // For people: why this host may not lease, or why a ceiling is not raised.
  [[nodiscard]] std::string Reason() const;
  // Ends the wait for a host that an operator knows to be off. kInvalid: the host is unknown, not
  // waited for, or was seen a moment ago and `is_forced` is false.
  [[nodiscard]] Status Forget(FenceStore& store, const std::string& host, bool is_forced);
  // Whether the host is a member, as far as this host has seen. Leasing may wait for members only.
  [[nodiscard]] bool IsMember(const std::string& host) const;
  [[nodiscard]] FenceReport Report() const;

  // This host stops and leases no more. Other hosts do not wait for it from now on.
  void Leave(FenceStore& store, HighWaterMarks& marks);
  // The store was exchanged for another.
  void Reset();

 private:
  enum class State { kNone, kWatching, kWaiting, kLive };

  [[nodiscard]] Status Push(FenceStore& store, HighWaterMarks& marks);
  [[nodiscard]] Status Join(FenceStore& store, HighWaterMarks& marks, const Arrival& arrival);
  [[nodiscard]] Result<bool> RefreshLive(FenceStore& store, HighWaterMarks& marks,
                                         const FenceView& view);
  [[nodiscard]] Result<FenceView> ReadView(FenceStore& store);
  [[nodiscard]] Status Note(HighWaterMarks& marks, const FenceView& view);
  [[nodiscard]] Status WriteState(FenceStore& store, HighWaterMarks& marks,
                                  MemberState state) const;
  [[nodiscard]] Status Remember(const FenceStore& store, HighWaterMarks& marks, bool is_live);
  [[nodiscard]] Status PutOutSilent(FenceStore& store);
  [[nodiscard]] Status PutSelfOut(FenceStore& store, const FenceView& view);
  [[nodiscard]] Status ActivatePending(FenceStore& store);
  [[nodiscard]] std::int64_t SinceConfirmedMs(const Membership& membership) const;
  [[nodiscard]] bool IsComplete(const Membership& membership) const;
  [[nodiscard]] bool IsLost(const Membership& membership) const;
  [[nodiscard]] bool IsContinued() const;
  // Whether the server may have been set back to its state at that time.
  [[nodiscard]] bool IsUnproven(std::int64_t proven_ms) const;
  [[nodiscard]] bool HasWatched() const;
  [[nodiscard]] bool IsHeldUp() const;  // a locked row has kept raises from being done for long
  [[nodiscard]] std::int64_t LookAfterMs() const;
  [[nodiscard]] std::int64_t SilenceMs() const {
    return std::chrono::milliseconds(settings_.silence).count();
  }
  [[nodiscard]] bool IsUnchanged(const FenceStore& store, const Membership& membership) const;
  [[nodiscard]] Status RaiseAndNote(FenceStore& store, HighWaterMarks& marks,
                                    const std::vector<CeilingRaise>& raises);
  [[nodiscard]] std::vector<FenceWait> Waits() const;
  [[nodiscard]] std::string AwaitedHosts() const;

  FenceSettings settings_;
  State state_ = State::kNone;
  std::string server_;
  std::string incarnation_;
  std::uint64_t noted_ = 0;         // epochs up to this one are noted
  std::uint64_t joined_epoch_ = 0;  // hosts that have noted it know this host
  bool is_known_ = false;           // all members know this host
  std::uint64_t data_set_ = 0;      // FenceStore::data_set() at the last Arrive()
  std::int64_t contact_ms_ = 0;     // first look at this data set
  std::int64_t looked_ms_ = 0;      // last look was sent
  std::int64_t confirmed_ms_ = 0;   // last look of a live member was sent; 0: none in this run
  std::int64_t remembered_ms_ = 0;  // confirmed_ms_ in the marks
  bool was_put_out_ = false;
  bool was_replaced_ = false;  // the data set, since the last join
  bool looks_soon_ = false;    // something waits for other hosts' notes
  static constexpr std::int64_t kNoLook = -1'000'000'000;
  // A raise was tried in vain after this look; a later one shows what others have raised.
  std::int64_t raises_after_ms_ = kNoLook;
  std::int64_t vain_since_ms_ = kNoLook;  // the first of such looks that followed one another
  std::optional<HighWaterMarks::MemberList> noted_members_;
  OtherHosts others_;
  Ceilings ceilings_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_FENCE_H_
