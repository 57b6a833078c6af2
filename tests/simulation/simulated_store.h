// SPDX-License-Identifier: Apache-2.0
//
// The Store that a simulated idd uses. A packet travels, is carried out in one moment, and its
// answer travels back; each part may be lost, so a COMMIT may be done without an answer.
#ifndef IDD_TESTS_SIMULATION_SIMULATED_STORE_H_
#define IDD_TESTS_SIMULATION_SIMULATED_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data_set.h"
#include "platform/host_id.h"
#include "servers.h"
#include "store/mysql/mysql_tables.h"
#include "store/store.h"
#include "store/term_store.h"
#include "world.h"

namespace idd::simulation {

// The Store of one run of a simulated idd. It keeps what MysqlStore keeps, and guards its
// transactions as MysqlStore does.
class SimulatedStore final : public daemon::Store, public daemon::TermStore {
 public:
  // `on_step`: called right before each packet and right after its answer.
  SimulatedStore(Cluster& cluster, Link& link, daemon::HostIdentity host,
                 std::function<void()> on_step);
  ~SimulatedStore() override;

  Status Open() override;
  void RequireExisting() override { may_create_ = false; }
  void AllowNew() override { may_create_ = true; }
  Status CheckCurrent() override;
  std::uint64_t generation() const override { return generation_; }
  daemon::TermStore* terms() override { return this; }
  Result<std::string> Incarnation() override;

  Result<LeaseResults> TakeLeases(const std::vector<LeaseRequest>& requests) override;
  Status CloseLeases(const std::vector<LeaseClosure>& closures) override;
  Result<daemon::ReturnOutcome> ReturnTail(const LeaseClosure& closure) override;
  Result<std::vector<LeaseRecord>> AbandonActive(const std::vector<std::string>& except) override;
  Result<daemon::Reconciliation> Reconcile(const daemon::HostMemory& memory) override;

  Result<std::vector<WorkerRecord>> ListWorkers(const std::string& tag) override;
  Result<bool> TakeWorker(const WorkerChoice& choice) override;
  Result<std::optional<daemon::StoreFacts::Clock>> CompareClocks() override;

  Result<std::vector<TagRecord>> ListTags() override;
  Result<TagResults> FindTags(const std::vector<std::string>& tags) override;
  Result<TagRecord> CreateTag(const daemon::NewTag& tag) override;
  Result<TagRecord> ChangeTag(const daemon::TagChange& change) override;
  Result<TagRecord> LiftTag(const std::string& tag, std::uint64_t to) override;
  Result<std::uint64_t> UsedLimit(const std::string& tag) override;
  Status DeleteTag(const std::string& tag) override;

  Result<std::vector<LeaseRecord>> ListLeases(const daemon::LeaseFilter& filter) override;
  Result<std::vector<daemon::ReturnedRange>> ListReturned(
      const std::optional<std::string>& tag) override;
  Result<std::vector<daemon::HostRecord>> ListHosts() override;
  Result<std::set<std::string>> LedgerTags() override;
  Result<daemon::Ledger> ReadLedger(const std::string& tag, std::size_t most) override {
    return ReadLists(tag, most);
  }
  Result<daemon::StoreFacts> Inspect() override;
  std::string DisplayUrl() const override { return "mysql://simulated/"; }

  std::uint64_t connection() const override { return connection_; }
  Result<daemon::TermView> ReadTerm(std::optional<std::uint64_t> noted) override;
  Result<bool> BeginTerm(const daemon::TermRow& found, const Term& term,
                         const WitnessList& active) override;
  Result<bool> VoidTerm(const daemon::TermRow& found) override;
  Result<bool> Push(const daemon::TermRow& found, const std::vector<TagMark>& notes) override;
  Result<bool> WriteWitness(const daemon::TermRow& found, const daemon::WitnessRow& row,
                            std::uint64_t was) override;
  Result<std::uint64_t> Raise(const std::vector<CeilingRaise>& raises) override;
  Result<std::vector<Ceiling>> ReadCeilings(const std::vector<std::string>& tags) override;
  Result<bool> Activate(const daemon::TermRow& found, std::uint64_t after,
                        std::uint64_t epoch) override;
  Result<bool> SetLists(const daemon::TermRow& found, const WitnessList& active,
                        const WitnessList& wanted, std::uint64_t epoch) override;
  Result<std::vector<daemon::Candidate>> ListCandidates() override;

 private:
  // All tables of a data set are made at the same time.
  static constexpr const char* kTables = "all";

  struct Session {
    Server* server = nullptr;
    std::uint64_t life = 0;
    std::uint64_t connection = 0;
    std::uint64_t moves = 0;  // of the link, before it
    // When the server last took a packet of it. One that was under way when the server was set back
    // finds a connection as the snapshot has it, so the packets share this with the session.
    std::shared_ptr<Nanos> used = std::make_shared<Nanos>(0);

    [[nodiscard]] bool IsReset() const {
      return life != server->life || (*used > server->set_back_to && *used < server->set_back_at);
    }
  };
  // Why a guarded statement has changed nothing.
  enum class Refusal {
    kNone,
    kReadOnly,
    kOtherServer,
    kSetBack,  // the data set lacks what this host has written, or another host has its name
    kOtherTerm,
  };
  // The state of this run that a guarded statement must find at the server.
  struct Guard {
    Session session;
    std::string host;
    std::string run;
    std::string incarnation;
    std::string last_token;
    std::uint64_t beat = 0;
    daemon::MysqlTables tables;
    daemon::TermRow term;

    [[nodiscard]] Refusal Check(const Server& server) const;
    [[nodiscard]] Refusal ForTags(const Server& server) const;
    [[nodiscard]] Refusal ForLease(const Server& server) const;
  };
  template <typename T>
  struct Guarded {
    Refusal refusal = Refusal::kNone;
    T value{};
  };
  template <typename T>
  [[nodiscard]] Result<T> Send(std::function<Result<T>(Server&)> packet);
  template <typename T>
  [[nodiscard]] Result<T> SendTo(Server* server, std::function<Result<T>(Server&)> packet);
  // A packet that changes the data set, which a read-only server refuses.
  template <typename T>
  [[nodiscard]] Result<T> Change(std::function<Result<T>(DataSet&)> change);
  [[nodiscard]] bool IsBroken() const {
    return session_->IsReset() || session_->moves != link_.moves;
  }
  [[nodiscard]] Guard MakeGuard() const;
  [[nodiscard]] Status OpenAt(Server& endpoint);
  [[nodiscard]] Status ClaimHost();
  [[nodiscard]] Status AbandonLost();
  // A change of the term's tables, as found.
  [[nodiscard]] Result<bool> ChangeAsFound(
      const daemon::TermRow& found,
      std::function<bool(DataSet& data, const TermEntry& found)> change);
  [[nodiscard]] Status Refused(Refusal refusal);
  [[nodiscard]] std::string IdentityOfConnection() const { return server_ + read_tables_.Times(); }
  [[nodiscard]] Status Drop(Status status);
  [[nodiscard]] Status SetBack();
  [[nodiscard]] Status NotOpen() const;
  [[nodiscard]] static Status ReadOnly();

  Cluster& cluster_;
  Link& link_;
  const daemon::HostIdentity host_;
  const std::function<void()> on_step_;
  const std::string run_;
  std::optional<Session> session_;
  bool may_create_ = true;
  std::uint64_t generation_ = 0;
  std::uint64_t connection_ = 0;     // how often it was opened
  std::string server_;               // the server's name and start
  daemon::MysqlTables tables_;       // known while the server lives
  daemon::MysqlTables read_tables_;  // over this connection, and as other hosts have seen them
  daemon::TermRow term_;             // as it was read last; guards leases
  std::string incarnation_;
  std::string last_token_;
  std::uint64_t host_beat_ = 0;
  MonotonicTime host_beaten_at_{};
  std::set<std::string> lost_;
  std::set<std::string> restored_;
  MonotonicTime next_connect_{};
  Status last_refusal_;
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_SIMULATED_STORE_H_
