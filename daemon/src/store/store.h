// SPDX-License-Identifier: Apache-2.0
//
// The allocator as the daemon sees it. One implementation a file; ADR 0006 says why it is this
// shape.
#ifndef IDD_DAEMON_STORE_STORE_H_
#define IDD_DAEMON_STORE_STORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "idd/base/status.h"
#include "idd/shm/ring_protocol.h"
#include "store/lease.h"
#include "store/tag_record.h"

namespace idd::daemon {

enum class ReturnOutcome {
  kLowered,  // max_id is now the first unclaimed id
  kListed,   // another host leased after us: the tail is in the list of returned ranges
  kStale,    // the journal does not have the lease as active and ours: nothing was changed
  // The lease was put into the journal by Reconcile(): what this data set has leased meanwhile is
  // not known to be elsewhere, so the tail is journalled as abandoned.
  kAbandoned,
};

// What this host knows of its ids, for a data set that may have forgotten it.
struct HostMemory {
  std::vector<TagMark> marks{};
  std::vector<TagMark> ceilings{};  // what any host may have been granted lies below (fence.h)
  std::vector<Lease> held{};        // leases whose ids are still in use by the running daemon
  // The data set that granted them is another, not one that may have been set back.
  bool from_other_data_set = false;
};

// What Reconcile() found the data set to have forgotten.
struct Reconciliation {
  struct Lift {
    std::string tag;
    std::uint64_t from = 0;  // max_id; of a tag that is not there: where its tombstone stood, or 0
    std::uint64_t to = 0;    // the mark
  };
  std::vector<Lift> lifted;
  std::uint64_t fenced = 0;     // tags that were lifted to their ceilings
  std::vector<Lease> restored;  // held leases that the journal lacked
  // Leases are missing from the journal: the data set is an older copy, or another one. (A max_id
  // alone may have been moved by hand.)
  bool forgot_leases = false;
};

struct HostRecord {
  std::string host;
  std::string first_seen;                // UTC
  std::string last_seen;                 // UTC
  std::optional<std::string> boot_id{};  // of its kernel when last seen; not every store keeps it
  std::optional<std::string> state{};    // MemberStateName(); with a fence
};

struct ReturnedRange {
  std::string tag;
  std::string host;
  shm::IdRange ids;
};

// What the allocator knows of its ids at one moment.
struct Ledger {
  std::vector<LeaseRecord> journal;  // of every host, oldest first
  std::vector<TagRecord> tags;
  std::vector<ReturnedRange> returned;  // of every host
};

// A setting of the store that its durability hangs on.
struct StoreSetting {
  std::string name;
  std::string value;   // as the store tells it
  std::string wanted;  // as idd wants it
  std::string risk;    // of any other value: a clause
};

// What the store says of itself; it has done nothing for that.
struct StoreFacts {
  std::string version;  // with its name: "SQLite 3.40.1"
  bool is_read_only = false;
  std::vector<StoreSetting> settings;
  // The store's clock, by so much ahead of this host's, give or take; nothing: it has no other.
  struct Clock {
    std::int64_t ahead_ms = 0;
    std::uint64_t uncertain_ms = 0;
  };
  std::optional<Clock> clock;
};

class FenceStore;  // fence_store.h

// What the allocator has, for lists and reports: changes nothing.
//
// Thread safety: none. Every call may block on I/O.
// Errors: kUnavailable (cannot be reached, busy, full, read-only: worth trying again),
// kNoSuchTag, kInvalid (the request or a row is wrong; the message says which column), kOutOfIds,
// kIncompatible (not idd's database, newer schema, corrupt: an operator must act).
class StoreReader {
 public:
  virtual ~StoreReader() = default;
  StoreReader(const StoreReader&) = delete;
  StoreReader& operator=(const StoreReader&) = delete;

  [[nodiscard]] Result<TagRecord> FindTag(const std::string& tag);
  // Several at once, in the order of `tags`.
  using TagResults = std::vector<Result<TagRecord>>;
  [[nodiscard]] virtual Result<TagResults> FindTags(const std::vector<std::string>& tags) = 0;
  [[nodiscard]] virtual Result<std::vector<LeaseRecord>> ListLeases(const LeaseFilter& filter) = 0;
  [[nodiscard]] virtual Result<std::vector<ReturnedRange>> ListReturned(
      const std::optional<std::string>& tag) = 0;
  [[nodiscard]] virtual Result<std::vector<HostRecord>> ListHosts() = 0;
  // The tags that there are, whatever their rows hold, and those of which the journal has leases.
  [[nodiscard]] virtual Result<std::set<std::string>> LedgerTags() = 0;
  // Of one tag; while other hosts lease and hand back the lists are still of one moment.
  [[nodiscard]] virtual Result<Ledger> ReadLedger(const std::string& tag) = 0;

 protected:
  StoreReader() = default;

  // The lists, one after the other.
  [[nodiscard]] Result<Ledger> ReadLists(const std::string& tag);
};

// Used on the lease worker's thread alone.
class Store : public StoreReader {
 public:
  // Opens or re-opens; creates the schema in an empty database; journals this host as seen. Called
  // before the first use and after every kUnavailable. Once it has succeeded, or after
  // RequireExisting(), a database that is missing or empty is kUnavailable and none is made: ids
  // that an empty one leased would come twice.
  [[nodiscard]] virtual Status Open() = 0;
  // What Open() finds missing or empty was there, or ids were granted that it would grant again.
  virtual void RequireExisting() = 0;
  // Ok while what is open is what Open() would open; kUnavailable when it was replaced, moved or
  // deleted, or is not open. Cheap.
  [[nodiscard]] virtual Status CheckCurrent() = 0;
  // Rises with every Open() that found another file or server than the last; 0 before the first.
  [[nodiscard]] virtual std::uint64_t generation() const = 0;
  // Without a fence: how long a host that has found another data set, or an older copy, leaves the
  // other hosts to find it too and push their marks: each looks once a second, and after at most
  // another second's pause.
  [[nodiscard]] virtual std::chrono::milliseconds reconcile_window() const {
    return std::chrono::milliseconds(3000);
  }

  // Without a fence: whether other hosts may know of grants that what is open does not, although
  // this one has not had it open before.
  [[nodiscard]] virtual bool started_recently() const { return false; }
  // Null: the store knows by itself, in each transaction, whether it was replaced.
  [[nodiscard]] virtual FenceStore* fence() { return nullptr; }

  // The random id of the data set.
  [[nodiscard]] virtual Result<std::string> Incarnation() = 0;

  // --- leasing
  // One transaction: the lowest returned range of this host at or above mark and floor, else an
  // advance of max_id from the highest of max_id, mark, floor and what the journal knows; fewer
  // than count ids when the tag ends; the journal row; commit. A commit whose outcome is unknown is
  // kUnavailable and its range is lost: it is never answered, and the next Open() journals it as
  // abandoned if it did happen.
  [[nodiscard]] Result<Lease> TakeLease(const LeaseRequest& request);
  // The same for several tags in one transaction, each of them once; in the order of `requests`.
  // What is wrong with one request or its tag is that lease's error, and the others are taken.
  using LeaseResults = std::vector<Result<Lease>>;
  [[nodiscard]] virtual Result<LeaseResults> TakeLeases(
      const std::vector<LeaseRequest>& requests) = 0;
  // Journals the end of leases, in one transaction. Leases that are not active and ours are
  // skipped. kInvalid, and nothing is journalled, for kReturned, more claimed ids than the lease
  // has, or kExhausted with fewer.
  [[nodiscard]] virtual Status CloseLeases(const std::vector<LeaseClosure>& closures) = 0;
  // Gives [ids.first + claimed, ids.limit) of an active lease back: one transaction. kInvalid when
  // that is empty: close it as exhausted. kNoSuchTag when the tag was deleted or lifted above the
  // lease meanwhile: the tail has been journalled as abandoned.
  [[nodiscard]] virtual Result<ReturnOutcome> ReturnTail(const LeaseClosure& closure) = 0;
  // Marks every active lease of this host as abandoned (a crash or a reboot left them) except those
  // whose tokens are listed; returns what was marked.
  [[nodiscard]] virtual Result<std::vector<LeaseRecord>> AbandonActive(
      const std::vector<std::string>& except_tokens) = 0;

  // Tells the data set what this host knows of its ids, in one transaction; nothing changes where
  // it knows that itself. max_id of each marked tag is lifted to its mark; a tag that is not there
  // gets a tombstone there, so that a namesake starts above, whichever host leases from it first.
  // Held leases that the journal lacks are journalled as active under their tokens; what an older
  // lease of this host shares with them counts as returned, unless they are from another data set.
  [[nodiscard]] virtual Result<Reconciliation> Reconcile(const HostMemory& memory) = 0;

  // --- tags
  // Without the rows that make no sense (a column of the wrong type, a step of 0): FindTag says
  // why.
  [[nodiscard]] virtual Result<std::vector<TagRecord>> ListTags() = 0;
  // The same before a lease: what was read of a tag a moment ago will do.
  [[nodiscard]] virtual Result<TagResults> FindTagsCached(const std::vector<std::string>& tags) {
    return FindTags(tags);
  }
  // kInvalid when it exists, or start lies below ids of a deleted namesake.
  [[nodiscard]] virtual Result<TagRecord> CreateTag(const NewTag& tag) = 0;
  [[nodiscard]] virtual Result<TagRecord> ChangeTag(const TagChange& change) = 0;
  // Ids of an existing tag below `to` are another generator's; none of them is leased from now on:
  // max_id is lifted if it stands lower, returned ranges that begin below it are given up, and what
  // is left of present leases below it will be abandoned, not handed back. One transaction that
  // lowers nothing.
  [[nodiscard]] virtual Result<TagRecord> LiftTag(const std::string& tag, std::uint64_t to) = 0;
  // Every id of the tag that the journal, the returned ranges or a tombstone know of lies below it;
  // the tag itself need not be there.
  [[nodiscard]] virtual Result<std::uint64_t> UsedLimit(const std::string& tag) = 0;
  // Keeps a tombstone with max_id, so that a namesake starts above it. The journal stays; returned
  // ranges of the tag are given up, their leases count as abandoned from then on.
  [[nodiscard]] virtual Status DeleteTag(const std::string& tag) = 0;

  // How it is set up. One look, which changes nothing.
  [[nodiscard]] virtual Result<StoreFacts> Inspect() = 0;

  // For people: the URL without a password.
  [[nodiscard]] virtual std::string DisplayUrl() const = 0;

 protected:
  Store() = default;
};

// What the URL of a SQLite file begins with.
inline constexpr std::string_view kSqliteScheme = "sqlite:";

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_STORE_H_
