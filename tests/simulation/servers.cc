// SPDX-License-Identifier: Apache-2.0
#include "servers.h"

#include <algorithm>
#include <string>
#include <utility>

namespace idd::simulation {

Cluster::Cluster(Access access, std::size_t servers, OnLeased on_leased)
    : access_(access),
      on_leased_(std::move(on_leased)),
      applied_until_(servers, 0),
      follows_(servers, 0),
      seeds_(servers, 0) {
  for (std::size_t i = 0; i < servers; ++i) {
    auto server = std::make_unique<Server>();
    server->name = std::string("db") + static_cast<char>('a' + i);
    server->number = i;
    server->is_read_only = i != 0;
    servers_.push_back(std::move(server));
  }
}

Server& Cluster::PrimaryOf(const Link& link) {
  if (!link.stays_at.has_value()) return primary();
  Server& other = *servers_[*link.stays_at];
  return other.is_left_in_use && other.is_up ? other : primary();
}

std::vector<Server*> Cluster::Endpoints(const Link& link) {
  Server& first = PrimaryOf(link);
  if (access_ != Access::kList) return {&first};
  std::vector<Server*> all;
  for (const auto& server : servers_) all.push_back(server.get());
  if (first.is_left_in_use) {
    std::erase(all, &first);
    all.insert(all.begin(), &first);
  }
  return all;
}

bool Cluster::is_any_left_in_use() const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [](const auto& server) { return server->is_left_in_use; });
}

void Cluster::Leased(const Server& server, const Lease& lease, const std::string& host) {
  if (server.number != primary_) {
    was_leased_beside_ = true;
  } else if (was_leased_beside_) {
    was_leased_beside_ = false;
    World::Get().Met("two primaries were in use");
  }
  on_leased_(lease, host, server.data.OwnerOf(lease.tag));
}

void Cluster::Commit(Server& server, std::function<void(DataSet&)> change) {
  change(server.data);
  if (server.number != primary_) return;
  for (const auto& replica : servers_) {
    const std::size_t i = replica->number;
    if (i == primary_ || follows_[i] != promotions_) continue;
    applied_until_[i] = std::max(applied_until_[i], World::Get().now() + lag_);
    World::Get().At(applied_until_[i],
                    [this, i, change, promotion = promotions_, seed = seeds_[i]] {
                      if (follows_[i] == promotion && seeds_[i] == seed && i != primary_)
                        change(servers_[i]->data);
                    });
  }
}

// The other servers no longer follow: what they have not applied never reaches them. Nor does what
// is on its way to the new primary, even when another one is promoted later.
void Cluster::Promote(std::size_t server, OldPrimary old) {
  servers_[primary_]->is_left_in_use = old == OldPrimary::kStaysInUse;
  primary_ = server;
  follows_[server] = ++promotions_;
  servers_[server]->is_read_only = false;
  servers_[server]->is_left_in_use = false;
}

void Cluster::Reseed(std::size_t server) {
  if (server == primary_) return;
  Server& replica = *servers_[server];
  replica.data = primary().data;
  replica.is_read_only = true;
  replica.is_left_in_use = false;
  replica.hangs = false;
  ++replica.life;
  replica.connections = 0;
  replica.started = World::Get().now();
  replica.is_up = true;
  follows_[server] = promotions_;
  ++seeds_[server];  // its data has what was on the way
}

void Cluster::Kill(std::size_t server) {
  servers_[server]->is_up = false;
  servers_[server]->hangs = false;
}

void Cluster::Start(std::size_t server) {
  Server& started = *servers_[server];
  if (started.is_up) return;
  started.is_up = true;
  started.started = World::Get().now();
  ++started.life;
  started.connections = 0;
  // As a manager of failovers configures it.
  if (server != primary_ && !started.is_left_in_use) started.is_read_only = true;
}

}  // namespace idd::simulation
