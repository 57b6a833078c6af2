// SPDX-License-Identifier: Apache-2.0
#include "simulated_store.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "platform/random.h"
#include "simulated_packet.h"
#include "store/mysql/host_row.h"

namespace idd::simulation {
namespace {

using daemon::RandomToken;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kConnectPause(1000);
constexpr seconds kHostBeatEvery(20);
constexpr Nanos kHostSilentFor = 60 * kSecond;

}  // namespace

SimulatedStore::SimulatedStore(Cluster& cluster, Link& link, daemon::HostIdentity host,
                               std::function<void()> on_step)
    : cluster_(cluster),
      link_(link),
      host_(std::move(host)),
      on_step_(std::move(on_step)),
      run_(daemon::MakeRun(host_.run_number)) {}

// A clean end frees the host's name.
SimulatedStore::~SimulatedStore() {
  if (!session_.has_value() || Process::Current() == nullptr || Process::Current()->is_dead()) {
    return;
  }
  try {
    static_cast<void>(Send<bool>(
        [&cluster = cluster_, host = host_.id, run = run_](Server& server) -> Result<bool> {
          cluster.Commit(server, [host, run](DataSet& data) {
            const auto row = data.hosts.find(host);
            if (row != data.hosts.end() && row->second.run == run) row->second.boot_id.clear();
          });
          return true;
        }));
  } catch (const Killed&) {
    // In a destructor; the process ends.
  }
}

Status SimulatedStore::NotOpen() const { return {Code::kUnavailable, "the allocator is not open"}; }

Status SimulatedStore::ReadOnly() { return {Code::kUnavailable, "the server is read-only"}; }

Status SimulatedStore::Drop(Status status) {
  session_.reset();
  return status;
}

Status SimulatedStore::SetBack() {
  session_.reset();
  ++generation_;
  return {Code::kUnavailable, "the tables were set back or replaced"};
}

Status SimulatedStore::Refused(Refusal refusal) {
  switch (refusal) {
    case Refusal::kReadOnly:
      return Drop(ReadOnly());
    case Refusal::kOtherServer:
      return Drop({Code::kUnavailable, "another server answers"});
    case Refusal::kSetBack:
      return SetBack();
    default:
      return {Code::kUnavailable, "the term has changed"};
  }
}

SimulatedStore::Refusal SimulatedStore::Guard::Check(const Server& server) const {
  if (session.server != &server || session.life != server.life) return Refusal::kOtherServer;
  if (server.is_read_only) return Refusal::kReadOnly;
  return daemon::MysqlTables(tables).Add(kTables, server.tables) ? Refusal::kSetBack
                                                                 : Refusal::kNone;
}

SimulatedStore::Refusal SimulatedStore::Guard::ForTags(const Server& server) const {
  const Refusal refusal = Check(server);
  if (refusal != Refusal::kNone) return refusal;
  const auto row = server.data.hosts.find(host);
  const bool is_as_left = server.data.incarnation == incarnation &&
                          row != server.data.hosts.end() && row->second.run == run &&
                          row->second.beat == beat &&
                          (last_token.empty() || server.data.FindLease(last_token) != nullptr);
  return is_as_left ? Refusal::kNone : Refusal::kSetBack;
}

// Rule 5 of ADR 0029. TakeLease() looks at the ceiling.
SimulatedStore::Refusal SimulatedStore::Guard::ForLease(const Server& server) const {
  const Refusal refusal = ForTags(server);
  if (refusal != Refusal::kNone) return refusal;
  const TermEntry& now = server.data.term;
  const bool is_term = now.term == term.term && now.identity == term.identity && term.is_current;
  return is_term ? Refusal::kNone : Refusal::kOtherTerm;
}

SimulatedStore::Guard SimulatedStore::MakeGuard() const {
  return {.session = session_.value_or(Session{}),
          .host = host_.id,
          .run = run_,
          .incarnation = incarnation_,
          .last_token = last_token_,
          .beat = host_beat_,
          .tables = tables_,
          .term = term_};
}

// --- opening

Status SimulatedStore::Open() {
  if (MonotonicClock::now() < next_connect_) return last_refusal_;
  session_.reset();
  last_token_.clear();
  Status refusal(Code::kUnavailable, "no server");
  const std::vector<Server*> endpoints = cluster_.Endpoints(link_);
  for (Server* const endpoint : endpoints) {
    Status status = OpenAt(*endpoint);
    if (status.ok()) return status;
    session_.reset();
    refusal = std::move(status);
  }
  next_connect_ = MonotonicClock::now() + kConnectPause * static_cast<int>(endpoints.size());
  last_refusal_ = refusal;
  return refusal;
}

Status SimulatedStore::OpenAt(Server& endpoint) {
  struct Greeting {
    std::string server;
    std::uint64_t life = 0;
    std::uint64_t connection = 0;
    Nanos answered = 0;
    std::string incarnation;
  };
  const Result<Greeting> greeting =
      SendTo<Greeting>(&endpoint, [](Server& server) -> Result<Greeting> {
        if (server.is_read_only) return ReadOnly();
        return Greeting{.server = server.name + " " + std::to_string(server.started),
                        .life = server.life,
                        .connection = ++server.connections,
                        .answered = World::Get().now(),
                        .incarnation = server.data.incarnation};
      });
  if (!greeting.ok()) return {Code::kUnavailable, greeting.status().message()};
  const Greeting& hello = greeting.value();
  session_ = Session{.server = &endpoint,
                     .life = hello.life,
                     .connection = hello.connection,
                     .moves = link_.moves,
                     .used = std::make_shared<Nanos>(hello.answered)};
  if (server_ != hello.server) tables_ = {};
  server_ = hello.server;
  if (hello.incarnation.empty()) {
    if (!may_create_) return {Code::kUnavailable, "the database is missing or empty"};
    const Result<bool> made = Send<bool>([&cluster = cluster_, incarnation = RandomToken()](
                                             Server& server) -> Result<bool> {
      const bool makes = server.data.incarnation.empty();
      if (makes) {
        cluster.Commit(server, [incarnation](DataSet& data) { data.incarnation = incarnation; });
      }
      return makes;
    });
    if (!made.ok()) return made.status();
  }
  struct Known {
    std::string incarnation;
    std::uint64_t tables = 0;
  };
  const Result<Known> known = Send<Known>([](Server& server) -> Result<Known> {
    return Known{.incarnation = server.data.incarnation, .tables = server.tables};
  });
  if (!known.ok()) return known.status();
  if (known.value().incarnation.empty()) return {Code::kUnavailable, "the database is empty"};
  incarnation_ = known.value().incarnation;
  read_tables_ = {};
  static_cast<void>(read_tables_.Add(kTables, known.value().tables));
  const bool was_open = !tables_.empty();
  if (tables_.Add(kTables, known.value().tables) && was_open) ++generation_;
  if (Status status = ClaimHost(); !status.ok()) return status;
  if (Status status = AbandonLost(); !status.ok()) return status;
  may_create_ = false;
  ++connection_;
  return Status::Ok();
}

Status SimulatedStore::ClaimHost() {
  struct Row {
    std::string run;
    std::uint64_t beat = 0;
  };
  const Result<Row> claimed =
      Send<Row>([&cluster = cluster_, host = host_, run = run_,
                 was_held = host_beat_ != 0](Server& server) -> Result<Row> {
        const Nanos now = World::Get().now();
        cluster.Commit(server, [host, run, was_held, now](DataSet& data) {
          const auto [it, is_new] = data.hosts.try_emplace(host.id);
          HostRow& row = it->second;
          if (is_new) row.instance = host.instance;
          const bool is_own = row.instance == host.instance &&
                              (was_held ? row.run == run || daemon::IsOlderRun(row.run, run)
                                        : row.boot_id == host.boot_id);
          if (!row.boot_id.empty() && !is_own && now - row.seen_at < kHostSilentFor) return;
          row.boot_id = host.boot_id;
          row.instance = host.instance;
          row.run = run;
          row.disk = host.disk;
          ++row.beat;
          row.seen_at = now;
        });
        const HostRow& row = server.data.hosts[host.id];
        return Row{.run = row.run, .beat = row.beat};
      });
  if (!claimed.ok()) return claimed.status();
  if (claimed.value().run != run_) {
    World::Get().Met("a machine's name was held by another one");
    return {Code::kUnavailable, "another host uses the name '" + host_.id + "'"};
  }
  const bool is_set_back = host_beat_ != 0 && claimed.value().beat <= host_beat_;
  host_beat_ = claimed.value().beat;
  host_beaten_at_ = MonotonicClock::now();
  if (is_set_back) ++generation_;
  return Status::Ok();
}

Status SimulatedStore::AbandonLost() {
  if (lost_.empty()) return Status::Ok();
  const Result<std::set<std::string>> ended =
      Send<std::set<std::string>>([&cluster = cluster_, host = host_.id, tokens = lost_](
                                      Server& server) -> Result<std::set<std::string>> {
        cluster.Commit(server, [host, tokens](DataSet& data) { data.AbandonLost(tokens, host); });
        std::set<std::string> found;
        for (const std::string& token : tokens) {
          if (server.data.FindLease(token) != nullptr) found.insert(token);
        }
        return found;
      });
  if (!ended.ok()) return ended.status();
  for (const std::string& token : ended.value()) lost_.erase(token);
  return Status::Ok();
}

Status SimulatedStore::CheckCurrent() {
  const bool is_closed = session_.has_value() && cluster_.access() != Access::kProxy && IsBroken();
  if (!session_.has_value() || is_closed) {
    session_.reset();
    return NotOpen();
  }
  if (Status status = AbandonLost(); !status.ok()) return status;
  if (MonotonicClock::now() - host_beaten_at_ < kHostBeatEvery) return Status::Ok();
  const Result<Refusal> beaten =
      Send<Refusal>([&cluster = cluster_, guard = MakeGuard()](Server& server) {
        const Refusal refusal = guard.ForTags(server);
        if (refusal != Refusal::kNone) return Result<Refusal>(refusal);
        cluster.Commit(server, [host = guard.host, now = World::Get().now()](DataSet& data) {
          ++data.hosts[host].beat;
          data.hosts[host].seen_at = now;
        });
        return Result<Refusal>(refusal);
      });
  if (!beaten.ok()) return beaten.status();
  if (beaten.value() != Refusal::kNone) return Refused(beaten.value());
  ++host_beat_;
  host_beaten_at_ = MonotonicClock::now();
  return Status::Ok();
}

Result<std::string> SimulatedStore::Incarnation() {
  if (!session_.has_value()) return NotOpen();
  return incarnation_;
}

}  // namespace idd::simulation
