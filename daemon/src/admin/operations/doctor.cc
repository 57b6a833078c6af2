// SPDX-License-Identifier: Apache-2.0
//
// `doctor`: gathers the facts for `idctl doctor`. Facts that may wait for a disk, a network or the
// database are read on other threads; the answer leaves out those that did not come in time.
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "admin/operations/doctor_facts.h"
#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/snapshots.h"
#include "idd/base/url_password.h"
#include "idd/shm/abi.h"
#include "platform/event_loop.h"
#include "sql/mysql_url.h"

namespace idd::daemon {
namespace {

// A store that takes longer than this is reported as slow. idctl itself waits for 5 s.
constexpr std::chrono::seconds kStorePatience(2);

Json AbiJson(std::uint32_t version) {
  return {{"major", version >> 16}, {"minor", version & 0xffff}};
}

Json ClockJson(const std::optional<StoreFacts::Clock>& clock) {
  if (!clock.has_value()) return nullptr;
  const bool is_ahead = clock->ahead_ms >= 0;
  const auto ahead = static_cast<std::uint64_t>(clock->ahead_ms);
  return {{"off_ms", is_ahead ? ahead : std::uint64_t{0} - ahead},
          {"is_ahead", is_ahead},
          {"uncertain_ms", clock->uncertain_ms}};
}

Json SettingsJson(const std::vector<StoreSetting>& settings) {
  Json array = Json::array();
  for (const StoreSetting& setting : settings) {
    array.push_back({{"name", setting.name},
                     {"value", setting.value},
                     {"wanted", setting.wanted},
                     {"risk", setting.risk}});
  }
  return array;
}

// The facts about the store, for the tags that the peer may see. Only operators see leases that
// another idd took under this host's name.
Json LookJson(const StoreReport& report, const PeerRights& rights) {
  Json behind = Json::array();
  for (const TagBelowMark& tag : report.behind) {
    if (!rights.MaySee(tag.tag)) continue;
    behind.push_back({{"tag", tag.tag}, {"mark", tag.mark}, {"next_id", tag.next_id}});
  }
  Json waste = Json::array();
  for (const TagWaste& tag : report.waste) {
    if (!rights.MaySee(tag.tag)) continue;
    waste.push_back({{"tag", tag.tag}, {"ids", tag.ids}, {"abandoned", tag.abandoned}});
  }
  return {{"version", report.facts.version},
          {"read_only", report.facts.is_read_only},
          {"log_bytes", report.facts.log_bytes},
          {"settings", SettingsJson(report.facts.settings)},
          {"clock", ClockJson(report.facts.clock)},
          {"lost_leases", report.lost_leases},
          {"strange_leases", report.strange_leases},
          {"live_hosts", report.live_hosts},
          {"behind", std::move(behind)},
          {"waste", std::move(waste)}};
}

Json TagsJson(const std::vector<TagSnapshot>& served, const std::vector<TagRecord>& records,
              const DrainLedger::Scopes& drained, const PeerRights& rights) {
  std::map<std::string, const TagRecord*> of_store;
  for (const TagRecord& record : records) of_store[record.tag] = &record;
  Json array = Json::array();
  for (const auto& [name, tag] : AllTags(records, served, drained)) {
    if (!rights.MaySee(name)) continue;
    const auto record = of_store.find(name);
    array.push_back(DoctorTagJson(tag, record == of_store.end() ? nullptr : record->second));
  }
  return array;
}

Json PeersJson(const PeerFacts& peers) {
  Json clients = Json::array();
  for (const ClientGroup& group : peers.clients) {
    clients.push_back({{"version", group.version},
                       {"abi", AbiJson(group.abi_version)},
                       {"connections", group.connections},
                       {"pid", group.pid},
                       {"uid", group.uid}});
  }
  Json busiest = nullptr;
  if (peers.busiest.has_value()) {
    busiest = {{"uid", peers.busiest->uid}, {"connections", peers.busiest->connections}};
  }
  return {{"connections", peers.connections},
          {"most_connections", peers.most_connections},
          {"connections_per_uid", peers.connections_per_uid},
          {"busiest", std::move(busiest)},
          {"clients", std::move(clients)},
          {"not_listed", peers.not_listed}};
}

Json ProcessJson(const ProcessFacts& process) {
  return {{"uid", process.uid},
          {"seccomp_mode", process.seccomp_mode},
          {"no_new_privileges", process.no_new_privileges},
          {"capabilities", process.capabilities},
          {"descriptors", process.descriptors},
          {"most_descriptors", process.most_descriptors}};
}

Json PlaceJson(const PlaceFacts& place) {
  return {{"what", place.what},
          {"path", place.path},
          {"error", OrNull(place.error)},
          {"owner", place.owner},
          {"mode", place.mode},
          {"file_system", place.file_system},
          {"read_only", place.is_read_only},
          {"free_bytes", place.free_bytes},
          {"total_bytes", place.total_bytes},
          {"free_files", place.free_files.has_value() ? Json(*place.free_files) : Json(nullptr)}};
}

// The folders that idd writes to.
Json PlacesJson(const DaemonInfo& info) {
  Json places = Json::array();
  places.push_back(PlaceJson(ProbePlace("state dir", info.state_dir)));
  if (info.database_url.starts_with(kSqliteScheme)) {
    const std::string file = info.database_url.substr(kSqliteScheme.size());
    places.push_back(PlaceJson(ProbePlace("database", FolderOf(file))));
  }
  places.push_back(PlaceJson(ProbePlace("socket", FolderOf(info.socket))));
  return places;
}

Json ServiceJson(const DaemonInfo& info) {
  Json watchdog = nullptr;
  if (info.watchdog.has_value()) {
    watchdog = std::chrono::duration<double>(*info.watchdog).count();
  }
  return {{"manager", info.has_manager}, {"watchdog_s", std::move(watchdog)}};
}

// Adds the source of the password of idd's own database. How to fix a wrong password depends on it:
// systemd passes a credential only at a start, while a file is read at every connect.
void AddPasswordSource(const std::string& database, Json& store) {
  store["password_source"] = nullptr;
  store["password_path"] = nullptr;
  if (!database.starts_with(kMysqlScheme)) return;
  const Result<MysqlUrl> url = ParseOwnMysqlUrl(database);
  if (!url.ok()) return;
  const std::string& file = url.value().password_file;
  const bool is_credential = file.find('/') == std::string::npos;
  store["password_source"] = file.empty() ? "url" : is_credential ? "credential" : "file";
  if (!file.empty()) store["password_path"] = file;
}

// The store's last error, or that of each endpoint, with its kind.
Json ErrorsJson(std::string_view last_error) {
  Json errors = Json::array();
  while (!last_error.empty()) {
    const std::size_t end = last_error.find(kNextEndpoint);
    const std::string_view error = last_error.substr(0, end);
    errors.push_back({{"error", error}, {"trouble", TroubleOf(error)}});
    last_error.remove_prefix(end == std::string_view::npos ? last_error.size()
                                                           : end + kNextEndpoint.size());
  }
  return errors;
}

// The facts gathered on the event loop, for the thread that adds the rest.
struct Gathered {
  DaemonInfo info;
  PeerRights rights;
  Json daemon;
  Json store;
  Result<StoreReport> look;
  std::vector<TagSnapshot> served;
  DrainLedger::Scopes drained;
  PeerFacts peers;
};

// The error of an invalid row names its tag, which the peer may not be allowed to see.
std::string LookError(const Status& status, const PeerRights& rights) {
  const bool may_see = status.code() != Code::kInvalid || rights.AdministersAll();
  return may_see ? status.message() : "the store returned an invalid row";
}

std::string FactsText(Gathered gathered) {
  const bool is_looked = gathered.look.ok();
  Json& store = gathered.store;
  store["look"] = is_looked ? LookJson(gathered.look.value(), gathered.rights) : Json(nullptr);
  store["look_error"] =
      is_looked ? Json(nullptr) : Json(LookError(gathered.look.status(), gathered.rights));
  const std::vector<TagRecord> none;
  Json document = {{"daemon", std::move(gathered.daemon)},
                   {"store", std::move(store)},
                   {"tags", TagsJson(gathered.served, is_looked ? gathered.look.value().tags : none,
                                     gathered.drained, gathered.rights)}};
  const bool may_see_all = gathered.rights.AdministersAll();
  document["peers"] = may_see_all ? PeersJson(gathered.peers) : Json(nullptr);
  document["process"] = may_see_all ? ProcessJson(ProbeProcess()) : Json(nullptr);
  document["service"] = may_see_all ? ServiceJson(gathered.info) : Json(nullptr);
  document["places"] = may_see_all ? PlacesJson(gathered.info) : Json(nullptr);
  return Dump(document);
}

// One request. It ends with the store's answer or when kStorePatience is over, whichever comes
// first.
struct Diagnosis {
  Diagnosis(EventLoop& loop, PeerRights peer_rights, AdminDone when_done)
      : rights(std::move(peer_rights)), done(std::move(when_done)), patience(loop) {}

  const PeerRights rights;
  const AdminDone done;
  Timer patience;
  bool is_concluded = false;
};

// All but the tags.
Gathered Gather(AdminContext& context, const PeerRights& rights, const Result<StoreReport>& look) {
  Json daemon = DaemonJson(context.info, context.tags.drains().Has(kWholeHost));
  daemon["abi"] = AbiJson(shm::kAbiVersion);
  Json store = DatabaseJson(context.info.database_url, context.tags.store_health());
  store["errors"] = ErrorsJson(context.tags.store_health().last_error);
  if (rights.AdministersAll()) AddPasswordSource(context.info.database, store);
  return {.info = context.info,
          .rights = rights,
          .daemon = std::move(daemon),
          .store = std::move(store),
          .look = look,
          .served = {},
          .drained = context.tags.drains().scopes(),
          .peers = context.count_peers ? context.count_peers() : PeerFacts{}};
}

void Conclude(AdminContext& context, Diagnosis& diagnosis, Result<StoreReport> look) {
  if (diagnosis.is_concluded) return;
  diagnosis.is_concluded = true;
  diagnosis.patience.Cancel();
  TakeSnapshots(
      context.loop,
      [&context](std::string& at, std::vector<TagSnapshot>& snapshots) {
        return context.tags.SnapshotNext(at, snapshots);
      },
      [&context, rights = diagnosis.rights, done = diagnosis.done,
       look = std::move(look)](std::vector<TagSnapshot> served) {
        auto gathered = std::make_shared<Gathered>(Gather(context, rights, look));
        gathered->served = std::move(served);
        if (context.doctor == nullptr) {
          context.doctor = std::make_unique<WorkThread>();
        }
        context.doctor->Post([&context, gathered, done] {
          context.loop.Post([text = FactsText(std::move(*gathered)), done]() mutable {
            done(Status::Ok(), std::move(text));
          });
        });
      });
}

}  // namespace

void Doctor(AdminContext& context, const AdminRequest& /*request*/, const PeerRights& rights,
            AdminDone done) {
  const auto diagnosis = std::make_shared<Diagnosis>(context.loop, rights, std::move(done));
  // While the store is down, its jobs are slow to fail.
  if (!context.tags.store_health().up) {
    return Conclude(context, *diagnosis, Status(Code::kUnavailable, "the store is down"));
  }
  diagnosis->patience.After(kStorePatience, [&context, diagnosis] {
    Conclude(context, *diagnosis,
             Status(Code::kTimeout, "the store has not answered within " +
                                        std::to_string(kStorePatience.count()) + " s"));
  });
  context.worker.SubmitWithSession<StoreReport>(
      [host = context.info.host_id](Store& store, HighWaterMarks& marks, StoreSession& session) {
        return InspectStore(store, marks, session, host);
      },
      [&context, diagnosis](Result<StoreReport> report) {
        Conclude(context, *diagnosis, std::move(report));
      });
}

}  // namespace idd::daemon
