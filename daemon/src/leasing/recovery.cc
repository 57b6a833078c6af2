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

Result<HostMemory> Remember(HighWaterMarks& marks, const StoreSession& session) {
  Result<std::vector<TagMark>> own = marks.Own();
  if (!own.ok()) return own.status();
  Result<std::vector<TagMark>> all = marks.All();
  if (!all.ok()) return all.status();
  HostMemory memory;
  memory.marks = std::move(own).value();
  std::map<std::string, std::uint64_t> known;
  for (const TagMark& mark : memory.marks) known[mark.tag] = mark.mark;
  for (TagMark& mark : all.value()) {
    if (mark.mark > known[mark.tag]) memory.ceilings.push_back(std::move(mark));
  }
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
  if (reconciliation.fenced != 0) {
    log::Warning("fence.lifted", {{"tags", reconciliation.fenced},
                                  {"reason",
                                   "other hosts may have been granted ids that the "
                                   "database does not know"},
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

// Finds out which data set is open. The order matters: a host that dies in between must find out
// again.
Status Recognise(Store& store, HighWaterMarks& marks, StoreSession& session) {
  const Result<std::string> incarnation = store.Incarnation();
  if (!incarnation.ok()) return incarnation.status();
  const Result<std::string> known = marks.Incarnation();
  if (!known.ok()) return known.status();
  const bool is_start = session.data_set == 0;
  const bool is_known = known.value() == incarnation.value();
  const bool is_other = !is_known && !known.value().empty();
  const bool is_replaced = !is_start && store.generation() != session.generation;
  Status known_marks;
  if (is_other) {
    known_marks = LogOther(known.value(), incarnation.value(), marks);
  } else if (is_replaced) {
    log::Error("store.replaced", {{"incarnation", incarnation.value()}, {"action", kAction}});
  }
  if (!known_marks.ok()) return known_marks;
  Fence::Arrival arrival;
  if (FenceStore* const fence = store.fence(); fence != nullptr) {
    Result<Fence::Arrival> arrived =
        session.fence.Arrive(*fence, marks, incarnation.value(), is_other || is_replaced);
    if (!arrived.ok()) return arrived.status();
    arrival = arrived.value();
  }
  Result<HostMemory> memory = Remember(marks, session);
  if (!memory.ok()) return memory.status();
  memory.value().from_other_data_set = is_other;
  const Result<Reconciliation> reconciliation = store.Reconcile(memory.value());
  if (!reconciliation.ok()) return reconciliation.status();
  LogReminded(reconciliation.value());
  if (!is_other) {
    Status logged = LogLiftedByOthers(store, memory.value(), reconciliation.value());
    if (!logged.ok()) return logged;
  }
  const bool is_new = is_other || is_replaced || reconciliation.value().forgot_leases ||
                      arrival.pushes_ceilings || (is_start && store.started_recently());
  if (is_new && store.fence() == nullptr)
    session.lease_from = MonotonicClock::now() + store.reconcile_window();
  if (is_start) {
    session.data_set = kInheritedDataSet;
    session.generation = store.generation();
  }
  if (is_new) ++session.data_set;
  if (FenceStore* const fence = store.fence(); fence != nullptr) {
    if (Status status = session.fence.Settle(*fence, marks, arrival); !status.ok()) return status;
  }
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
