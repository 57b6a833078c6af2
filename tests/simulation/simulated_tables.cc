// SPDX-License-Identifier: Apache-2.0
//
// SimulatedStore: what its packets do to the tables of a server.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "simulated_packet.h"
#include "simulated_store.h"
#include "store/tag_row.h"
#include "store/term.h"
#include "worker_situation.h"

namespace idd::simulation {
namespace {

std::uint64_t SecondsSince(Nanos then, Nanos now) {
  return static_cast<std::uint64_t>(std::max<Nanos>(now - then, 0) / kSecond);
}

}  // namespace

// --- leasing

// One packet for all: the guard, the leases and the COMMIT.
Result<daemon::Store::LeaseResults> SimulatedStore::TakeLeases(
    const std::vector<LeaseRequest>& requests) {
  std::set<std::string> tokens;
  for (const LeaseRequest& request : requests) tokens.insert(request.token);
  using Leases = std::vector<Result<Lease>>;
  const Result<Guarded<Leases>> answer =
      Send<Guarded<Leases>>([&cluster = cluster_, guard = MakeGuard(), requests](Server& server) {
        Guarded<Leases> result{.refusal = guard.ForLease(server)};
        if (result.refusal != Refusal::kNone) return Result<Guarded<Leases>>(result);
        result.value =
            cluster.CommitFor<Leases>(server, [host = guard.host, requests](DataSet& data) {
              Leases leases;
              for (const LeaseRequest& request : requests) {
                leases.push_back(data.TakeLease(request, host, true));
              }
              return leases;
            });
        for (const Result<Lease>& lease : result.value) {
          if (lease.ok()) cluster.Leased(server, lease.value(), guard.host);
        }
        return Result<Guarded<Leases>>(result);
      });
  if (!answer.ok()) {
    lost_.insert(tokens.begin(), tokens.end());
    return answer.status();
  }
  if (answer.value().refusal == Refusal::kSetBack) {
    World::Get().Met("a lease packet was refused by its guard");
  }
  if (answer.value().refusal == Refusal::kOtherTerm) {
    World::Get().Met("a lease packet found another term");
  }
  if (answer.value().refusal != Refusal::kNone) return Refused(answer.value().refusal);
  for (const Result<Lease>& lease : answer.value().value) {
    if (lease.ok()) last_token_ = lease.value().token;
  }
  return answer.value().value;
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
  const Result<Guarded<TagResults>> answer =
      Send<Guarded<TagResults>>([guard = MakeGuard(), tags](Server& server) {
        Guarded<TagResults> result{.refusal = guard.ForTags(server)};
        for (const std::string& tag : tags) {
          result.value.push_back(server.data.FindTag(tag, true));
        }
        return Result<Guarded<TagResults>>(result);
      });
  if (!answer.ok()) return answer.status();
  if (answer.value().refusal != Refusal::kNone) return Refused(answer.value().refusal);
  return answer.value().value;
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

// --- terms

Result<daemon::TermView> SimulatedStore::ReadTerm(std::optional<std::uint64_t> noted) {
  const Result<Guarded<daemon::TermView>> answer =
      Send<Guarded<daemon::TermView>>([guard = MakeGuard(), noted](Server& server) {
        Guarded<daemon::TermView> result{.refusal = guard.Check(server)};
        const DataSet& data = server.data;
        daemon::TermView& view = result.value;
        view.row = {.term = data.term.term,
                    .identity = data.term.identity,
                    .active = data.term.active,
                    .wanted = data.term.wanted};
        view.server = server.name;
        view.epoch = data.epoch;
        for (const auto& [name, row] : data.witnesses) {
          view.witnesses.push_back({.name = name,
                                    .term = row.term,
                                    .noted = row.noted,
                                    .list = row.list,
                                    .beat = row.beat,
                                    .silent_s = SecondsSince(row.seen_at, World::Get().now())});
        }
        for (const auto& [tag, row] : data.ceilings) {
          const bool is_asked_for = noted.has_value() && row.epoch > *noted;
          if (is_asked_for) view.wanted.push_back({.tag = tag, .mark = row.wanted});
        }
        return Result<Guarded<daemon::TermView>>(result);
      });
  if (!answer.ok()) return answer.status();
  if (answer.value().refusal != Refusal::kNone) return Refused(answer.value().refusal);
  daemon::TermView view = answer.value().value;
  // As MysqlStore does: of tables that were set back, some hosts know later times than others.
  const std::string_view identity = view.row.identity;
  if (identity.starts_with(server_)) {
    tables_.AddSeenElsewhere(identity.substr(server_.size()));
    read_tables_.AddSeenElsewhere(identity.substr(server_.size()));
  }
  view.row.is_current = identity == IdentityOfConnection();
  term_ = view.row;
  return view;
}

Result<bool> SimulatedStore::ChangeAsFound(
    const daemon::TermRow& found,
    std::function<bool(DataSet& data, const TermEntry& found)> change) {
  const TermEntry entry{.term = found.term,
                        .identity = found.identity,
                        .active = found.active,
                        .wanted = found.wanted};
  const Result<Guarded<bool>> answer = Send<Guarded<bool>>(
      [&cluster = cluster_, guard = MakeGuard(), entry, change](Server& server) {
        Guarded<bool> result{.refusal = guard.Check(server)};
        if (result.refusal == Refusal::kNone) {
          result.value = cluster.CommitFor<bool>(
              server, [entry, change](DataSet& data) { return change(data, entry); });
        }
        return Result<Guarded<bool>>(result);
      });
  if (!answer.ok()) return answer.status();
  if (answer.value().refusal != Refusal::kNone) return Refused(answer.value().refusal);
  if (!answer.value().value) World::Get().Met("the term was no longer as a host had found it");
  return answer.value().value;
}

Result<bool> SimulatedStore::BeginTerm(const daemon::TermRow& found, const Term& term,
                                       const WitnessList& active) {
  const TermEntry next{
      .term = term, .identity = IdentityOfConnection(), .active = active, .wanted = found.wanted};
  World::Get().Trace(term.witness + " begins term " + std::to_string(term.number));
  Result<bool> begun = ChangeAsFound(
      found, [next](DataSet& data, const TermEntry& as) { return data.BeginTerm(as, next); });
  if (begun.ok() && begun.value()) World::Get().Met("a term was begun");
  return begun;
}

Result<bool> SimulatedStore::VoidTerm(const daemon::TermRow& found) {
  Result<bool> done =
      ChangeAsFound(found, [](DataSet& data, const TermEntry& as) { return data.VoidTerm(as); });
  if (done.ok() && done.value()) World::Get().Met("a host that is no witness ended a term");
  return done;
}

Result<bool> SimulatedStore::Push(const daemon::TermRow& found, const std::vector<TagMark>& notes) {
  return ChangeAsFound(
      found, [notes](DataSet& data, const TermEntry& as) { return data.Push(as, notes); });
}

Result<bool> SimulatedStore::WriteWitness(const daemon::TermRow& found,
                                          const daemon::WitnessRow& row, std::uint64_t was) {
  return ChangeAsFound(found, [row, was](DataSet& data, const TermEntry& as) {
    return data.WriteWitness(as, row.name,
                             {.term = row.term,
                              .noted = row.noted,
                              .list = row.list,
                              .beat = row.beat,
                              .seen_at = World::Get().now()},
                             was);
  });
}

// The counter's row is locked for as long as another host's transaction lasts.
Result<std::uint64_t> SimulatedStore::Raise(const std::vector<CeilingRaise>& raises) {
  if (World::Get().random().Percent(10)) {
    World::Get().Met("another host was raising ceilings");
    return Status(Code::kTimeout, "another host raises ceilings");
  }
  const Result<Guarded<std::uint64_t>> answer = Send<Guarded<std::uint64_t>>(
      [&cluster = cluster_, guard = MakeGuard(), raises](Server& server) {
        Guarded<std::uint64_t> result{.refusal = guard.Check(server)};
        if (result.refusal == Refusal::kNone) {
          result.value = cluster.CommitFor<std::uint64_t>(
              server, [raises](DataSet& data) { return data.Raise(raises); });
        }
        return Result<Guarded<std::uint64_t>>(result);
      });
  if (!answer.ok()) return answer.status();
  if (answer.value().refusal != Refusal::kNone) return Refused(answer.value().refusal);
  return answer.value().value;
}

Result<std::vector<Ceiling>> SimulatedStore::ReadCeilings(const std::vector<std::string>& tags) {
  using Ceilings = std::vector<Ceiling>;
  const Result<Guarded<Ceilings>> answer =
      Send<Guarded<Ceilings>>([guard = MakeGuard(), tags](Server& server) {
        return Result<Guarded<Ceilings>>(
            {.refusal = guard.Check(server), .value = server.data.ReadCeilings(tags)});
      });
  if (!answer.ok()) return answer.status();
  if (answer.value().refusal != Refusal::kNone) return Refused(answer.value().refusal);
  return answer.value().value;
}

Result<bool> SimulatedStore::Activate(const daemon::TermRow& found, std::uint64_t after,
                                      std::uint64_t epoch) {
  return ChangeAsFound(found, [after, epoch](DataSet& data, const TermEntry& as) {
    return data.Activate(as, after, epoch);
  });
}

Result<bool> SimulatedStore::SetLists(const daemon::TermRow& found, const WitnessList& active,
                                      const WitnessList& wanted, std::uint64_t epoch) {
  World::Get().Trace(host_.id + " sets the witnesses to " + active.Text() + ", wanted " +
                     wanted.Text());
  Result<bool> set =
      ChangeAsFound(found, [active, wanted, epoch](DataSet& data, const TermEntry& as) {
        return data.SetLists(as, active, wanted, epoch);
      });
  if (set.ok() && set.value()) {
    World::Get().Met(wanted.version == 0 ? "a list of witnesses became active"
                                         : "a list of witnesses was wanted");
  }
  return set;
}

Result<std::vector<daemon::Candidate>> SimulatedStore::ListCandidates() {
  using Candidates = std::vector<daemon::Candidate>;
  return Send<Candidates>([](Server& server) -> Result<Candidates> {
    Candidates found;
    for (const auto& [host, row] : server.data.hosts) {
      if (row.boot_id.empty() || row.disk.empty()) continue;
      found.push_back({.name = daemon::WitnessName(host, row.disk),
                       .silent_s = SecondsSince(row.seen_at, World::Get().now())});
    }
    return found;
  });
}

}  // namespace idd::simulation
