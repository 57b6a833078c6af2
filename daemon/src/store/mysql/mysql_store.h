// SPDX-License-Identifier: Apache-2.0
//
// The allocator over the MySQL protocol, for many hosts: mysql_store.cc connects and recognises the
// data set, mysql_lease.cc leases, mysql_tags.cc reads tags, mysql_term.cc has what the hosts agree
// on, mysql_inspect.cc looks at the server, mysql_session.cc runs the SQL of store/,
// mysql_schema.cc has the tables. docs/adr/0009 says why a lease is one packet.
#ifndef IDD_DAEMON_STORE_MYSQL_MYSQL_STORE_H_
#define IDD_DAEMON_STORE_MYSQL_MYSQL_STORE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "platform/host_id.h"
#include "sql/mysql_db.h"
#include "sql/mysql_url.h"
#include "store/mysql/host_row.h"
#include "store/mysql/mysql_tables.h"
#include "store/mysql/server_identity.h"
#include "store/sql_store.h"
#include "store/term_store.h"
#include "store/time_budget.h"

namespace idd::daemon {

struct MysqlStoreOptions {
  MysqlUrl url;
  HostIdentity host;
};

// It has more methods and members than a class should: it is Store and TermStore over one
// connection. Parts with invariants of their own are in ServerIdentity,
// MysqlTables and HostRow.
//
// Thread safety: none (Store). Any number of hosts and Leaf servers may use the tables.
//
// Invariants: leaf_alloc, which several hosts write, is only changed relatively and by packets that
// need nothing from this host in between. A range whose COMMIT did not answer is never used, even
// if it turns out to be in the journal.
class MysqlStore final : public SqlStore, public TermStore {
 public:
  explicit MysqlStore(const MysqlStoreOptions& options);
  ~MysqlStore() override;

  Status Open() override;
  // Opens it as a StoreReader only: nothing is written.
  [[nodiscard]] Status OpenToRead();
  // Opens it as a JournalStore only: it takes no leases and is no sign of life of the host.
  [[nodiscard]] Status OpenToKeepJournal();
  void RequireExisting() override { may_create_ = false; }
  void AllowNew() override {
    may_create_ = true;
    next_connect_ = {};
  }
  Status CheckCurrent() override;
  std::uint64_t generation() const override { return generation_; }
  TermStore* terms() override { return this; }
  Result<std::string> Incarnation() override;

  Result<LeaseResults> TakeLeases(const std::vector<LeaseRequest>& requests) override;

  Result<std::optional<StoreFacts::Clock>> CompareClocks() override;

  Result<TagResults> FindTags(const std::vector<std::string>& tags) override;
  Result<TagResults> FindTagsCached(const std::vector<std::string>& tags) override;
  Result<StoreFacts> Inspect() override;

  std::string DisplayUrl() const override { return options_.url.Display(); }

  std::uint64_t connection() const override { return connection_; }
  Result<TermView> ReadTerm(std::optional<std::uint64_t> noted) override;
  Result<bool> BeginTerm(const TermRow& found, const Term& term,
                         const WitnessList& active) override;
  Result<bool> VoidTerm(const TermRow& found) override;
  Result<bool> Push(const TermRow& found, const std::vector<TagMark>& notes) override;
  Result<bool> WriteWitness(const TermRow& found, const WitnessRow& row,
                            std::uint64_t was) override;
  Result<std::uint64_t> Raise(const std::vector<CeilingRaise>& raises) override;
  Result<std::vector<Ceiling>> ReadCeilings(const std::vector<std::string>& tags) override;
  Result<bool> Activate(const TermRow& found, std::uint64_t after, std::uint64_t epoch) override;
  Result<bool> SetLists(const TermRow& found, const WitnessList& active, const WitnessList& wanted,
                        std::uint64_t epoch) override;
  Result<std::vector<Candidate>> ListCandidates() override;

 private:
  // `run`: MakeRun() differs for two objects with one state dir.
  MysqlStore(const MysqlStoreOptions& options, const std::string& run);

  // The rest of a lease that was handed back, under that lease's token.
  struct ReturnedTail {
    std::string token;
    shm::IdRange ids;
  };
  // The known state of a tag before a lease. The lease's statements check all of it again.
  struct TagState {
    TagRecord record;
    std::uint64_t tombstone = 0;         // ids below it are not this tag's, or not any more
    std::vector<ReturnedTail> returned;  // this host's, lowest first

    MonotonicTime read_at{};

    [[nodiscard]] const ReturnedTail* LowestFor(const LeaseRequest& request) const;
    [[nodiscard]] bool IsUsedUp() const noexcept { return record.next_id > record.max_id; }
  };
  using TagStates = std::map<std::string, Result<TagState>, std::less<>>;
  // A planned advance of max_id.
  struct Advance {
    const LeaseRequest* request = nullptr;
    std::uint64_t seen = 0;    // max_id as read; the statement requires at least this
    std::uint64_t lowest = 0;  // the lowest id to lease
    std::uint64_t count = 0;
    std::uint64_t most = 0;  // the highest max_id: the end of the tag, or its ceiling
  };

  std::unique_ptr<SqlQuery> Query(const std::string& text, const SqlValues& values) override;
  Result<std::vector<std::uint64_t>> Transact(const std::vector<SqlStatement>& statements) override;
  Status ChangeIds(const std::function<Status()>& body, const char* /*point*/) override {
    return body();
  }
  Status Snapshot(const std::function<Status()>& body) override;
  Status CheckNotSetBack() override;
  void NoteChange(const std::string& tag, std::uint64_t /*least*/) override { states_.erase(tag); }
  std::uint64_t largest_max_id() const override { return largest_max_id_; }

  [[nodiscard]] Status NotOpen() const;
  // Drops the connection if it can no longer be used.
  [[nodiscard]] Status Failed(Status status);
  [[nodiscard]] Status WhatIsMissing(const Status& status);

  [[nodiscard]] Status OpenAt(const MysqlEndpoint& endpoint);
  // Of a store that takes no leases.
  [[nodiscard]] Status OpenBeside(const std::string& session);
  [[nodiscard]] Status OpenBesideAt(const MysqlEndpoint& endpoint, const std::string& session);
  [[nodiscard]] Status CheckSettings();
  [[nodiscard]] Status Recognise();
  [[nodiscard]] Result<std::uint64_t> ReadStart();
  [[nodiscard]] Result<std::string> MembersOfCluster();
  [[nodiscard]] std::string IsAsFound(const TermRow& found) const;
  [[nodiscard]] std::string LockFound(const TermRow& found) const;
  [[nodiscard]] Result<bool> UpdateTerm(const std::string& update);
  [[nodiscard]] Status FailedOrUnknown(const Status& status);
  [[nodiscard]] std::string IdentityOfConnection() const;
  void LearnTablesFrom(const std::string& identity);
  [[nodiscard]] Status JoinCluster(const MysqlResult& status);
  [[nodiscard]] Status CheckCluster(const MysqlResult& status);
  // Empty: it is not meant for a group.
  [[nodiscard]] Result<std::string> CheckGroup(std::map<std::string, std::string>& variables);
  [[nodiscard]] std::string RaiseRows(const std::vector<CeilingRaise>& raises) const;
  [[nodiscard]] std::string SelectIsCurrent() const;
  [[nodiscard]] std::string HasOwnRows() const;
  // Finds out which tables there are, and whether they differ from those that were open last.
  [[nodiscard]] Status RecogniseTables();
  [[nodiscard]] Result<bool> ReadTables();
  // To be called when a guard did not hold. Not Ok: the tables are the reason, and the connection
  // ends.
  [[nodiscard]] Status CheckTables();
  // The same for connection, server, tables and what this host last wrote there.
  [[nodiscard]] Status CheckIdentity();
  // The same for everything that guards a lease, except its tag's row. If only the term has
  // changed, the connection stays.
  [[nodiscard]] Status CheckGuard();
  // The errors for tables that were set back and for a read-only server; the connection ends.
  [[nodiscard]] Status SetBack();
  [[nodiscard]] Status ReadOnly();
  [[nodiscard]] static bool IsOff(const std::optional<std::string>& value);

  // The result has an entry for every one of `tags`.
  [[nodiscard]] Result<TagStates> ReadTags(const std::vector<std::string>& tags);
  [[nodiscard]] Result<TagStates> ReadTogether(const std::vector<std::string>& tags);
  [[nodiscard]] Result<TagState> ReadState(const MysqlRow& row) const;
  // Uses states that were read a moment ago, and reads the others now.
  [[nodiscard]] Result<TagStates> StatesOf(const std::vector<std::string>& tags);
  // Requests that are taken apart from others, and their places among all.
  struct LeasePart {
    std::vector<LeaseRequest> requests;
    std::vector<std::size_t> places;

    void Add(const LeaseRequest& request, std::size_t place) {
      requests.push_back(request);
      places.push_back(place);
    }
    void PutInto(LeaseResults& all, LeaseResults& taken) const {
      for (std::size_t i = 0; i < places.size(); ++i) all[places[i]] = std::move(taken[i]);
    }
  };
  [[nodiscard]] Result<LeaseResults> TakeTogether(const std::vector<LeaseRequest>& requests);
  [[nodiscard]] Result<LeaseResults> TakeInTurn(const std::vector<LeaseRequest>& requests);
  [[nodiscard]] Result<LeaseResults> TakeApart(const std::vector<LeaseRequest>& requests);
  [[nodiscard]] bool IsApart(const std::string& tag);
  void NoteLocked(const std::vector<LeaseRequest>& requests);
  void TakeTurns();  // from now on, for a while
  [[nodiscard]] bool IsContended() const;
  [[nodiscard]] Result<bool> AwaitTurn();
  void EndTurn();
  [[nodiscard]] static Status IsLocked(const std::string& tag);
  [[nodiscard]] Result<LeaseResults> Singly(const std::vector<LeaseRequest>& requests);
  [[nodiscard]] Result<Lease> TakeSingly(const LeaseRequest& request);
  [[nodiscard]] std::optional<std::uint64_t> NextIdOf(const std::string& tag) const;
  [[nodiscard]] Result<LeaseResults> TakeOnce(const std::vector<LeaseRequest>& requests);
  [[nodiscard]] std::string IsGuarded() const;
  [[nodiscard]] static Result<Advance> Plan(const LeaseRequest& request, const TagState& state);
  [[nodiscard]] Result<LeaseResults> RunAdvances(const std::vector<Advance>& advances);
  [[nodiscard]] Result<Lease> Granted(const Advance& advance, shm::IdRange ids);
  [[nodiscard]] Status LeaseFailed(const Status& status, const std::vector<std::string>& tokens,
                                   const std::string& tag);
  [[nodiscard]] Result<Lease> TakeBack(const LeaseRequest& request, const ReturnedTail& tail);
  [[nodiscard]] Status GiveUp(const std::vector<Result<Lease>>& taken, Status status);

  [[nodiscard]] std::string OwnsWorker(const LeaseRequest& request) const;

  const MysqlStoreOptions options_;
  std::unique_ptr<MysqlDb> db_;  // null while not open
  bool may_create_ = true;
  bool is_beside_ = false;  // it takes no leases and has no row of its own
  std::uint64_t generation_ = 0;
  std::string incarnation_;
  std::uint64_t largest_max_id_ = shm::kMaxLimit;  // that leaf_alloc's column can store
  ServerIdentity server_;
  std::string view_;  // a cluster's id and the number of its present membership
  // The tables that were open at this server. While a transaction has touched a table, no other
  // session can alter or replace it.
  MysqlTables tables_;
  HostRow host_row_;
  std::uint64_t connection_ = 0;  // its number
  TermRow term_;                  // as it was read last; guards leases
  // The token of a lease that the open data set has in its journal; empty: none yet.
  std::string last_token_;
  std::string next_in_row_;  // the tag that Singly() begins with
  // Tags that are taken apart, and until when: their rows were seen locked lately, or refused a
  // lease.
  using TagTimes = std::map<std::string, MonotonicTime, std::less<>>;
  static constexpr std::chrono::seconds kApart{10};
  TagTimes locked_;
  TagTimes refused_;
  MonotonicTime next_look_{};  // at their rows
  MonotonicTime next_wait_{};  // for one of them
  std::size_t waits_ = 0;
  MonotonicTime contended_to_{};  // until then, this host takes turns with others
  bool can_take_turns_ = true;    // the server has GET_LOCK(), as far as is known
  bool has_turn_ = false;
  std::string hangs_;             // the connection that this host waited for in vain
  bool can_skip_locked_ = true;   // the server knows SKIP LOCKED, as far as is known
  MonotonicTime next_connect_{};  // no try before this
  Status last_refusal_;
  TagStates states_;  // as last read or leased; most are out of date
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_MYSQL_MYSQL_STORE_H_
