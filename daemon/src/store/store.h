// SPDX-License-Identifier: Apache-2.0
//
// The allocator as the daemon sees it. SqliteStore and MysqlStore implement it; ADR 0006 says why
// it has this shape.
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
  kListed,   // a later lease lies above it: the tail is in the list of returned ranges
  kStale,    // the journal does not have the lease as active and ours: nothing was changed
  // Reconcile() had put the lease into the journal. The data set may have leased the same ids to
  // another host meanwhile, so the tail is journalled as abandoned.
  kAbandoned,
};

// This host's knowledge of its ids, for a data set that may have forgotten it.
struct HostMemory {
  std::vector<TagMark> marks{};
  std::vector<TagMark> ceilings{};  // every id that a host was granted lies below
  std::vector<Lease> held{};        // leases whose ids are still in use by the running daemon
  // A different data set granted them, not an earlier state of this one.
  bool from_other_data_set = false;
};

// The knowledge that Reconcile() found missing in the data set.
struct Reconciliation {
  struct Lift {
    std::string tag;
    std::uint64_t from = 0;  // max_id; for a missing tag its tombstone's, or 0
    std::uint64_t to = 0;    // the mark
  };
  std::vector<Lift> lifted;
  // A row of leaf_alloc that could not be lifted: the database refused it, or another session had
  // it locked. A tombstone at the mark does the same for every idd.
  struct Refusal {
    std::string tag;
    std::uint64_t mark = 0;
    std::string error;
  };
  std::vector<Refusal> refused;
  std::uint64_t lifted_to_ceilings = 0;  // tags
  std::vector<Lease> restored;           // held leases that the journal lacked
  // Leases are missing from the journal: the data set is an older copy, or another one. (A max_id
  // alone may have been moved by hand.)
  bool forgot_leases = false;
};

struct HostRecord {
  std::string host;
  std::string first_seen;                // UTC
  std::string last_seen;                 // UTC
  std::optional<std::string> boot_id{};  // of its kernel when last seen
  // What the host says about itself (host_store.h). Empty: nothing yet.
  std::string name{};
  std::string address{};
  std::string version{};
  std::string report{};
  std::uint64_t silent_s = 0;  // since last_seen, by the store's clock
  bool has_stopped = false;    // as its last act
  bool is_forgotten = false;   // by an operator, and not seen since
};

// "forgotten", "stopped", "silent" or "live".
[[nodiscard]] const char* HostCondition(const HostRecord& host) noexcept;

// The id of the host that is meant: of that id or, if there is none, of that name. The text itself
// if no host has it. kInvalid: several hosts have the name; the message lists their ids.
[[nodiscard]] Result<std::string> FindHostId(const std::vector<HostRecord>& hosts,
                                             const std::string& id_or_name);

struct ReturnedRange {
  std::string tag;
  std::string host;
  shm::IdRange ids;
};

// The leases that one host took of one row of leaf_alloc, added up. Those that have ended are in
// `ended`, for which leased = claimed + returned + abandoned.
struct LeaseSums {
  std::string tag;
  std::string host;
  std::uint64_t active_leases = 0;
  std::uint64_t active_ids = 0;  // claimed or not, which only the host knows
  struct Ended {
    std::uint64_t leases = 0;
    std::uint64_t leased = 0;
    std::uint64_t claimed = 0;
    std::uint64_t returned = 0;
    std::uint64_t abandoned = 0;
  } ended{};
};

// The leases that all hosts took lately of one row of leaf_alloc.
struct RecentLeases {
  std::string tag;
  std::uint64_t leased = 0;    // ids of leases that were taken lately
  std::uint64_t returned = 0;  // ids that were handed back lately
};

// Adds leases up; in the order of tags, then hosts.
[[nodiscard]] std::vector<LeaseSums> AddUp(const std::vector<LeaseRecord>& leases);

// Where an id of a folded lease came from.
struct FoldedOrigin {
  std::string host;
  std::string month;     // in which the lease ended: "2026-11"
  bool is_exact = true;  // false: the lease may have been another host's
};

// The allocator's records of its ids at one moment.
struct Ledger {
  // Of every host: the active leases, and of the others as many as were asked for, those with the
  // highest ids. Oldest first.
  std::vector<LeaseRecord> journal;
  std::vector<TagRecord> tags;
  std::vector<ReturnedRange> returned;  // of every host
  std::vector<LeaseSums> sums{};        // of all leases, also those that are not in `journal`
};

// A setting that the store's durability depends on.
struct StoreSetting {
  std::string name;
  std::string value;   // as the store reports it
  std::string wanted;  // as idd wants it
  std::string risk;    // the risk of any other value, as a clause
};

// The store's facts about itself; reading them changes nothing.
struct StoreFacts {
  std::string version;  // with its name: "SQLite 3.40.1"
  bool is_read_only = false;
  std::uint64_t log_bytes = 0;  // of a SQLite file's -wal
  std::vector<StoreSetting> settings;
  // How far the store's clock is ahead of this host's, and the uncertainty; nothing if the store
  // has no clock of its own.
  struct Clock {
    std::int64_t ahead_ms = 0;
    std::uint64_t uncertain_ms = 0;
    std::int64_t store_ms = 0;  // what the store's clock showed, Unix time
  };
  std::optional<Clock> clock;
};

// A worker id of a snowflake tag that some host has owned.
struct WorkerRecord {
  std::uint32_t worker = 0;
  std::string host;               // the owner
  bool is_mine = false;           // the owner is the host that asks
  std::uint64_t next_number = 0;  // of its counter: where its next lease begins
};

// A worker id that this host would like to own.
struct WorkerChoice {
  std::string tag;
  std::uint32_t worker = 0;
  std::optional<std::string> owner{};  // as the caller has seen it; nothing: nobody yet
  // The counter must not be beyond it: then every window that the owner leased is over.
  std::uint64_t at_most = 0;
  std::uint64_t last_number = 0;  // of a counter that is made
};

// Whether an error that a store returned is the store's own, and not that of one request, tag or
// row (StoreReader).
[[nodiscard]] bool IsOfStore(const Status& status) noexcept;

class TermStore;     // term_store.h
class HostStore;     // host_store.h
class JournalStore;  // journal_store.h

// Reads what the allocator has, for lists and reports. It changes nothing.
//
// Thread safety: none. Every call may block on I/O.
// Errors of the store itself: kUnavailable (cannot be reached, full, read-only: worth trying
// again), kIncompatible (not idd's database, newer schema, corrupt: an operator must act), kSystem.
// Errors of the one request, tag or row: kNoSuchTag, kOutOfIds, kInvalid (the request or a row is
// wrong, or the database refuses the change; the message says why), kTimeout (another session has a
// row locked, or was faster: worth trying again).
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
  // The worker ids of a snowflake tag that were ever owned.
  [[nodiscard]] virtual Result<std::vector<WorkerRecord>> ListWorkers(const std::string& tag) = 0;
  // The sums of every host's leases: of one row of leaf_alloc, or of all of them. Unless this is
  // overridden, all leases are read.
  [[nodiscard]] virtual Result<std::vector<LeaseSums>> SumLeases(
      const std::optional<std::string>& tag);
  // Adds up the leases of the last `window`, which is shorter than leases stay in idd_lease, of one
  // tag or of all; a tag without such leases is left out. Unless this is overridden, of none.
  [[nodiscard]] virtual Result<std::vector<RecentLeases>> SumRecent(
      std::chrono::seconds /*window*/, const std::optional<std::string>& /*tag*/) {
    return std::vector<RecentLeases>();
  }
  // The leases of one row of leaf_alloc that kept ids, by the end of these ids: those below or at
  // `below`, the highest first. Unless this is overridden, all of the tag's leases are read.
  [[nodiscard]] virtual Result<std::vector<LeaseRecord>> ListByIds(const std::string& tag,
                                                                   std::uint64_t below,
                                                                   std::size_t most);
  // The hosts and months of folded leases that had the id (journal_store.h).
  [[nodiscard]] virtual Result<std::vector<FoldedOrigin>> FindFolded(const std::string& /*tag*/,
                                                                     std::uint64_t /*id*/) {
    return std::vector<FoldedOrigin>();
  }
  // Compares the sums of settled leases with their rows. Returns the differences as sentences.
  [[nodiscard]] virtual Result<std::vector<std::string>> CheckSums(const std::string& /*tag*/) {
    return std::vector<std::string>();
  }
  // All existing tags, even with invalid rows, and all tags that the journal has leases of.
  [[nodiscard]] virtual Result<std::set<std::string>> LedgerTags() = 0;
  // The rows of leaf_alloc that a tag leases from: its own and, of a snowflake tag, the counters of
  // its worker ids.
  [[nodiscard]] Result<std::vector<std::string>> RowsOf(const std::string& tag);
  // The ledger of one row of leaf_alloc, with at most `most` leases that are not active. Its lists
  // are from one moment, even while other hosts lease and hand back.
  [[nodiscard]] virtual Result<Ledger> ReadLedger(const std::string& tag, std::size_t most) = 0;

 protected:
  StoreReader() = default;

  // Reads the lists one after the other.
  [[nodiscard]] Result<Ledger> ReadLists(const std::string& tag, std::size_t most);
};

// Used only on the lease worker's thread.
class Store : public StoreReader {
 public:
  // Opens or re-opens; creates the schema in an empty database; journals this host as seen. Called
  // before the first use and after every failure of the store. Once it has succeeded, or after
  // RequireExisting(), a missing or empty database is kUnavailable and none is made: an empty one
  // would lease ids a second time.
  [[nodiscard]] virtual Status Open() = 0;
  // From now on Open() makes no database: one was there before, or ids were granted that an empty
  // one would grant again.
  virtual void RequireExisting() = 0;
  // The next Open() may make a database nevertheless, and is tried at once: an operator wants it.
  virtual void AllowNew() = 0;
  // Ok while the open database is the one that Open() would open; kUnavailable if it was replaced,
  // moved or deleted, or is not open. Cheap.
  [[nodiscard]] virtual Status CheckCurrent() = 0;
  // Rises whenever the open database turns out not to have what this host wrote there, or, without
  // terms, to be another file; 0 before the first Open().
  [[nodiscard]] virtual std::uint64_t generation() const = 0;
  // Without terms: how long a host that has found another data set, or an older copy, waits so
  // that the other hosts can find it too and push their marks. Each of them looks once a second,
  // after a pause of at most another second.
  [[nodiscard]] virtual std::chrono::milliseconds reconcile_window() const {
    return std::chrono::milliseconds(3000);
  }

  // Without terms: whether other hosts may know of grants that the open database lacks, although
  // this host has not had it open before.
  [[nodiscard]] virtual bool started_recently() const { return false; }
  // Null if the store itself detects in each transaction whether it was replaced.
  [[nodiscard]] virtual TermStore* terms() { return nullptr; }

  // Null if the journal keeps every lease indefinitely.
  [[nodiscard]] virtual JournalStore* journal() { return nullptr; }

  // Null if the store keeps nothing about hosts but their ids.
  [[nodiscard]] virtual HostStore* hosts() { return nullptr; }

  // The random id of the data set.
  [[nodiscard]] virtual Result<std::string> Incarnation() = 0;

  // --- leasing
  // Runs one transaction. It takes the lowest returned range of this host at or above mark and
  // floor, else advances max_id from the highest of max_id, mark, floor and the end of ids in the
  // journal; fewer than `count` ids if the tag ends. Then it writes the journal row and commits. If
  // the outcome of the commit is unknown, the result is kUnavailable and the range is lost: it is
  // never returned, and the next Open() journals it as abandoned if the commit did happen.
  [[nodiscard]] Result<Lease> TakeLease(const LeaseRequest& request);
  // The same for several tags in one transaction, each of them once; results are in the order of
  // `requests`. An error of one request or its tag fails only that lease, and the others are taken.
  using LeaseResults = std::vector<Result<Lease>>;
  [[nodiscard]] virtual Result<LeaseResults> TakeLeases(
      const std::vector<LeaseRequest>& requests) = 0;
  // Journals the end of leases, in one transaction. Skips leases that are not both active and ours.
  // kInvalid, with nothing journalled, for kReturned, for more claimed ids than the lease has, or
  // for kExhausted with fewer.
  [[nodiscard]] virtual Status CloseLeases(const std::vector<LeaseClosure>& closures) = 0;
  // Gives [ids.first + claimed, ids.limit) of an active lease back, in one transaction. kInvalid if
  // that range is empty: close the lease as exhausted instead. kNoSuchTag if the tag was deleted or
  // lifted above the lease meanwhile: the tail has been journalled as abandoned.
  [[nodiscard]] virtual Result<ReturnOutcome> ReturnTail(const LeaseClosure& closure) = 0;
  // Marks every active lease of this host as abandoned (a crash or a reboot left them), except
  // those with the listed tokens. Returns the leases that it marked. A row that cannot be read or
  // changed is logged and stays as it is.
  [[nodiscard]] virtual Result<std::vector<LeaseRecord>> AbandonActive(
      const std::vector<std::string>& except_tokens) = 0;

  // Writes what this host knows of its ids into the data set, in one transaction, as far as the
  // data set lacks it. max_id of each marked tag is lifted to its mark. A missing tag, and one
  // whose row cannot be changed, gets a tombstone at its mark: leases of the tag, and of a
  // namesake, start above it, whichever host leases first. Held leases that the journal lacks are
  // journalled as active under their tokens. Ids that an older lease of this host shares with them
  // count as returned, unless the held leases are from another data set.
  [[nodiscard]] virtual Result<Reconciliation> Reconcile(const HostMemory& memory) = 0;

  // --- worker ids of snowflake tags
  // Makes this host the owner of a worker id, in one transaction, and its counter if there is none.
  // False: the choice is not what the store has. Uniqueness does not depend on the owner, because
  // all leases of a counter are disjoint: an owner keeps hosts from using one worker id in turns.
  [[nodiscard]] virtual Result<bool> TakeWorker(const WorkerChoice& choice) = 0;
  // Compares the store's clock with this host's. Nothing: the store has no clock of its own.
  [[nodiscard]] virtual Result<std::optional<StoreFacts::Clock>> CompareClocks() {
    return std::optional<StoreFacts::Clock>();
  }

  // --- tags
  // Leaves out invalid rows (a column of the wrong type, a step of 0); FindTag reports why they are
  // invalid.
  [[nodiscard]] virtual Result<std::vector<TagRecord>> ListTags() = 0;
  // The same before a lease, when a record that was read a moment ago is good enough.
  [[nodiscard]] virtual Result<TagResults> FindTagsCached(const std::vector<std::string>& tags) {
    return FindTags(tags);
  }
  // kInvalid if the tag exists, or `start` lies below ids of a deleted tag of the same name.
  [[nodiscard]] virtual Result<TagRecord> CreateTag(const NewTag& tag) = 0;
  [[nodiscard]] virtual Result<TagRecord> ChangeTag(const TagChange& change) = 0;
  // Reserves an existing tag's ids below `to` for another generator, so that none of them is leased
  // from now on: lifts max_id if it is lower and gives up returned ranges that begin below `to`.
  // The rest of present leases below `to` will be abandoned, not handed back. One transaction,
  // which lowers nothing.
  [[nodiscard]] virtual Result<TagRecord> LiftTag(const std::string& tag, std::uint64_t to) = 0;
  // The end of the tag's ids that the journal, the returned ranges and a tombstone know. The tag
  // itself need not exist.
  [[nodiscard]] virtual Result<std::uint64_t> UsedLimit(const std::string& tag) = 0;
  // Keeps a tombstone with max_id, so that a later tag of the same name starts above it. The
  // journal stays. Returned ranges of the tag are given up, and count as abandoned from then on.
  [[nodiscard]] virtual Status DeleteTag(const std::string& tag) = 0;

  // How the store is set up. One look, which changes nothing.
  [[nodiscard]] virtual Result<StoreFacts> Inspect() = 0;

  // For people: the URL without a password.
  [[nodiscard]] virtual std::string DisplayUrl() const = 0;

 protected:
  Store() = default;
};

// Logs that a row of the journal cannot be read or changed, and stays as it is.
void LogInvalidRow(const Status& status);

// Between the errors of a server's endpoints, none of which could be opened.
inline constexpr std::string_view kNextEndpoint = "; next endpoint: ";

// The scheme of a SQLite file's URL.
inline constexpr std::string_view kSqliteScheme = "sqlite:";

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_STORE_H_
