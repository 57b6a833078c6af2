// SPDX-License-Identifier: Apache-2.0
//
// A model of the allocator's tables and of each transaction on them, as SqliteStore and MysqlStore
// carry them out. It is a value: a copy of it is a dump, a replica, or the state that a restore
// brings back. store_model_test compares it with the real stores.
#ifndef IDD_TESTS_SIMULATION_DATA_SET_H_
#define IDD_TESTS_SIMULATION_DATA_SET_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "idd/base/status.h"
#include "store/lease.h"
#include "store/store.h"
#include "store/tag_record.h"
#include "store/term_store.h"

namespace idd::simulation {

using daemon::Ceiling;
using daemon::CeilingRaise;
using daemon::Lease;
using daemon::LeaseClosure;
using daemon::LeaseRecord;
using daemon::LeaseRequest;
using daemon::SnowflakeLayout;
using daemon::TagMark;
using daemon::TagRecord;
using daemon::Term;
using daemon::UsedLimitOf;
using daemon::WitnessList;
using daemon::WorkerChoice;
using daemon::WorkerRecord;

// A host as the allocator's own tables know it: idd_host.
struct HostRow {
  std::string boot_id;  // empty: no idd has the name now
  std::string instance;
  std::string run;
  std::string disk;  // with the host's name, its name as a witness
  std::uint64_t beat = 0;
  std::int64_t seen_at = 0;  // on the server's clock, nanoseconds
};

// idd_term.
struct TermEntry {
  Term term;
  std::string identity;  // of the connection that began it; empty: of none
  WitnessList active;
  WitnessList wanted;
  friend bool operator==(const TermEntry&, const TermEntry&) = default;
};

// A row of idd_witness.
struct WitnessEntry {
  Term term;
  std::uint64_t noted = 0;
  WitnessList list;
  std::uint64_t beat = 0;
  std::int64_t seen_at = 0;
};

struct ReturnedRow {
  std::string token;
  std::string tag;
  std::string host;
  shm::IdRange ids;
};

struct CeilingRow {
  std::uint64_t wanted = 0;
  std::uint64_t epoch = 0;  // of the raise to `wanted`
  std::uint64_t pushed = 0;
  std::uint64_t active = 0;
  Term active_in;
};

struct DataSet {
  std::string incarnation;
  std::map<std::string, TagRecord> tags;  // next_id is max_id of leaf_alloc; ceiling is not set
  std::vector<LeaseRecord> journal;       // in the order of leases; changed only by functions
  std::vector<ReturnedRow> returned;      // by tag, then base
  std::map<std::string, std::uint64_t> tombstones;
  std::map<std::string, SnowflakeLayout> layouts;  // idd_snowflake: also of deleted tags
  // idd_worker: the owners of worker ids, by tag.
  std::map<std::string, std::map<std::uint32_t, std::string>> workers;
  std::map<std::string, HostRow> hosts;
  TermEntry term;
  std::map<std::string, WitnessEntry> witnesses;
  std::map<std::string, CeilingRow> ceilings;
  std::uint64_t epoch = 0;  // of the newest raise

  // --- leasing. Every function is one transaction: it changes everything or, with an error,
  // nothing.
  [[nodiscard]] std::uint64_t UsedLimit(const std::string& tag) const;
  [[nodiscard]] Result<TagRecord> FindTag(const std::string& tag, bool has_terms) const;
  // `has_terms`: no lease ends above the ceiling that is active in this term.
  [[nodiscard]] Result<Lease> TakeLease(const LeaseRequest& request, const std::string& host,
                                        bool has_terms);
  [[nodiscard]] Status CloseLeases(const std::vector<LeaseClosure>& closures,
                                   const std::string& host);
  // `is_restored`: Reconcile() has put the lease into the journal.
  [[nodiscard]] Result<daemon::ReturnOutcome> ReturnTail(const LeaseClosure& closure,
                                                         const std::string& host, bool is_restored);
  [[nodiscard]] std::vector<LeaseRecord> AbandonActive(const std::set<std::string>& except,
                                                       const std::string& host);
  void AbandonLost(const std::set<std::string>& tokens, const std::string& host);
  [[nodiscard]] daemon::Reconciliation Reconcile(const daemon::HostMemory& memory,
                                                 const std::string& host);

  // --- worker ids of snowflake tags
  [[nodiscard]] std::vector<WorkerRecord> ListWorkers(const std::string& tag,
                                                      const std::string& host) const;
  // The owner of the worker id whose counter this is; nothing: it has none, or is no counter.
  [[nodiscard]] std::optional<std::string> OwnerOf(const std::string& counter) const;
  // Whether the counter is there and not beyond `choice.at_most`. MysqlStore makes a missing
  // counter first, in a transaction of its own.
  [[nodiscard]] Result<bool> PrepareWorker(const WorkerChoice& choice, bool has_terms);
  // The transaction in which MysqlStore then takes the worker id.
  [[nodiscard]] bool OwnWorker(const WorkerChoice& choice, const std::string& host);
  // All in one transaction, as SqliteStore does it.
  [[nodiscard]] Result<bool> TakeWorker(const WorkerChoice& choice, const std::string& host);

  // --- tags
  [[nodiscard]] Result<TagRecord> CreateTag(const daemon::NewTag& tag);
  [[nodiscard]] Result<TagRecord> ChangeTag(const daemon::TagChange& change);
  [[nodiscard]] Result<TagRecord> LiftTag(const std::string& tag, std::uint64_t to);
  [[nodiscard]] Status DeleteTag(const std::string& tag);
  // Takes `count` ids as a Leaf server does, without a record in idd's own tables.
  [[nodiscard]] std::optional<shm::IdRange> TakeAsLeaf(const std::string& tag, std::uint64_t count);

  // --- terms (term_store.h). False: the term is not as `found`, and nothing is done.
  [[nodiscard]] bool BeginTerm(const TermEntry& found, const TermEntry& next);
  [[nodiscard]] bool VoidTerm(const TermEntry& found);
  [[nodiscard]] bool Push(const TermEntry& found, const std::vector<TagMark>& notes);
  [[nodiscard]] bool WriteWitness(const TermEntry& found, const std::string& name,
                                  const WitnessEntry& row, std::uint64_t was);
  // Returns the new epoch.
  std::uint64_t Raise(const std::vector<CeilingRaise>& raises);
  [[nodiscard]] std::vector<Ceiling> ReadCeilings(const std::vector<std::string>& names) const;
  [[nodiscard]] bool Activate(const TermEntry& found, std::uint64_t after, std::uint64_t up_to);
  [[nodiscard]] bool SetLists(const TermEntry& found, const WitnessList& active,
                              const WitnessList& wanted, std::uint64_t up_to);

  [[nodiscard]] const LeaseRecord* FindLease(const std::string& token) const;

 private:
  // How a lease ended.
  struct End {
    daemon::LeaseState state = daemon::LeaseState::kActive;
    std::uint64_t claimed = 0;
    std::uint64_t returned = 0;
    std::uint64_t abandoned = 0;
  };
  void AddRow(const std::string& token, const std::string& tag, const std::string& host,
              shm::IdRange ids);
  void EndRow(std::size_t place, const End& end);
  // The place in the journal of a host's active lease.
  [[nodiscard]] std::optional<std::size_t> FindActive(const std::string& token,
                                                      const std::string& host) const;
  void GiveUpReturned(const std::string& tag, std::uint64_t below);
  [[nodiscard]] std::uint64_t ActiveCeiling(const CeilingRow& row) const;

  // Indexes of the journal.
  std::map<std::string, std::size_t, std::less<>> places_;
  std::map<std::string, std::multiset<std::uint64_t>, std::less<>> used_;  // by tag
  std::map<std::string, std::set<std::size_t>, std::less<>> active_;       // by host
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_DATA_SET_H_
