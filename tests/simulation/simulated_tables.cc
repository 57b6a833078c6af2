// SPDX-License-Identifier: Apache-2.0
//
// SimulatedStore: what its packets do to the tables of a server.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "simulated_packet.h"
#include "simulated_store.h"
#include "store/tag_row.h"
#include "worker_situation.h"

namespace idd::simulation {

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
          if (lease.ok()) cluster.Leased(server, lease.value(), guard.host);
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

// --- worker ids of snowflake tags

Result<std::vector<WorkerRecord>> SimulatedStore::ListWorkers(const std::string& tag) {
  return Send<std::vector<WorkerRecord>>(
      [host = host_.id, tag](Server& server) -> Result<std::vector<WorkerRecord>> {
        return server.data.ListWorkers(tag, host);
      });
}

// Three packets: the look at the counter, which is made if it is missing, and the transaction.
Result<bool> SimulatedStore::TakeWorker(const WorkerChoice& choice) {
  Result<TagRecord> row = FindTag(daemon::CounterName(choice.tag, choice.worker));
  if (row.status().code() == Code::kNoSuchTag) {
    row = CreateTag(daemon::CounterTag(choice));
    if (row.status().code() == Code::kInvalid) return false;
  }
  if (!row.ok()) return row.status();
  if (std::max(row.value().next_id, row.value().used_limit) > choice.at_most) return false;
  return Send<bool>([&cluster = cluster_, host = host_.id, choice](Server& server) -> Result<bool> {
    if (server.is_read_only) return ReadOnly();
    const std::vector<WorkerRecord> before = server.data.ListWorkers(choice.tag, host);
    const bool is_taken = cluster.CommitFor<bool>(
        server, [host, choice](DataSet& data) { return data.OwnWorker(choice, host); });
    World::Get().Trace(host + (is_taken ? " took " : " did not get ") +
                       daemon::CounterName(choice.tag, choice.worker) + " of " +
                       choice.owner.value_or("nobody"));
    World::Get().Met(is_taken ? SituationOf(before, choice)
                              : "a worker id was no longer as the host had seen it");
    return is_taken;
  });
}

// As MysqlStore compares them.
Result<std::optional<daemon::StoreFacts::Clock>> SimulatedStore::CompareClocks() {
  const std::int64_t asked = WallClock::now_ms();
  const Result<std::int64_t> now = Send<std::int64_t>(
      [](Server& /*server*/) -> Result<std::int64_t> { return WallClock::now_ms(); });
  if (!now.ok()) return now.status();
  const std::int64_t half = (WallClock::now_ms() - asked) / 2;
  return std::optional(
      daemon::StoreFacts::Clock{.ahead_ms = now.value() - asked - half,
                                .uncertain_ms = static_cast<std::uint64_t>(std::abs(half)) + 1,
                                .store_ms = now.value()});
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
  for (const FenceMember& member : view.members) {
    if (LearnTablesFrom(member)) return SetBack();
  }
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

Status SimulatedStore::SetState(MemberState state, std::chrono::seconds silence,
                                std::uint64_t number) {
  const std::string run = daemon::MakeRun(number);
  Status status = UpdateMember([state, silence, run](FenceMember& member) {
    member.noted = 0;
    member.server.clear();
    member.state = state;
    member.silence = silence;
    member.run = run;
  });
  if (status.ok()) member_run_ = run;
  return status;
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

Status SimulatedStore::Raise(const std::vector<CeilingRaise>& raises) {
  const Result<bool> raised = Send<bool>(
      [&cluster = cluster_, guard = MakeGuard(), raises](Server& server) -> Result<bool> {
        if (server.is_read_only) return ReadOnly();
        if (!guard.HasTables(server)) return false;
        cluster.Commit(server, [raises](DataSet& data) { data.Raise(raises); });
        return true;
      });
  if (!raised.ok()) return raised.status();
  return raised.value() ? Status::Ok() : SetBack();
}

// The counter's row is locked for as long as another host's transaction lasts.
Result<bool> SimulatedStore::TryRaise(const std::vector<CeilingRaise>& raises) {
  if (World::Get().random().Percent(20)) {
    World::Get().Met("another host was raising ceilings");
    return Send<bool>([](Server&) -> Result<bool> { return false; });
  }
  Status status = Raise(raises);
  return status.ok() ? Result<bool>(true) : Result<bool>(std::move(status));
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
