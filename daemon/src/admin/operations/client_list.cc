// SPDX-License-Identifier: Apache-2.0
//
// `client.list`: which processes use which tags.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "access/client_ledger.h"
#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"

namespace idd::daemon {
namespace {

// Selects the clients that the request asks for and the peer may see.
struct ClientFilter {
  std::optional<std::string> tag;
  std::optional<std::uint64_t> uid;
  PeerRights rights;

  // A user who does not administer all tags sees only processes of that user: the use of this host
  // by other users is not shown, not even for shared tags.
  [[nodiscard]] bool ShowsUser(uid_t of) const {
    if (uid.has_value() && *uid != of) return false;
    return rights.AdministersAll() || rights.peer().uid == of;
  }
  [[nodiscard]] bool ShowsTag(const std::string& of) const {
    if (tag.has_value() && *tag != of) return false;
    return of == ClientLedger::kOtherTags || rights.MaySee(of);
  }
};

// The PID namespace of idd, so that idctl knows whether pids mean the same to it; 0: unknown.
std::uint64_t PidNamespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? static_cast<std::uint64_t>(info.st_ino) : 0;
}

Json SecondsSince(std::optional<MonotonicTime> since, MonotonicTime now) {
  if (!since.has_value()) return nullptr;
  return std::chrono::duration_cast<std::chrono::seconds>(now - *since).count();
}

Json TagName(const std::string& tag) {
  return tag == ClientLedger::kOtherTags ? Json(nullptr) : Json(tag);
}

Json UsesJson(const ClientLedger::Uses& uses, const ClientFilter& filter, MonotonicTime now) {
  Json tags = Json::array();
  for (const auto& [tag, use] : uses) {
    if (!filter.ShowsTag(tag)) continue;
    tags.push_back({{"tag", TagName(tag)},
                    {"attached_s", SecondsSince(use.attached_since, now)},
                    {"attachments", use.attachments},
                    {"requests", use.requests},
                    {"ids", use.ids},
                    {"dry_waits", use.dry_waits}});
  }
  return tags;
}

using ClientRow = std::pair<std::uint64_t, ClientLedger::Client>;

Json ClientJson(const ClientRow& row, const ClientFilter& filter, MonotonicTime now) {
  const ClientLedger::Client& client = row.second;
  const std::string abi =
      std::to_string(client.abi_version >> 16) + "." + std::to_string(client.abi_version & 0xffff);
  return {{"connection", row.first},
          {"pid", client.peer.pid},
          {"uid", client.peer.uid},
          {"gid", client.peer.gid},
          {"connected_s", SecondsSince(client.since, now)},
          {"client_version", client.version.empty() ? Json(nullptr) : Json(client.version)},
          {"abi_version", client.abi_version == 0 ? Json(nullptr) : Json(abi)},
          {"tags", UsesJson(client.uses, filter, now)}};
}

std::string ClientsText(std::vector<ClientRow> rows, const ClientLedger::PastUses& past,
                        const ClientFilter& filter) {
  const MonotonicTime now = MonotonicClock::now();
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  Json clients = Json::array();
  for (const ClientRow& row : rows) {
    Json client = ClientJson(row, filter, now);
    if (filter.tag.has_value() && client.at("tags").empty()) continue;
    clients.push_back(std::move(client));
  }
  Json gone = Json::array();
  for (const auto& [key, use] : past) {
    const auto& [uid, tag] = key;
    if (!filter.ShowsTag(tag)) continue;
    gone.push_back({{"uid", uid == ClientLedger::kOtherUsers ? Json(nullptr) : Json(uid)},
                    {"tag", TagName(tag)},
                    {"connections", use.connections},
                    {"attachments", use.use.attachments},
                    {"requests", use.use.requests},
                    {"ids", use.use.ids},
                    {"dry_waits", use.use.dry_waits}});
  }
  return Dump({{"pid_namespace", PidNamespace()},
               {"clients", std::move(clients)},
               {"gone", std::move(gone)}});
}

}  // namespace

// The clients are copied here and written on the report thread: there may be thousands.
void ListClients(AdminContext& context, const AdminRequest& request, const PeerRights& rights,
                 AdminDone done) {
  const auto tag = TextField(request, "tag");
  const auto uid = NumberField(request, "uid");
  if (!tag.ok()) return Fail(done, tag.status());
  if (!uid.ok()) return Fail(done, uid.status());
  const ClientFilter filter{.tag = tag.value(), .uid = uid.value(), .rights = rights};
  context.reports.Begin([&context, filter, done = std::move(done)] {
    std::vector<ClientRow> rows;
    ClientLedger::PastUses past;
    for (const auto& [id, client] : context.clients.clients()) {
      if (filter.ShowsUser(client.peer.uid)) rows.emplace_back(id, client);
    }
    for (const auto& [key, use] : context.clients.past()) {
      if (filter.ShowsUser(key.first)) past.emplace(key, use);
    }
    context.reports.Write([rows = std::move(rows), past = std::move(past),
                           filter] { return ClientsText(rows, past, filter); },
                          done);
  });
}

}  // namespace idd::daemon
