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

std::vector<Server*> Cluster::Endpoints() {
  if (access_ != Access::kList) return {&primary()};
  std::vector<Server*> all;
  for (const auto& server : servers_) all.push_back(server.get());
  return all;
}

void Cluster::Commit(Server& server, std::function<void(DataSet&)> change) {
  change(server.data);
  if (server.number != primary_) return;
  for (const auto& replica : servers_) {
    const std::size_t i = replica->number;
    if (i == primary_ || follows_[i] != term_) continue;
    applied_until_[i] = std::max(applied_until_[i], World::Get().now() + lag_);
    World::Get().At(applied_until_[i], [this, i, change, term = term_, seed = seeds_[i]] {
      if (follows_[i] == term && seeds_[i] == seed && i != primary_) change(servers_[i]->data);
    });
  }
}

// The other servers no longer follow: what they have not applied never reaches them.
void Cluster::Promote(std::size_t server) {
  primary_ = server;
  ++term_;
  servers_[server]->is_read_only = false;
}

void Cluster::Reseed(std::size_t server) {
  if (server == primary_) return;
  Server& replica = *servers_[server];
  replica.data = primary().data;
  replica.is_read_only = true;
  replica.hangs = false;
  ++replica.life;
  replica.connections = 0;
  replica.started = World::Get().now();
  replica.is_up = true;
  follows_[server] = term_;
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
  // As a manager of failovers configures it. Nothing covers an old primary that comes back as one.
  if (server != primary_) started.is_read_only = true;
}

}  // namespace idd::simulation
