// SPDX-License-Identifier: Apache-2.0
//
// The database servers of a simulated cluster, the network between them and the hosts, and the
// Store that a simulated idd uses. A packet travels, is carried out in one moment, and its answer
// travels back; each part may be lost, so a COMMIT may be done without an answer.
#ifndef IDD_TESTS_SIMULATION_SERVERS_H_
#define IDD_TESTS_SIMULATION_SERVERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data_set.h"
#include "platform/host_id.h"
#include "store/mysql/server_identity.h"
#include "store/store.h"
#include "world.h"

namespace idd::simulation {

// A committed lease, as the oracle must know it: no server's loss of it undoes what a host may do
// with it.
using OnLeased = std::function<void(const Lease&, const std::string& host)>;

// A server with the tables of one data set.
struct Server {
  std::string name;
  std::uint64_t number = 0;
  DataSet data;
  Nanos started = 0;
  std::uint64_t life = 1;         // rises with every start: sessions end with it
  std::uint64_t connections = 0;  // so far in this life
  std::uint64_t tables = 1;       // creation time of the tables: a restored dump has another
  bool is_up = true;
  bool is_read_only = false;
  bool hangs = false;  // SIGSTOP: takes packets and answers nothing
};

// How the hosts reach the servers.
enum class Access {
  kList,      // the URL names all servers
  kBalancer,  // one address; a connection stays with its server
  kProxy,     // one address; each packet of a session goes to the server of the moment
};

// One host's way to the servers.
struct Link {
  bool is_cut = false;
  Nanos latency = 100 * kMicrosecond;
  // Out of 100 packets: how many are lost on the way, and how many answers.
  unsigned lost = 0;
};

// The servers: the first is the primary at the beginning, and each commit of the primary reaches
// the others later.
class Cluster {
 public:
  Cluster(Access access, std::size_t servers, OnLeased on_leased);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  [[nodiscard]] Access access() const noexcept { return access_; }
  [[nodiscard]] std::vector<std::unique_ptr<Server>>& servers() noexcept { return servers_; }
  [[nodiscard]] Server& primary() noexcept { return *servers_[primary_]; }
  // The servers that a new connection tries, in order.
  [[nodiscard]] std::vector<Server*> Endpoints();

  // Carries out a change on the primary and sends it to the replicas. The change must do the same
  // on each of them.
  void Commit(Server& server, std::function<void(DataSet&)> change);
  void Leased(const Lease& lease, const std::string& host) const { on_leased_(lease, host); }

  // How far replicas are behind from now on.
  void SetLag(Nanos lag) noexcept { lag_ = lag; }
  // The best or any replica becomes the primary. What has not reached it is lost.
  void Promote(std::size_t server);
  [[nodiscard]] std::size_t primary_number() const noexcept { return primary_; }
  // Makes a server a replica of the primary again, with all of its data.
  void Reseed(std::size_t server);
  void Kill(std::size_t server);
  void Start(std::size_t server);

 private:
  const Access access_;
  const OnLeased on_leased_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::size_t primary_ = 0;
  Nanos lag_ = 0;
  std::uint64_t term_ = 0;  // rises with every promotion: later changes are another line
  std::vector<Nanos> applied_until_;
  std::vector<std::uint64_t> follows_;  // the term that a replica follows
};

// The Store of one run of a simulated idd. It keeps what MysqlStore keeps, and guards its
// transactions as MysqlStore does.
class SimulatedStore final : public daemon::Store, public daemon::FenceStore {
 public:
  SimulatedStore(Cluster& cluster, Link& link, daemon::HostIdentity host);
  ~SimulatedStore() override;

  Status Open() override;
  void RequireExisting() override { may_create_ = false; }
  Status CheckCurrent() override;
  std::uint64_t generation() const override { return generation_; }
  daemon::FenceStore* fence() override { return this; }
  Result<std::string> Incarnation() override;

  Result<LeaseResults> TakeLeases(const std::vector<LeaseRequest>& requests) override;
  Status CloseLeases(const std::vector<LeaseClosure>& closures) override;
  Result<daemon::ReturnOutcome> ReturnTail(const LeaseClosure& closure) override;
  Result<std::vector<LeaseRecord>> AbandonActive(const std::vector<std::string>& except) override;
  Result<daemon::Reconciliation> Reconcile(const daemon::HostMemory& memory) override;

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
  Result<daemon::Ledger> ReadLedger(const std::string& tag) override { return ReadLists(tag); }
  Result<daemon::StoreFacts> Inspect() override;
  std::string DisplayUrl() const override { return "mysql://simulated/"; }

  Result<daemon::FenceView> ReadFence(std::uint64_t noted) override;
  std::uint64_t data_set() const override { return generation_; }
  bool is_new() const override { return is_new_; }
  std::optional<std::chrono::seconds> uptime() const override;
  const std::optional<FenceMember>& found() const override { return found_; }
  std::uint64_t beat() const override { return member_beat_; }
  Status SetState(MemberState state, std::chrono::seconds silence) override;
  Status SetNoted(std::uint64_t epoch) override;
  Status Confirm() override;
  Status Admit(const std::vector<FenceMember>& members) override;
  Status Raise(const std::vector<Ceiling>& wanted) override;
  Result<std::vector<Ceiling>> Activate(const std::vector<std::string>& tags) override;
  Result<bool> PutOut(const FenceMember& member) override;

 private:
  struct Session {
    Server* server = nullptr;
    std::uint64_t life = 0;
    std::uint64_t connection = 0;
  };
  // What a statement that must find this run's state checks at the server.
  struct Guard {
    Session session;
    std::string host;
    std::string run;
    std::string incarnation;
    std::string last_token;
    std::uint64_t beat = 0;
    std::set<std::uint64_t> tables;

    [[nodiscard]] bool HasTables(const Server& server) const {
      return tables.contains(server.tables);
    }
    [[nodiscard]] bool IsMember(const Server& server) const;
    [[nodiscard]] bool IsCurrent(const Server& server) const;
  };
  template <typename T>
  [[nodiscard]] Result<T> Send(std::function<Result<T>(Server&)> packet);
  template <typename T>
  [[nodiscard]] Result<T> SendTo(Server* server, std::function<Result<T>(Server&)> packet);
  [[nodiscard]] Guard MakeGuard() const;
  [[nodiscard]] Status OpenAt(Server& endpoint);
  [[nodiscard]] Status ClaimHost();
  [[nodiscard]] Status ClaimMember();
  [[nodiscard]] Status AbandonLost();
  [[nodiscard]] Status UpdateMember(std::function<void(FenceMember&)> update);
  [[nodiscard]] Status Drop(Status status);
  [[nodiscard]] Status SetBack();
  [[nodiscard]] Status NotOpen() const;
  [[nodiscard]] static Status ReadOnly();

  Cluster& cluster_;
  Link& link_;
  const daemon::HostIdentity host_;
  const std::string run_;
  std::optional<Session> session_;
  bool may_create_ = true;
  bool is_new_ = false;
  std::uint64_t generation_ = 0;
  daemon::ServerIdentity identity_;
  std::set<std::uint64_t> tables_;
  std::string data_set_name_;
  std::string incarnation_;
  std::string last_token_;
  std::uint64_t host_beat_ = 0;
  MonotonicTime host_beaten_at_{};
  std::optional<FenceMember> found_;
  std::uint64_t member_beat_ = 0;
  std::set<std::string> lost_;
  std::set<std::string> restored_;
  MonotonicTime next_connect_{};
  Status last_refusal_;
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_SERVERS_H_
