// SPDX-License-Identifier: Apache-2.0
//
// The database servers of a simulated cluster and the network between them and the hosts.
#ifndef IDD_TESTS_SIMULATION_SERVERS_H_
#define IDD_TESTS_SIMULATION_SERVERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data_set.h"
#include "world.h"

namespace idd::simulation {

// Reports a committed lease to the oracle: its host may use the ids even if the server loses it.
// `owner`: of the worker id at that moment, if the lease is of a counter.
using OnLeased = std::function<void(const Lease&, const std::string& host,
                                    const std::optional<std::string>& owner)>;

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
  // It was the primary, and is still in use beside the present one.
  bool is_left_in_use = false;
  // The last time that the machine was set back to a snapshot of its memory, and when that was
  // made. Connections that were used in between are broken; the others live on.
  Nanos set_back_at = 0;
  Nanos set_back_to = 0;
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
  std::set<std::uint64_t> cut_from;  // numbers of servers that are out of reach
  // The server that this host uses while it is left in use: the first in its list, or where its
  // balancer or proxy leads.
  std::optional<std::uint64_t> stays_at;
  std::uint64_t moves = 0;  // so far: each breaks the connections
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
  // The primary for the host of that link.
  [[nodiscard]] Server& PrimaryOf(const Link& link);
  // The servers that its new connection tries, in order.
  [[nodiscard]] std::vector<Server*> Endpoints(const Link& link);

  // Carries out a change on the primary and sends it to the replicas. The change must do the same
  // on each of them.
  void Commit(Server& server, std::function<void(DataSet&)> change);
  // The same; returns what the change has returned at `server`.
  template <typename T>
  T CommitFor(Server& server, std::function<T(DataSet&)> change) {
    std::optional<T> result;
    Commit(server, [&server, &result, change = std::move(change)](DataSet& data) {
      T done = change(data);
      if (&data == &server.data) result = std::move(done);
    });
    return *std::move(result);
  }
  void Leased(const Server& server, const Lease& lease, const std::string& host);

  // How far replicas are behind from now on.
  void SetLag(Nanos lag) noexcept { lag_ = lag; }
  // Makes a replica the primary, however far it is behind. What has not reached it is lost.
  enum class OldPrimary { kEnds, kStaysInUse };
  void Promote(std::size_t server, OldPrimary old);
  [[nodiscard]] bool is_any_left_in_use() const;
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
  bool was_leased_beside_ = false;  // since the last lease of the primary
  std::uint64_t promotions_ = 0;    // later changes are another line
  std::vector<Nanos> applied_until_;
  std::vector<std::uint64_t> follows_;  // the promotion that a replica follows
  std::vector<std::uint64_t> seeds_;    // how often it was made a replica again
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_SERVERS_H_
