// SPDX-License-Identifier: Apache-2.0
#include "data_set.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "store/tag_row.h"

namespace idd::simulation {
namespace {

using daemon::LeaseState;

Status NoSuchTag(const std::string& tag) {
  return {Code::kNoSuchTag, "there is no tag '" + tag + "'"};
}

bool Overlap(shm::IdRange a, shm::IdRange b) { return a.first < b.limit && b.first < a.limit; }

void Apply(const daemon::RefillChange& change, daemon::RefillSettings& refill) {
  refill.rule = change.rule.value_or(refill.rule);
  refill.max_step = change.max_step.value_or(refill.max_step);
  refill.max_prefetch = change.max_prefetch.value_or(refill.max_prefetch);
  refill.outage_tolerance = change.outage_tolerance.value_or(refill.outage_tolerance);
}

}  // namespace

void DataSet::AddRow(const std::string& token, const std::string& tag, const std::string& host,
                     shm::IdRange ids) {
  LeaseRecord row;
  row.token = token;
  row.tag = tag;
  row.host = host;
  row.ids = ids;
  places_[token] = journal.size();
  active_[host].insert(journal.size());
  used_[tag].insert(UsedLimitOf(row));
  journal.push_back(std::move(row));
}

void DataSet::EndRow(std::size_t place, const End& end) {
  LeaseRecord& row = journal[place];
  std::multiset<std::uint64_t>& used = used_[row.tag];
  used.erase(used.find(UsedLimitOf(row)));
  row.state = end.state;
  row.claimed = end.claimed;
  row.returned = end.returned;
  row.abandoned = end.abandoned;
  used.insert(UsedLimitOf(row));
  active_[row.host].erase(place);
}

const LeaseRecord* DataSet::FindLease(const std::string& token) const {
  const auto it = places_.find(token);
  return it == places_.end() ? nullptr : &journal[it->second];
}

std::optional<std::size_t> DataSet::FindActive(const std::string& token,
                                               const std::string& host) const {
  const auto it = places_.find(token);
  if (it == places_.end()) return std::nullopt;
  const LeaseRecord& row = journal[it->second];
  if (row.host != host || row.state != LeaseState::kActive) return std::nullopt;
  return it->second;
}

std::uint64_t DataSet::UsedLimit(const std::string& tag) const {
  std::uint64_t used = 0;
  const auto leases = used_.find(tag);
  if (leases != used_.end() && !leases->second.empty()) used = *leases->second.rbegin();
  for (const ReturnedRow& row : returned) {
    if (row.tag == tag) used = std::max(used, row.ids.limit);
  }
  const auto tombstone = tombstones.find(tag);
  return tombstone == tombstones.end() ? used : std::max(used, tombstone->second);
}

Result<TagRecord> DataSet::FindTag(const std::string& tag, bool has_terms) const {
  const auto it = tags.find(tag);
  if (it == tags.end()) return NoSuchTag(tag);
  TagRecord record = it->second;
  record.used_limit = UsedLimit(tag);
  if (has_terms) {
    const auto ceiling = ceilings.find(tag);
    record.ceiling = 0;
    if (ceiling != ceilings.end()) {
      record.ceiling = ActiveCeiling(ceiling->second);
      record.wanted_ceiling = ceiling->second.wanted;
      record.used_limit = std::max(record.used_limit, ceiling->second.pushed);
    }
  }
  return record;
}

std::uint64_t DataSet::ActiveCeiling(const CeilingRow& row) const {
  return term.term.number != 0 && row.active_in == term.term ? row.active : 0;
}

Result<Lease> DataSet::TakeLease(const LeaseRequest& request, const std::string& host,
                                 bool has_terms) {
  const Result<TagRecord> found = FindTag(request.tag, has_terms);
  if (!found.ok()) return found.status();
  const TagRecord& record = found.value();
  if (request.is_of_worker && OwnerOf(request.tag) != host) return daemon::NoOwner(request.tag);
  const auto tombstone = tombstones.find(request.tag);
  const std::uint64_t least =
      std::max({request.floor, request.high_water_mark,
                tombstone == tombstones.end() ? std::uint64_t{0} : tombstone->second});
  const auto own = std::find_if(returned.begin(), returned.end(), [&](const ReturnedRow& row) {
    return !request.rises && row.tag == request.tag && row.host == host && row.ids.first >= least &&
           row.ids.limit <= record.max_id + 1 && row.ids.limit <= record.next_id;
  });
  Lease lease{.token = request.token, .tag = request.tag, .ids = {}};
  if (own != returned.end()) {
    lease.ids = own->ids;
    lease.from_returned = true;
    returned.erase(own);
  } else {
    const std::uint64_t lowest =
        std::max({record.used_limit, request.high_water_mark, request.floor});
    const std::uint64_t base = std::max(record.next_id, lowest);
    if (base > record.max_id) {
      return Status(Code::kOutOfIds, "tag '" + request.tag + "' is used up");
    }
    const std::uint64_t most =
        std::min(record.max_id + 1, record.ceiling.value_or(record.max_id + 1));
    if (base >= most) {
      return Status(Code::kUnavailable, "tag '" + request.tag + "' waits for its ceiling");
    }
    lease.ids = {base, base + std::min(request.count, most - base)};
    if (lowest > record.next_id) lease.lifted_from = record.next_id;
    tags[request.tag].next_id = lease.ids.limit;
  }
  AddRow(request.token, request.tag, host, lease.ids);
  return lease;
}

Status DataSet::CloseLeases(const std::vector<LeaseClosure>& closures, const std::string& host) {
  for (const LeaseClosure& closure : closures) {
    const std::optional<std::size_t> place = FindActive(closure.token, host);
    if (!place.has_value()) continue;
    Status status = daemon::CheckClosure(closure, journal[*place].ids);
    if (!status.ok()) return status;
  }
  for (const LeaseClosure& closure : closures) {
    const std::optional<std::size_t> place = FindActive(closure.token, host);
    if (!place.has_value()) continue;
    EndRow(*place, {.state = closure.state,
                    .claimed = closure.claimed,
                    .abandoned = journal[*place].ids.size() - closure.claimed});
  }
  return Status::Ok();
}

Result<daemon::ReturnOutcome> DataSet::ReturnTail(const LeaseClosure& closure,
                                                  const std::string& host, bool is_restored) {
  const std::optional<std::size_t> place = FindActive(closure.token, host);
  if (!place.has_value()) return daemon::ReturnOutcome::kStale;
  const shm::IdRange ids = journal[*place].ids;
  if (closure.claimed >= ids.size()) return Status(Code::kInvalid, "nothing is left");
  const shm::IdRange rest{ids.first + closure.claimed, ids.limit};
  const auto tag = tags.find(closure.tag);
  const auto tombstone = tombstones.find(closure.tag);
  const bool is_alive =
      tag != tags.end() && (tombstone == tombstones.end() || tombstone->second <= rest.first);
  if (!is_alive || is_restored) {
    EndRow(*place,
           {.state = LeaseState::kAbandoned, .claimed = closure.claimed, .abandoned = rest.size()});
    if (is_alive) return daemon::ReturnOutcome::kAbandoned;
    return NoSuchTag(closure.tag);
  }
  EndRow(*place,
         {.state = LeaseState::kReturned, .claimed = closure.claimed, .returned = rest.size()});
  if (tag->second.next_id == rest.limit) {
    tag->second.next_id = rest.first;
    return daemon::ReturnOutcome::kLowered;
  }
  const ReturnedRow listed{.token = closure.token, .tag = closure.tag, .host = host, .ids = rest};
  returned.insert(std::upper_bound(returned.begin(), returned.end(), listed,
                                   [](const ReturnedRow& a, const ReturnedRow& b) {
                                     return std::tie(a.tag, a.ids.first) <
                                            std::tie(b.tag, b.ids.first);
                                   }),
                  listed);
  return daemon::ReturnOutcome::kListed;
}

std::vector<LeaseRecord> DataSet::AbandonActive(const std::set<std::string>& except,
                                                const std::string& host) {
  std::vector<LeaseRecord> marked;
  for (const std::size_t place : std::set<std::size_t>(active_[host])) {
    if (except.contains(journal[place].token)) continue;
    EndRow(place, {.state = LeaseState::kAbandoned, .abandoned = journal[place].ids.size()});
    marked.push_back(journal[place]);
  }
  return marked;
}

void DataSet::AbandonLost(const std::set<std::string>& tokens, const std::string& host) {
  for (const std::string& token : tokens) {
    const std::optional<std::size_t> place = FindActive(token, host);
    if (!place.has_value()) continue;
    EndRow(*place, {.state = LeaseState::kAbandoned, .abandoned = journal[*place].ids.size()});
  }
}

daemon::Reconciliation DataSet::Reconcile(const daemon::HostMemory& memory,
                                          const std::string& host) {
  daemon::Reconciliation result;
  const auto lift = [this](const std::vector<daemon::TagMark>& marks,
                           daemon::Reconciliation& lifted) {
    for (const daemon::TagMark& mark : marks) {
      const auto tag = tags.find(mark.tag);
      const std::uint64_t used = UsedLimit(mark.tag);
      const std::uint64_t stands_at = tag == tags.end() ? used : tag->second.next_id;
      if (stands_at >= mark.mark) continue;
      if (tag == tags.end()) {
        std::uint64_t& tombstone = tombstones[mark.tag];
        tombstone = std::max(tombstone, mark.mark);
      } else {
        tag->second.next_id = mark.mark;
      }
      lifted.lifted.push_back({.tag = mark.tag, .from = stands_at, .to = mark.mark});
      if (std::max(stands_at, used) < mark.mark) lifted.forgot_leases = true;
    }
  };
  lift(memory.marks, result);
  daemon::Reconciliation to_ceilings;
  lift(memory.ceilings, to_ceilings);
  result.lifted_to_ceilings = to_ceilings.lifted.size();
  for (const Lease& lease : memory.held) {
    if (FindLease(lease.token) != nullptr) continue;
    result.forgot_leases = true;
    result.restored.push_back(lease);
  }
  for (const Lease& lease : result.restored) {
    AddRow(lease.token, lease.tag, host, lease.ids);
    if (memory.from_other_data_set) continue;
    std::set<std::string> but;
    for (const Lease& other : memory.held) {
      if (other.tag == lease.tag && Overlap(other.ids, lease.ids)) but.insert(other.token);
    }
    std::erase_if(returned, [&](const ReturnedRow& row) {
      return row.tag == lease.tag && row.host == host && Overlap(row.ids, lease.ids);
    });
    for (const std::size_t place : std::set<std::size_t>(active_[host])) {
      const LeaseRecord& row = journal[place];
      if (row.tag != lease.tag || !Overlap(row.ids, lease.ids) || but.contains(row.token)) continue;
      const std::uint64_t from = std::max(row.ids.first, lease.ids.first);
      EndRow(place, {.state = LeaseState::kReturned,
                     .returned = row.ids.limit - from,
                     .abandoned = from - row.ids.first});
    }
  }
  return result;
}

// --- worker ids of snowflake tags

std::vector<WorkerRecord> DataSet::ListWorkers(const std::string& tag,
                                               const std::string& host) const {
  std::vector<WorkerRecord> found;
  const auto of_tag = workers.find(tag);
  if (of_tag == workers.end()) return found;
  for (const auto& [worker, owner] : of_tag->second) {
    const auto counter = tags.find(daemon::CounterName(tag, worker));
    found.push_back({.worker = worker,
                     .host = owner,
                     .is_mine = owner == host,
                     .next_number = counter == tags.end() ? 0 : counter->second.next_id});
  }
  return found;
}

std::optional<std::string> DataSet::OwnerOf(const std::string& counter) const {
  const std::optional<daemon::CounterOf> parts = daemon::ParseCounterName(counter);
  if (!parts.has_value()) return std::nullopt;
  const auto of_tag = workers.find(parts->tag);
  if (of_tag == workers.end()) return std::nullopt;
  const auto owner = of_tag->second.find(parts->worker);
  return owner == of_tag->second.end() ? std::nullopt : std::optional(owner->second);
}

Result<bool> DataSet::PrepareWorker(const WorkerChoice& choice, bool has_terms) {
  const std::string counter = daemon::CounterName(choice.tag, choice.worker);
  Result<TagRecord> row = FindTag(counter, has_terms);
  if (row.status().code() == Code::kNoSuchTag) {
    row = CreateTag(daemon::CounterTag(choice));
    if (!row.ok()) return false;
  }
  return std::max(row.value().next_id, row.value().used_limit) <= choice.at_most;
}

bool DataSet::OwnWorker(const WorkerChoice& choice, const std::string& host) {
  const std::string counter = daemon::CounterName(choice.tag, choice.worker);
  const auto row = tags.find(counter);
  if (row == tags.end() || row->second.next_id > choice.at_most) return false;
  if (OwnerOf(counter) != choice.owner) return false;
  workers[choice.tag][choice.worker] = host;
  return true;
}

Result<bool> DataSet::TakeWorker(const WorkerChoice& choice, const std::string& host) {
  const std::string counter = daemon::CounterName(choice.tag, choice.worker);
  if (OwnerOf(counter) != choice.owner || UsedLimit(counter) > choice.at_most) return false;
  Result<bool> is_free = PrepareWorker(choice, false);
  if (!is_free.ok() || !is_free.value()) return is_free;
  return OwnWorker(choice, host);
}

// --- tags

Result<TagRecord> DataSet::CreateTag(const daemon::NewTag& tag) {
  if (Status status = daemon::CheckNewTag(tag); !status.ok()) return status;
  const std::uint64_t used = UsedLimit(tag.tag);
  const std::uint64_t start = tag.start.value_or(std::max<std::uint64_t>(used, 1));
  if (Status status = daemon::CheckStart(tag, start, used); !status.ok()) return status;
  if (tags.contains(tag.tag)) return Status(Code::kInvalid, "it exists");
  const auto owners = workers.find(tag.tag);
  const bool had_workers = owners != workers.end() && !owners->second.empty();
  if (Status status = daemon::CheckSameKind(tag, used, had_workers); !status.ok()) return status;
  if (tag.snowflake.has_value()) {
    const auto before = layouts.find(tag.tag);
    if (before != layouts.end()) {
      if (Status status = daemon::CheckSameIds(tag, before->second); !status.ok()) return status;
    }
    layouts[tag.tag] = *tag.snowflake;
  }
  TagRecord record;
  record.tag = tag.tag;
  record.mode = tag.mode;
  record.next_id = start;
  record.step = tag.step;
  record.max_id = tag.max_id.value_or(daemon::kMaxId);
  record.description = tag.description;
  record.access = tag.access;
  record.snowflake = tag.snowflake;
  record.order = tag.order;
  record.lane_block = tag.lane_block;
  record.refill.step = tag.step;
  record.refill.max_prefetch = daemon::DefaultMaxPrefetch(tag.step);
  Apply(tag.refill, record.refill);
  return tags[tag.tag] = record;
}

Result<TagRecord> DataSet::ChangeTag(const daemon::TagChange& change) {
  if (Status status = daemon::CheckTagChange(change); !status.ok()) return status;
  const auto it = tags.find(change.tag);
  if (it == tags.end()) return NoSuchTag(change.tag);
  TagRecord after = it->second;
  after.step = change.step.value_or(after.step);
  after.refill.step = after.step;
  after.max_id = change.max_id.value_or(after.max_id);
  after.description = change.description.value_or(after.description);
  after.access = change.access.value_or(after.access);
  after.order = change.order.value_or(after.order);
  after.lane_block = change.lane_block.value_or(after.lane_block);
  Apply(change.refill, after.refill);
  if (Status status = daemon::CheckChanged(change, after); !status.ok()) return status;
  return it->second = after;
}

// Listed ranges of the tag that begin below `below` will not be leased again.
void DataSet::GiveUpReturned(const std::string& tag, std::uint64_t below) {
  std::erase_if(returned, [&](const ReturnedRow& row) {
    if (row.tag != tag || row.ids.first >= below) return false;
    const auto place = places_.find(row.token);
    if (place == places_.end()) return true;
    const LeaseRecord& lease = journal[place->second];
    EndRow(place->second, {.state = LeaseState::kAbandoned,
                           .claimed = lease.claimed,
                           .abandoned = lease.abandoned + lease.returned});
    return true;
  });
}

Result<TagRecord> DataSet::LiftTag(const std::string& tag, std::uint64_t to) {
  const auto it = tags.find(tag);
  if (it == tags.end()) return NoSuchTag(tag);
  it->second.next_id = std::max(it->second.next_id, to);
  GiveUpReturned(tag, to);
  std::uint64_t& tombstone = tombstones[tag];
  tombstone = std::max(tombstone, to);
  return FindTag(tag, false);
}

Status DataSet::DeleteTag(const std::string& tag) {
  const auto it = tags.find(tag);
  if (it == tags.end()) return NoSuchTag(tag);
  GiveUpReturned(tag, shm::kMaxLimit);
  std::uint64_t used = it->second.next_id;
  const auto leases = used_.find(tag);
  if (leases != used_.end() && !leases->second.empty()) {
    used = std::max(used, *leases->second.rbegin());
  }
  std::uint64_t& tombstone = tombstones[tag];
  tombstone = std::max(tombstone, used);
  tags.erase(it);
  return Status::Ok();
}

std::optional<shm::IdRange> DataSet::TakeAsLeaf(const std::string& tag, std::uint64_t count) {
  const auto it = tags.find(tag);
  if (it == tags.end()) return std::nullopt;
  const std::uint64_t first = it->second.next_id;
  it->second.next_id += count;
  return shm::IdRange{first, first + count};
}

// --- terms

bool DataSet::BeginTerm(const TermEntry& found, const TermEntry& next) {
  if (term != found) return false;
  term = next;
  return true;
}

bool DataSet::VoidTerm(const TermEntry& found) {
  if (term != found) return false;
  term.identity.clear();
  return true;
}

// A wanted ceiling that rises gets an epoch of its own: no other witness has noted it. max_id is
// lifted for Leaf servers.
bool DataSet::Push(const TermEntry& found, const std::vector<TagMark>& notes) {
  if (term != found) return false;
  ++epoch;
  for (const TagMark& note : notes) {
    const auto tag = tags.find(note.tag);
    if (tag != tags.end()) tag->second.next_id = std::max(tag->second.next_id, note.mark);
    CeilingRow& row = ceilings[note.tag];
    row.pushed = std::max(row.pushed, note.mark);
    if (row.wanted >= note.mark) continue;
    row.wanted = note.mark;
    row.epoch = epoch;
  }
  return true;
}

bool DataSet::WriteWitness(const TermEntry& found, const std::string& name, const WitnessEntry& row,
                           std::uint64_t was) {
  if (term != found) return false;
  const auto before = witnesses.find(name);
  const bool is_as_left = before == witnesses.end()
                              ? was == 0
                              : before->second.term != row.term || before->second.beat == was;
  if (!is_as_left) return false;
  witnesses[name] = row;
  return true;
}

std::uint64_t DataSet::Raise(const std::vector<CeilingRaise>& raises) {
  ++epoch;
  for (const CeilingRaise& raise : raises) {
    CeilingRow& row = ceilings[raise.tag];
    if (row.wanted >= raise.least) continue;
    row.wanted = raise.wanted;
    row.epoch = epoch;
  }
  return epoch;
}

std::vector<Ceiling> DataSet::ReadCeilings(const std::vector<std::string>& names) const {
  std::vector<Ceiling> found;
  for (const std::string& name : names) {
    const auto it = ceilings.find(name);
    if (it == ceilings.end()) continue;
    found.push_back(
        {.tag = name, .active = ActiveCeiling(it->second), .wanted = it->second.wanted});
  }
  return found;
}

bool DataSet::Activate(const TermEntry& found, std::uint64_t after, std::uint64_t up_to) {
  if (term != found) return false;
  for (auto& [name, row] : ceilings) {
    if (row.epoch <= after || row.epoch > up_to) continue;
    row.active = row.wanted;
    row.active_in = term.term;
  }
  return true;
}

bool DataSet::SetLists(const TermEntry& found, const WitnessList& active, const WitnessList& wanted,
                       std::uint64_t up_to) {
  if (term != found || epoch > up_to) return false;
  term.active = active;
  term.wanted = wanted;
  return true;
}

}  // namespace idd::simulation
