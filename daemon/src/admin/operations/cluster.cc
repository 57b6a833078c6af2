// SPDX-License-Identifier: Apache-2.0
//
// `cluster`: all hosts and tags of the store, from the store alone.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/cluster_view.h"

namespace idd::daemon {
namespace {

constexpr std::uint64_t kDefaultRows = 20;
constexpr std::uint64_t kMaxRows = 100'000;

// Makes the document on the report thread: there may be thousands of tags.
void Reply(AdminContext& context, ClusterReader::View view, ClusterScope scope, AdminDone done) {
  context.reports.thread().Post([&context, view = std::move(view), scope = std::move(scope),
                                 done = std::move(done)] {
    context.loop.Post([text = Dump(ClusterJson(*view, scope)), done] { done(Status::Ok(), text); });
  });
}

}  // namespace

void ShowCluster(AdminContext& context, const AdminRequest& request, const PeerRights& rights,
                 AdminDone done) {
  const auto tag = TextField(request, "tag");
  const auto limit = NumberField(request, "limit");
  if (!tag.ok()) return Fail(done, tag.status());
  if (!limit.ok()) return Fail(done, limit.status());
  const std::uint64_t rows = limit.value().value_or(kDefaultRows);
  if (rows == 0 || rows > kMaxRows) {
    return Fail(done, {Code::kInvalid, "'limit' must be 1 to " + std::to_string(kMaxRows) +
                                           " hosts and tags, got " + std::to_string(rows)});
  }
  ClusterScope scope{.shows = [rights](const std::string& name) { return rights.MaySee(name); },
                     .shows_all = rights.AdministersAll() || tag.value().has_value(),
                     .limit = rows};
  if (!tag.value().has_value()) {
    return context.cluster.Get(
        [&context, scope, done = std::move(done)](const Result<ClusterReader::View>& view) {
          if (!view.ok()) return Fail(done, view.status());
          Reply(context, view.value(), scope, done);
        });
  }
  context.Read<ClusterView>(
      [tag = tag.value()](StoreReader& store) { return ReadCluster(store, tag); },
      [&context, scope, name = *tag.value(), done = std::move(done)](Result<ClusterView> view) {
        if (!view.ok()) return Fail(done, view.status());
        const auto found = view.value().tags.find(name);
        const bool is_known = found != view.value().tags.end() &&
                              (found->second.record.has_value() ||
                               found->second.active_leases + found->second.ended.leases > 0);
        if (!is_known) return Fail(done, {Code::kNoSuchTag, "no such tag: '" + name + "'"});
        Reply(context, std::make_shared<const ClusterView>(std::move(view).value()), scope, done);
      });
}

}  // namespace idd::daemon
