// SPDX-License-Identifier: Apache-2.0
#include "leasing/recovery.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "platform/logging.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

constexpr const char* kAction = "this host's marks are pushed before anything is leased";

// A data set other than the one that granted the ids may stand for it: then this host's notes bound
// what other hosts were granted.
Result<HostMemory> Remember(HighWaterMarks& marks, const StoreSession& session, bool is_other) {
  Result<std::vector<TagMark>> all = marks.All();
  if (!all.ok()) return all.status();
  HostMemory memory;
  memory.marks = std::move(all).value();
  if (is_other) {
    Result<std::vector<TagMark>> ceilings = marks.Ceilings();
    if (!ceilings.ok()) return ceilings.status();
    memory.ceilings = std::move(ceilings).value();
  }
  memory.from_other_data_set = is_other;
  for (const auto& [token, lease] : session.held) memory.held.push_back(lease);
  return memory;
}

void LogBackwards(const std::string& tag, std::uint64_t store_max_id, std::uint64_t mark,
                  const char* action) {
  log::Error("store.went_backwards", {{"tag", tag},
                                      {"store_max_id", store_max_id},
                                      {"high_water_mark", mark},
                                      {"action", action}});
}

// Logs tags of which the store has forgotten leases of this host, but which another host, with a
// higher mark, has already lifted.
Status LogLiftedByOthers(Store& store, const HostMemory& memory,
                         const Reconciliation& reconciliation) {
  std::map<std::string, std::uint64_t> forgotten;  // with its mark
  for (const Lease& lease : reconciliation.restored) forgotten[lease.tag] = lease.ids.limit;
  for (const Reconciliation::Lift& lift : reconciliation.lifted) forgotten.erase(lift.tag);
  if (forgotten.empty()) return Status::Ok();
  for (const TagMark& mark : memory.marks) {
    const auto it = forgotten.find(mark.tag);
    if (it != forgotten.end()) it->second = mark.mark;
  }
  std::vector<std::string> tags;
  tags.reserve(forgotten.size());
  for (const auto& [tag, mark] : forgotten) tags.push_back(tag);
  const Result<Store::TagResults> records = store.FindTags(tags);
  if (!records.ok()) return records.status();
  for (const Result<TagRecord>& record : records.value()) {
    if (!record.ok()) continue;  // missing or invalid; reported where the tag is used
    LogBackwards(record.value().tag, record.value().next_id, forgotten[record.value().tag],
                 "another host has lifted the store already");
  }
  return Status::Ok();
}

void LogReminded(const Reconciliation& reconciliation) {
  for (const Reconciliation::Lift& lift : reconciliation.lifted) {
    LogBackwards(lift.tag, lift.from, lift.to, "lifted the store; the ids between are a gap");
  }
  for (const Reconciliation::Refusal& refusal : reconciliation.refused) {
    log::Error("tag.lift_refused",
               {{"tag", refusal.tag},
                {"mark", refusal.mark},
                {"error", refusal.error},
                {"action", "leases of the tag begin at the mark, once its row can be changed"}});
  }
  if (reconciliation.lifted_to_ceilings != 0) {
    log::Warning("store.lifted_to_ceilings",
                 {{"tags", reconciliation.lifted_to_ceilings},
                  {"reason", "other hosts may have been granted ids by the earlier database"},
                  {"action", "lifted the store; the ids between are a gap"}});
  }
  for (const Lease& lease : reconciliation.restored) {
    log::Warning("lease.restored", {{"tag", lease.tag},
                                    {"token", lease.token},
                                    {"base", lease.ids.first},
                                    {"limit", lease.ids.limit},
                                    {"reason", "the journal lacked it while its ids are in use"}});
  }
}

Status AbandonTheRest(Store& store, const StoreSession& session, bool is_start) {
  std::vector<std::string> held;
  for (const auto& [token, lease] : session.held) held.push_back(token);
  held.insert(held.end(), session.unanswered.begin(), session.unanswered.end());
  const Result<std::vector<LeaseRecord>> abandoned = store.AbandonActive(held);
  if (!abandoned.ok()) return abandoned.status();
  const char* reason = is_start ? "an earlier run ended without handing it back"
                                : "the store has it as active, and this run does not hold it";
  for (const LeaseRecord& lease : abandoned.value()) {
    if (session.meter != nullptr) session.meter->AddWaste(ServedName(lease.tag), lease.ids.size());
    log::Warning("lease.abandoned", {{"tag", lease.tag},
                                     {"token", lease.token},
                                     {"base", lease.ids.first},
                                     {"limit", lease.ids.limit},
                                     {"reason", reason}});
  }
  return Status::Ok();
}

// Logs that the data set is not the one that this host had open last.
Status LogOther(const std::string& was, const std::string& is, HighWaterMarks& marks) {
  const Result<std::vector<TagMark>> all = marks.All();
  if (!all.ok()) return all.status();
  if (all.value().empty()) {
    log::Info("store.changed", {{"was", was}, {"is", is}});
  } else {
    log::Error("store.identity_changed", {{"was", was}, {"is", is}, {"action", kAction}});
  }
  return Status::Ok();
}

Status NoteDataSet(const std::string& known, const std::string& incarnation, Store& store,
                   HighWaterMarks& marks) {
  if (known != incarnation) {
    if (Status status = marks.SetIncarnation(incarnation); !status.ok()) return status;
  }
  const Result<std::string> database = marks.Database();
  if (!database.ok()) return database.status();
  const std::string url = store.DisplayUrl();
  return database.value() == url ? Status::Ok() : marks.SetDatabase(url);
}

// Whether the store may not be the one that was open before: another term or, without terms,
// another file. Also lets this host take its part in the term.
Result<bool> FindWhetherReplaced(const std::string& incarnation, Store& store,
                                 HighWaterMarks& marks, StoreSession& session) {
  const bool is_start = session.data_set == 0;
  TermStore* const terms = store.terms();
  const bool has_new_generation = !is_start && store.generation() != session.generation;
  if (terms == nullptr) return has_new_generation;
  const Term before = session.agreement.term();
  if (has_new_generation) session.agreement.Distrust();
  Status status = session.agreement.Arrive(*terms, marks, incarnation);
  if (!status.ok()) return status;
  return !is_start && session.agreement.term() != before;
}

// A witness also begins a term over a connection that it cannot prove; the data set is the same
// then, as far as anything shows.
bool IsAnotherIdentity(Store& store, const StoreSession& session) {
  return store.terms() == nullptr || session.agreement.identity() != session.identity;
}

// Finds out which data set is open. The order matters: a host that dies in between must find out
// again.
Status Recognise(Store& store, HighWaterMarks& marks, StoreSession& session) {
  const Result<std::string> incarnation = store.Incarnation();
  if (!incarnation.ok()) return incarnation.status();
  const Result<std::string> known = marks.Incarnation();
  if (!known.ok()) return known.status();
  const bool is_start = session.data_set == 0;
  const bool is_other = known.value() != incarnation.value() && !known.value().empty();
  const Result<bool> replaced = FindWhetherReplaced(incarnation.value(), store, marks, session);
  if (!replaced.ok()) return replaced.status();
  session.is_replaced |= replaced.value();  // also for a second try
  if (is_other) {
    if (Status status = LogOther(known.value(), incarnation.value(), marks); !status.ok()) {
      return status;
    }
  } else if (replaced.value() && IsAnotherIdentity(store, session)) {
    log::Error("store.replaced", {{"incarnation", incarnation.value()}, {"action", kAction}});
  }
  const Result<HostMemory> memory = Remember(marks, session, is_other);
  if (!memory.ok()) return memory.status();
  const Result<Reconciliation> reconciliation = store.Reconcile(memory.value());
  if (!reconciliation.ok()) return reconciliation.status();
  LogReminded(reconciliation.value());
  if (!is_other) {
    Status logged = LogLiftedByOthers(store, memory.value(), reconciliation.value());
    if (!logged.ok()) return logged;
  }
  const bool is_new = is_other || session.is_replaced || reconciliation.value().forgot_leases ||
                      (is_start && store.started_recently());
  if (is_new && store.terms() == nullptr) {
    session.lease_from = MonotonicClock::now() + store.reconcile_window();
  }
  if (is_start) session.data_set = kInheritedDataSet;
  if (is_new) ++session.data_set;
  session.is_replaced = false;
  session.identity = session.agreement.identity();
  session.generation = store.generation();  // last: a try that fails in between begins again
  return NoteDataSet(known.value(), incarnation.value(), store, marks);
}

}  // namespace

Status Recover(Store& store, HighWaterMarks& marks, StoreSession& session) {
  const bool is_start = session.data_set == 0;
  if (Status status = Recognise(store, marks, session); !status.ok()) return status;
  return AbandonTheRest(store, session, is_start);
}

}  // namespace idd::daemon
