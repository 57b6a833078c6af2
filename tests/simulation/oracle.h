// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_ORACLE_H_
#define IDD_TESTS_SIMULATION_ORACLE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data_set.h"
#include "idd/shm/ring_protocol.h"
#include "world.h"

namespace idd::simulation {

// Sees every lease that any server committed and every id that a claimer kept, and reports the
// first broken promise.
class Oracle {
 public:
  explicit Oracle(World& world) : world_(world) {}
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;

  // `owner`: of the worker id, if the lease is of a counter.
  void OnLeased(const Lease& lease, const std::string& host,
                const std::optional<std::string>& owner);
  // Settings of a tag that bound what a host may hold.
  struct Limits {
    std::uint64_t step = 0;
    std::uint64_t max_prefetch = 0;
  };
  // The tag's settings may be as high as these from now on.
  void Allow(const std::string& tag, Limits limits);
  // So many ids of the tag are unclaimed in the host's ring.
  void OnHeld(const std::string& tag, const std::string& host, std::uint64_t available);

  // Claims of the tag are in order over all machines, as its mode is `ticket`, until it is deleted
  // or the store loses data: two data sets may then be in use side by side.
  void RiseOverMachines(const std::string& tag) { rising_.insert(tag); }
  [[nodiscard]] bool Rises(const std::string& tag) const { return rising_.contains(tag); }
  void OnDeleted(const std::string& tag) {
    rising_.erase(tag);
    deleted_.insert(tag);
  }
  // The ids of Leaf servers come again then: Leaf has nothing that protects them. So may those of
  // machines with one name: the witnesses take them for one host.
  void OnDataLost();
  void OnCloned(const std::string& original, const std::string& clone) {
    clones_.insert({original, clone});
  }

  // A snowflake tag, and the longest window that a host may lease ahead of its clock from now on.
  void AddSnowflake(const std::string& tag, const SnowflakeLayout& layout,
                    std::chrono::milliseconds window);
  [[nodiscard]] const SnowflakeLayout* LayoutOf(const std::string& tag) const;
  // An operator has moved the counter there. A host that had looked at it before may lease there.
  void OnMoved(const std::string& counter, std::uint64_t next) { moved_[counter] = next; }
  // That host's clock, for the windows that it leases.
  void AddClock(const std::string& host, const HostClock& clock) {
    clocks_[host].push_back(&clock);
  }
  // Whether the newest id of a claim of that scope is of a time after `unix_ms`.
  [[nodiscard]] bool IsAfter(const std::string& scope, const std::string& tag,
                             std::int64_t unix_ms) const;

  // A claim that is under way.
  struct Claim {
    std::string machine;
    std::string host;
    std::string tag;
    std::string scope;  // claims of one scope are in order: those of a machine, or of a program
    Nanos began = 0;
    std::uint64_t above = 0;      // its ids are at or above it
    bool is_of_old_ring = false;  // perhaps: no idd knows the leases of the ring any more
    // Of a snowflake tag:
    const HostClock* clock = nullptr;
    // An idd that began at this moment knew nothing of what earlier ones had handed out, which lies
    // below `earlier`. Its ids are above that too, unless the clock was behind.
    Nanos forgot_at = 0;
    std::uint64_t earlier = 0;
    Nanos earlier_at = 0;  // when ids below `earlier` were first forgotten: later ones may be, too
    // The same moment as it was when the claim began: its ids may be those of the idd of that time,
    // and their answer may have come after another idd had begun.
    Nanos first_forgot_at = 0;
    // Who made the ids has read the clock meanwhile.
    bool is_timely = false;
  };
  // Fills in `began`, `above` and `earlier`.
  [[nodiscard]] Claim Begin(Claim claim) const;
  // The same in another scope, as the claim got its ids from another ring.
  void ChangeScope(Claim& claim, std::string scope) const;
  // An idd that knew nothing of earlier ids has begun at that moment, perhaps since the claim
  // began.
  static void Forget(Claim& claim, Nanos forgot_at);
  // The claimer keeps these ids.
  void OnClaimed(const Claim& claim, shm::IdRange ids);
  // From now on no claim of the tag that begins on the machine gets ids, until OnResumed(). An
  // empty tag stands for all.
  void OnDrained(const std::string& machine, const std::string& tag);
  void OnResumed(const std::string& machine, const std::string& tag);
  // A Leaf server beside idd hands these ids out.
  void OnLeafTook(const std::string& tag, shm::IdRange ids);

  // A hostile program on the machine overwrites the cursors of the tag's rings. From now on, claims
  // of the tag on this machine may share ids, and be out of order, as docs/failures.md admits.
  void OnForged(const std::string& machine, const std::string& tag);

  // From now on the journal loses nothing and every idd knows its leases.
  void Watch() noexcept { is_watching_ = true; }
  // After every idd has stopped: the journal has the end of each lease, and each id that a program
  // kept is in a part of a lease that did not go back, and in the claimed part if the lease's host
  // is one of `exact`: no idd of that host lost its list of leases. `only_watched`: ids that were
  // claimed before Watch() may be lost from the journal.
  void CheckJournal(const std::vector<LeaseRecord>& journal, const std::set<std::string>& exact,
                    bool only_watched);

  void Fail(std::string what);
  [[nodiscard]] const std::optional<std::string>& failure() const noexcept { return failure_; }
  [[nodiscard]] std::uint64_t claimed() const noexcept { return claimed_; }
  [[nodiscard]] std::uint64_t leases() const noexcept { return leases_; }

 private:
  // A snowflake tag.
  struct Snowflake {
    SnowflakeLayout layout;
    std::chrono::milliseconds window{};  // the longest so far
  };
  // How far the claims of a scope have come.
  struct Order {
    std::uint64_t newest = 0;
    Nanos since = 0;  // when idd began, see Claim::forgot_at
    // The claims before, of which an idd that began then knew nothing.
    std::uint64_t before = 0;
    Nanos before_at = 0;  // as Claim::earlier_at
    void Forget(std::uint64_t limit, Nanos at) {
      if (limit <= before) return;
      before = limit;
      before_at = at;
    }
  };
  // Ids as the store counts them: a row of leaf_alloc, and the numbers leased from it.
  struct Counted {
    std::string row;
    shm::IdRange numbers;
  };
  // Nothing: the oracle has failed.
  [[nodiscard]] std::optional<Counted> Count(const Claim& claim, shm::IdRange ids);
  [[nodiscard]] bool CheckTime(const Claim& claim, const SnowflakeLayout& layout,
                               std::uint64_t time);
  void CheckWindow(const Lease& lease, const std::string& host,
                   const std::optional<std::string>& owner);
  [[nodiscard]] bool IsRising(const Claim& claim, std::uint64_t first) const;
  // Disjoint ranges, by their first id, with who has them.
  using Ranges = std::map<std::uint64_t, std::pair<std::uint64_t, std::string>>;
  // Adds a range; neighbours of one machine become one.
  static void Add(Ranges& ranges, shm::IdRange ids, const std::string& machine);
  [[nodiscard]] bool IsForged(const std::string& machine, const std::string& tag) const {
    return forged_.contains({machine, tag});
  }

  // A range of `ranges` that shares an id with `ids`, or null.
  [[nodiscard]] static const Ranges::value_type* FindShared(const Ranges& ranges, shm::IdRange ids);

  World& world_;
  std::map<std::string, Ranges> handed_out_;              // by tag
  std::map<std::string, Ranges> watched_;                 // since Watch()
  std::map<std::string, Limits> limits_;                  // the highest so far
  std::set<std::pair<std::string, std::string>> forged_;  // by machine and tag
  // Leases by tag and host: by first id, the highest limit of the leases that begin there.
  std::map<std::pair<std::string, std::string>, std::map<std::uint64_t, std::uint64_t>> leased_;
  std::map<std::pair<std::string, std::string>, Order> orders_;  // by scope, empty: all, and tag
  std::map<std::string, Snowflake> snowflakes_;                  // by tag
  std::map<std::string, std::uint64_t> moved_;                   // by counter, the last time
  std::map<std::string, std::vector<const HostClock*>> clocks_;  // by host; clones share a name
  std::set<std::string> deleted_;
  std::map<std::pair<std::string, std::string>, std::uint64_t> ids_leased_;  // by tag and host
  std::set<std::string> rising_;
  std::map<std::pair<std::string, std::string>, Nanos> drained_;
  std::set<std::string> clones_;       // machines, and those that they were copied from
  std::set<std::string> unprotected_;  // those of them before the store lost data
  bool is_watching_ = false;
  std::uint64_t claimed_ = 0;
  std::uint64_t leases_ = 0;
  std::optional<std::string> failure_;
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_ORACLE_H_
