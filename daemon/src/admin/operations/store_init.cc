// SPDX-License-Identifier: Apache-2.0
//
// `store.init`: an operator wants a new database although this host has used another one, or has
// lost this one.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "platform/logging.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

using Names = std::vector<std::string>;

// The tags that this host was granted ids of and that the store lacks, sorted. A tag that is
// created under one of these names begins above those ids.
Result<Names> MissingTags(Store& store, HighWaterMarks& marks) {
  const Result<std::vector<TagMark>> known = marks.All();
  if (!known.ok()) return known.status();
  std::set<std::string> names;
  for (const TagMark& mark : known.value()) names.insert(ServedName(mark.tag));
  const Names asked(names.begin(), names.end());
  const Result<Store::TagResults> records = store.FindTags(asked);
  if (!records.ok()) return records.status();
  Names missing;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (records.value()[i].status().code() == Code::kNoSuchTag) missing.push_back(asked[i]);
  }
  return missing;
}

}  // namespace

void InitStore(AdminContext& context, const AdminRequest& /*request*/, const PeerRights& rights,
               AdminDone done) {
  context.worker.MakeDatabase([&context, uid = rights.peer().uid,
                               done = std::move(done)](const Result<bool>& made) {
    if (!made.ok()) return Fail(done, made.status());
    const bool is_new = made.value();
    if (is_new) log::Info("store.made", {{"database", context.info.database_url}, {"uid", uid}});
    context.cluster.Forget();  // what it has read is another database's
    context.worker.Submit<Names>(MissingTags, [&context, is_new, done](const Result<Names>& names) {
      if (!names.ok()) return Fail(done, names.status());
      done(Status::Ok(), Dump({{"database", context.info.database_url},
                               {"created", is_new},
                               {"missing_tags", names.value()}}));
    });
  });
}

}  // namespace idd::daemon
