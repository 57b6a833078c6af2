// SPDX-License-Identifier: Apache-2.0
#include "simulated_store.h"

#include <algorithm>
#include <utility>

#include "platform/random.h"

namespace idd::simulation {
namespace {

using daemon::RandomToken;
using std::chrono::milliseconds;
using std::chrono::seconds;

// How long a client waits for an answer.
constexpr Nanos kStatementPatience = 5 * kSecond;
constexpr milliseconds kConnectPause(1000);
constexpr seconds kHostBeatEvery(20);
constexpr Nanos kHostSilentFor = 60 * kSecond;

// What a client and a server share of a packet, even if one of them ends.
struct Exchange {
  Thread* waiter = nullptr;
  bool is_over = false;  // answered, or refused by a reset
};

// Forgets the waiter when it is killed or stops waiting.
class WaiterGuard {
 public:
  explicit WaiterGuard(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~WaiterGuard() { exchange_->waiter = nullptr; }
  WaiterGuard(const WaiterGuard&) = delete;
  WaiterGuard& operator=(const WaiterGuard&) = delete;

 private:
  std::shared_ptr<Exchange> exchange_;
};

void End(const std::shared_ptr<Exchange>& exchange) {
  exchange->is_over = true;
  if (exchange->waiter != nullptr) exchange->waiter->Wake();
}

}  // namespace

SimulatedStore::SimulatedStore(Cluster& cluster, Link& link, daemon::HostIdentity host,
                               std::function<void()> on_step)
    : cluster_(cluster),
      link_(link),
      host_(std::move(host)),
      on_step_(std::move(on_step)),
      run_(RandomToken()) {}

// A clean end gives the host's name free.
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

template <typename T>
Result<T> SimulatedStore::Send(std::function<Result<T>(Server&)> packet) {
  if (!session_.has_value()) return NotOpen();
  Server* server = session_->server;
  if (cluster_.access() == Access::kProxy) server = &cluster_.primary();
  if (cluster_.access() != Access::kProxy && session_->IsReset()) {
    session_.reset();
    return Status(Code::kUnavailable, "connection reset");
  }
  session_->used = World::Get().now();
  Result<T> result = SendTo<T>(server, std::move(packet));
  session_->used = World::Get().now();
  if (result.status().code() == Code::kSystem) {
    session_.reset();
    return Status(Code::kUnavailable, result.status().message());
  }
  return result;
}

// kSystem: there was no answer.
template <typename T>
Result<T> SimulatedStore::SendTo(Server* server, std::function<Result<T>(Server&)> packet) {
  World& world = World::Get();
  const auto exchange = std::make_shared<Exchange>();
  exchange->waiter = Thread::Current();
  const WaiterGuard guard(exchange);
  const auto result = std::make_shared<Result<T>>(Status(Code::kSystem, "no answer"));
  Link& link = link_;
  const auto travel = [&link, &world] {
    return link.latency / 2 + world.random().Between(0, link.latency);
  };
  const auto is_lost = [&link, &world, server] {
    return link.is_cut || link.cut_from.contains(server->number) ||
           world.random().Percent(link.lost);
  };
  on_step_();
  if (!is_lost()) {
    world.After(travel(), [=, &world, packet = std::move(packet)] {
      if (!server->is_up) return End(exchange);  // a reset
      if (server->hangs) {
        world.Met("a packet reached a server that hangs");
        return;
      }
      *result = packet(*server);
      const Nanos back = travel();
      if (is_lost()) {
        world.Met("an answer was lost");
        *result = Status(Code::kSystem, "no answer");
        return;
      }
      world.After(back, [exchange, &world] {
        if (exchange->waiter == nullptr) world.Met("a client was gone when its answer came");
        End(exchange);
      });
    });
  }
  const Nanos until = world.now() + kStatementPatience;
  while (!exchange->is_over && world.now() < until) Thread::Current()->Wait(until);
  if (!exchange->is_over) return Status(Code::kSystem, "no answer within 5 s");
  on_step_();
  return *result;
}

template <typename T>
Result<T> SimulatedStore::Change(std::function<Result<T>(DataSet&)> change) {
  return Send<T>([&cluster = cluster_, change = std::move(change)](Server& server) -> Result<T> {
    if (server.is_read_only) return ReadOnly();
    return cluster.CommitFor<Result<T>>(server, change);
  });
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

bool SimulatedStore::Guard::IsMember(const Server& server) const {
  if (session.server != &server || session.life != server.life) return false;
  const auto row = server.data.members.find(host);
  return row != server.data.members.end() && row->second.run == run && row->second.beat == beat;
}

bool SimulatedStore::Guard::IsCurrent(const Server& server) const {
  return IsMember(server) && server.data.incarnation == incarnation &&
         (last_token.empty() || server.data.FindLease(last_token) != nullptr);
}

SimulatedStore::Guard SimulatedStore::MakeGuard() const {
  return {.session = session_.value_or(Session{}),
          .host = host_.id,
          .run = run_,
          .incarnation = incarnation_,
          .last_token = last_token_,
          .beat = member_beat_,
          .tables = tables_};
}

// --- opening

Status SimulatedStore::Open() {
  if (MonotonicClock::now() < next_connect_) return last_refusal_;
  session_.reset();
  last_token_.clear();
  Status refusal(Code::kUnavailable, "no server");
  const std::vector<Server*> endpoints = cluster_.Endpoints();
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
    daemon::ServerFacts facts;
    std::uint64_t life = 0;
    std::uint64_t tables = 0;
    std::string incarnation;
  };
  const MonotonicTime asked = MonotonicClock::now();
  const Result<Greeting> greeting =
      SendTo<Greeting>(&endpoint, [asked](Server& server) -> Result<Greeting> {
        if (server.is_read_only) return ReadOnly();
        Greeting hello;
        hello.facts.asked = asked;
        hello.facts.hostname = server.name;
        hello.facts.port = 3306;
        hello.facts.server_id = server.number + 1;
        hello.facts.uid = "uid-" + server.name;
        hello.facts.connection = ++server.connections;
        hello.facts.uptime = seconds((World::Get().now() - server.started) / kSecond);
        hello.life = server.life;
        hello.tables = server.tables;
        hello.incarnation = server.data.incarnation;
        return hello;
      });
  if (!greeting.ok()) return {Code::kUnavailable, greeting.status().message()};
  const Greeting& hello = greeting.value();
  session_ = Session{.server = &endpoint,
                     .life = hello.life,
                     .connection = hello.facts.connection,
                     .used = World::Get().now()};
  const auto change = identity_.Recognise(hello.facts);
  if (change != daemon::ServerIdentity::Change::kNone) ++generation_;
  if (change == daemon::ServerIdentity::Change::kOther) tables_.clear();
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
    is_new_ = is_new_ || made.value();
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
  const bool was_open = !tables_.empty();
  if (tables_.insert(known.value().tables).second && was_open) ++generation_;
  data_set_name_ = identity_.name() + "#" + std::to_string(known.value().tables);
  if (Status status = ClaimHost(); !status.ok()) return status;
  if (Status status = ClaimMember(); !status.ok()) return status;
  if (Status status = AbandonLost(); !status.ok()) return status;
  may_create_ = false;
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
          const bool is_next = row.boot_id == host.boot_id && row.instance == host.instance &&
                               (!was_held || row.run == run);
          if (!row.boot_id.empty() && !is_next && now - row.seen_at < kHostSilentFor) return;
          row.boot_id = host.boot_id;
          row.instance = host.instance;
          row.run = run;
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

Status SimulatedStore::ClaimMember() {
  struct Rows {
    std::optional<FenceMember> found;
    FenceMember now;
  };
  const Result<Rows> claimed = Send<Rows>(
      [&cluster = cluster_, host = host_.id, run = run_](Server& server) -> Result<Rows> {
        Rows rows;
        const auto it = server.data.members.find(host);
        if (it != server.data.members.end()) rows.found = it->second;
        cluster.Commit(server, [host, run](DataSet& data) {
          const auto [row, is_new] = data.members.try_emplace(host);
          row->second.host = host;
          row->second.run = run;
          row->second.beat = is_new ? 1 : row->second.beat + 1;
          row->second.server.clear();
        });
        rows.now = server.data.members[host];
        return rows;
      });
  if (!claimed.ok()) return claimed.status();
  found_ = claimed.value().found;
  if (member_beat_ != 0 && claimed.value().now.beat <= member_beat_) ++generation_;
  member_beat_ = claimed.value().now.beat;
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
  const bool is_closed =
      session_.has_value() && cluster_.access() != Access::kProxy && session_->IsReset();
  if (!session_.has_value() || is_closed) {
    session_.reset();
    return NotOpen();
  }
  if (Status status = AbandonLost(); !status.ok()) return status;
  if (MonotonicClock::now() - host_beaten_at_ < kHostBeatEvery) return Status::Ok();
  const Result<bool> beaten = Send<bool>(
      [&cluster = cluster_, host = host_.id, run = run_, beat = host_beat_](Server& server) {
        const auto it = server.data.hosts.find(host);
        const bool is_ours =
            it != server.data.hosts.end() && it->second.run == run && it->second.beat == beat;
        if (is_ours) {
          cluster.Commit(server, [host, now = World::Get().now()](DataSet& data) {
            ++data.hosts[host].beat;
            data.hosts[host].seen_at = now;
          });
        }
        return Result<bool>(is_ours);
      });
  if (!beaten.ok()) return beaten.status();
  if (!beaten.value()) return SetBack();
  ++host_beat_;
  host_beaten_at_ = MonotonicClock::now();
  return Status::Ok();
}

Result<std::string> SimulatedStore::Incarnation() {
  if (!session_.has_value()) return NotOpen();
  return incarnation_;
}

std::optional<std::chrono::seconds> SimulatedStore::uptime() const {
  return identity_.Uptime(MonotonicClock::now());
}

// --- leasing

// One packet for all: the guard, the leases and the COMMIT.
Result<daemon::Store::LeaseResults> SimulatedStore::TakeLeases(
    const std::vector<LeaseRequest>& requests) {
  std::set<std::string> tokens;
  for (const LeaseRequest& request : requests) tokens.insert(request.token);
  enum class Refusal { kNone, kReadOnly, kNotCurrent, kNotLive };
  struct Answer {
    Refusal refusal = Refusal::kNone;
    std::vector<Result<Lease>> leases;
  };
  const Result<Answer> answer = Send<Answer>(
      [&cluster = cluster_, guard = MakeGuard(), requests](Server& server) -> Result<Answer> {
        Answer result;
        if (server.is_read_only) {
          result.refusal = Refusal::kReadOnly;
        } else if (!guard.IsCurrent(server) || !guard.HasTables(server)) {
          result.refusal = Refusal::kNotCurrent;
        } else if (server.data.members[guard.host].state != MemberState::kLive) {
          result.refusal = Refusal::kNotLive;
        }
        if (result.refusal != Refusal::kNone) return result;
        result.leases = cluster.CommitFor<std::vector<Result<Lease>>>(
            server, [host = guard.host, requests](DataSet& data) {
              std::vector<Result<Lease>> leases;
              for (const LeaseRequest& request : requests) {
                leases.push_back(data.TakeLease(request, host, true));
              }
              return leases;
            });
        for (const Result<Lease>& lease : result.leases) {
          if (lease.ok()) cluster.Leased(lease.value(), guard.host);
        }
        return result;
      });
  if (!answer.ok()) {
    lost_.insert(tokens.begin(), tokens.end());
    return answer.status();
  }
  switch (answer.value().refusal) {
    case Refusal::kReadOnly:
      return Drop(ReadOnly());
    case Refusal::kNotCurrent:
      World::Get().Met("a lease packet was refused by its guard");
      return SetBack();
    case Refusal::kNotLive:
      return Status(Code::kUnavailable, "host '" + host_.id + "' is not a live member");
    case Refusal::kNone:
      break;
  }
  for (const Result<Lease>& lease : answer.value().leases) {
    if (lease.ok()) last_token_ = lease.value().token;
  }
  return answer.value().leases;
}

Status SimulatedStore::CloseLeases(const std::vector<LeaseClosure>& closures) {
  return Change<bool>([host = host_.id, closures](DataSet& data) -> Result<bool> {
           if (Status status = data.CloseLeases(closures, host); !status.ok()) return status;
           return true;
         })
      .status();
}

Result<daemon::ReturnOutcome> SimulatedStore::ReturnTail(const LeaseClosure& closure) {
  return Change<daemon::ReturnOutcome>(
      [host = host_.id, closure, is_restored = restored_.contains(closure.token)](DataSet& data) {
        return data.ReturnTail(closure, host, is_restored);
      });
}

Result<std::vector<LeaseRecord>> SimulatedStore::AbandonActive(
    const std::vector<std::string>& except) {
  const std::set<std::string> kept(except.begin(), except.end());
  return Change<std::vector<LeaseRecord>>(
      [host = host_.id, kept](DataSet& data) -> Result<std::vector<LeaseRecord>> {
        return data.AbandonActive(kept, host);
      });
}

Result<daemon::Reconciliation> SimulatedStore::Reconcile(const daemon::HostMemory& memory) {
  Result<daemon::Reconciliation> result = Change<daemon::Reconciliation>(
      [host = host_.id, memory](DataSet& data) -> Result<daemon::Reconciliation> {
        return data.Reconcile(memory, host);
      });
  if (!result.ok()) {
    for (const Lease& lease : memory.held) restored_.insert(lease.token);  // as far as is known
    return result;
  }
  for (const Lease& lease : result.value().restored) restored_.insert(lease.token);
  return result;
}

// --- tags

Result<std::vector<TagRecord>> SimulatedStore::ListTags() {
  return Send<std::vector<TagRecord>>([](Server& server) -> Result<std::vector<TagRecord>> {
    std::vector<TagRecord> all;
    for (const auto& [name, record] : server.data.tags) all.push_back(record);
    return all;
  });
}

Result<daemon::Store::TagResults> SimulatedStore::FindTags(const std::vector<std::string>& tags) {
  struct Answer {
    bool is_current = false;
    bool is_read_only = false;
    TagResults records;
  };
  const Result<Answer> answer =
      Send<Answer>([guard = MakeGuard(), tags](Server& server) -> Result<Answer> {
        Answer result;
        result.is_current = guard.IsCurrent(server) && guard.HasTables(server);
        result.is_read_only = server.is_read_only;
        for (const std::string& tag : tags) {
          result.records.push_back(server.data.FindTag(tag, true));
        }
        return result;
      });
  if (!answer.ok()) return answer.status();
  if (!answer.value().is_current) return SetBack();
  if (answer.value().is_read_only) return Drop(ReadOnly());
  return answer.value().records;
}

Result<TagRecord> SimulatedStore::CreateTag(const daemon::NewTag& tag) {
  return Change<TagRecord>([tag](DataSet& data) { return data.CreateTag(tag); });
}

Result<TagRecord> SimulatedStore::ChangeTag(const daemon::TagChange& change) {
  return Change<TagRecord>([change](DataSet& data) { return data.ChangeTag(change); });
}

Result<TagRecord> SimulatedStore::LiftTag(const std::string& tag, std::uint64_t to) {
  return Change<TagRecord>([tag, to](DataSet& data) { return data.LiftTag(tag, to); });
}

Result<std::uint64_t> SimulatedStore::UsedLimit(const std::string& tag) {
  return Send<std::uint64_t>(
      [tag](Server& server) -> Result<std::uint64_t> { return server.data.UsedLimit(tag); });
}

Status SimulatedStore::DeleteTag(const std::string& tag) {
  return Change<bool>([tag](DataSet& data) -> Result<bool> {
           if (Status status = data.DeleteTag(tag); !status.ok()) return status;
           return true;
         })
      .status();
}

// --- reports

Result<std::vector<LeaseRecord>> SimulatedStore::ListLeases(const daemon::LeaseFilter& filter) {
  return Send<std::vector<LeaseRecord>>(
      [filter](Server& server) -> Result<std::vector<LeaseRecord>> {
        std::vector<LeaseRecord> found;
        for (const LeaseRecord& row : server.data.journal) {
          if (filter.tag.has_value() && row.tag != *filter.tag) continue;
          if (filter.host.has_value() && row.host != *filter.host) continue;
          if (filter.state.has_value() && row.state != *filter.state) continue;
          found.push_back(row);
        }
        return found;
      });
}

Result<std::vector<daemon::ReturnedRange>> SimulatedStore::ListReturned(
    const std::optional<std::string>& tag) {
  return Send<std::vector<daemon::ReturnedRange>>(
      [tag](Server& server) -> Result<std::vector<daemon::ReturnedRange>> {
        std::vector<daemon::ReturnedRange> found;
        for (const ReturnedRow& row : server.data.returned) {
          if (!tag.has_value() || row.tag == *tag) found.push_back({row.tag, row.host, row.ids});
        }
        return found;
      });
}

Result<std::vector<daemon::HostRecord>> SimulatedStore::ListHosts() {
  return Send<std::vector<daemon::HostRecord>>(
      [](Server& server) -> Result<std::vector<daemon::HostRecord>> {
        std::vector<daemon::HostRecord> hosts;
        for (const auto& [name, row] : server.data.hosts) {
          hosts.push_back({.host = name, .first_seen = "", .last_seen = ""});
        }
        return hosts;
      });
}

Result<std::set<std::string>> SimulatedStore::LedgerTags() {
  return Send<std::set<std::string>>([](Server& server) -> Result<std::set<std::string>> {
    std::set<std::string> tags;
    for (const auto& [name, record] : server.data.tags) tags.insert(name);
    for (const LeaseRecord& row : server.data.journal) tags.insert(row.tag);
    return tags;
  });
}

Result<daemon::StoreFacts> SimulatedStore::Inspect() {
  daemon::StoreFacts facts;
  facts.version = "simulated";
  return facts;
}

// --- the fence

Result<daemon::FenceView> SimulatedStore::ReadFence(std::uint64_t noted) {
  struct Answer {
    bool is_read_only = false;
    bool has_tables = false;
    bool is_member = false;
    daemon::FenceView view;
  };
  const Result<Answer> answer = Send<Answer>(
      [&cluster = cluster_, guard = MakeGuard(), noted](Server& server) -> Result<Answer> {
        Answer result;
        result.is_read_only = server.is_read_only;
        result.has_tables = guard.HasTables(server);
        result.is_member = guard.IsMember(server);
        if (result.is_member && result.has_tables && !server.is_read_only) {
          cluster.Commit(server, [host = guard.host](DataSet& data) { ++data.members[host].beat; });
        }
        result.view.epoch = std::max(server.data.epoch, noted);
        for (const auto& [host, member] : server.data.members) {
          result.view.members.push_back(member);
        }
        for (const auto& [tag, row] : server.data.ceilings) {
          if (row.epoch <= noted) continue;
          result.view.ceilings.push_back({.tag = tag,
                                          .active = row.active,
                                          .wanted = std::max(row.active, row.wanted),
                                          .pushed = row.pushed});
        }
        return result;
      });
  if (!answer.ok()) return answer.status();
  if (answer.value().is_read_only) return Drop(ReadOnly());
  if (!answer.value().has_tables || !answer.value().is_member) return SetBack();
  ++member_beat_;
  daemon::FenceView view = answer.value().view;
  view.server = data_set_name_;
  return view;
}

Status SimulatedStore::UpdateMember(std::function<void(FenceMember&)> update) {
  const Result<bool> updated = Send<bool>([&cluster = cluster_, guard = MakeGuard(),
                                           update = std::move(update)](Server& server) {
    const bool is_ours = guard.IsMember(server) && guard.HasTables(server) && !server.is_read_only;
    if (is_ours) {
      cluster.Commit(server, [host = guard.host, update](DataSet& data) {
        ++data.members[host].beat;
        update(data.members[host]);
      });
    }
    return Result<bool>(is_ours);
  });
  if (!updated.ok()) return updated.status();
  if (!updated.value()) return SetBack();
  ++member_beat_;
  return Status::Ok();
}

Status SimulatedStore::SetState(MemberState state, std::chrono::seconds silence) {
  return UpdateMember([state, silence](FenceMember& member) {
    member.noted = 0;
    member.server.clear();
    member.state = state;
    member.silence = silence;
  });
}

Status SimulatedStore::SetNoted(std::uint64_t epoch) {
  return UpdateMember([epoch](FenceMember& member) { member.noted = epoch; });
}

Status SimulatedStore::Confirm() {
  return UpdateMember([name = data_set_name_](FenceMember& member) { member.server = name; });
}

Status SimulatedStore::Admit(const std::vector<FenceMember>& members) {
  return Change<bool>([members](DataSet& data) -> Result<bool> {
           data.Admit(members);
           return true;
         })
      .status();
}

Status SimulatedStore::Raise(const std::vector<Ceiling>& wanted) {
  const Result<bool> raised = Send<bool>(
      [&cluster = cluster_, guard = MakeGuard(), wanted](Server& server) -> Result<bool> {
        if (server.is_read_only) return ReadOnly();
        if (!guard.HasTables(server)) return false;
        cluster.Commit(server, [wanted](DataSet& data) { data.Raise(wanted); });
        return true;
      });
  if (!raised.ok()) return raised.status();
  return raised.value() ? Status::Ok() : SetBack();
}

Result<std::vector<Ceiling>> SimulatedStore::Activate(const std::vector<std::string>& tags) {
  return Send<std::vector<Ceiling>>([&cluster = cluster_, guard = MakeGuard(),
                                     tags](Server& server) -> Result<std::vector<Ceiling>> {
    if (server.is_read_only) return ReadOnly();
    if (!guard.HasTables(server)) return std::vector<Ceiling>();
    return cluster.CommitFor<std::vector<Ceiling>>(
        server, [tags](DataSet& data) { return data.Activate(tags); });
  });
}

Result<bool> SimulatedStore::PutOut(const FenceMember& member) {
  return Send<bool>([&cluster = cluster_, guard = MakeGuard(), member](Server& server) {
    if (server.is_read_only) return Result<bool>(ReadOnly());
    if (guard.session.server != &server || guard.session.life != server.life ||
        !guard.HasTables(server)) {
      return Result<bool>(false);
    }
    return Result<bool>(
        cluster.CommitFor<bool>(server, [member](DataSet& data) { return data.PutOut(member); }));
  });
}

}  // namespace idd::simulation
