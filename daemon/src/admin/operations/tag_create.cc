// SPDX-License-Identifier: Apache-2.0
//
// `tag.create`.
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/claimable.h"
#include "admin/shared/tag_fields.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

struct CreatedTag {
  TagRecord record;
  bool is_new = true;
};

// An existing tag of this name is the answer with `if_absent`, and an error without it.
Result<CreatedTag> CreateOrFind(Store& store, const NewTag& tag, bool if_absent) {
  if (if_absent) {
    Result<TagRecord> found = store.FindTag(tag.tag);
    if (found.ok()) return CreatedTag{std::move(found).value(), false};
    if (found.status().code() != Code::kNoSuchTag) return found.status();
  }
  Result<TagRecord> created = store.CreateTag(tag);
  if (created.ok()) return CreatedTag{std::move(created).value(), true};
  // Another host may have created it in between.
  if (if_absent && created.status().code() == Code::kInvalid) {
    Result<TagRecord> found = store.FindTag(tag.tag);
    if (found.ok()) return CreatedTag{std::move(found).value(), false};
  }
  return created.status();
}

}  // namespace

void CreateTag(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
               AdminDone done) {
  Result<NewTag> tag = ReadNewTag(request);
  if (!tag.ok()) return Fail(done, tag.status());
  const Result<bool> if_absent = FlagField(request, "if_absent");
  if (!if_absent.ok()) return Fail(done, if_absent.status());
  const Result<std::chrono::milliseconds> wait = WaitField(request);
  if (!wait.ok()) return Fail(done, wait.status());
  context.worker.Submit<CreatedTag>(
      [tag = std::move(tag).value(), if_absent = if_absent.value()](Store& store, HighWaterMarks&) {
        return CreateOrFind(store, tag, if_absent);
      },
      [&context, wait = wait.value(), done = std::move(done)](const Result<CreatedTag>& created) {
        if (!created.ok()) return Fail(done, created.status());
        const TagRecord& record = created.value().record;
        if (created.value().is_new) {
          context.tags.OnTagsCreated({record.tag});
          log::Info("tag.created", {{"tag", record.tag}, {"step", record.step}});
        }
        Json reply = {{"tag", TagJson(record)}, {"created", created.value().is_new}};
        AwaitClaimable(context, {record.tag}, wait,
                       [done, reply](const Coverage& coverage) mutable {
                         AddClaimable(coverage, reply);
                         done(Status::Ok(), Dump(reply));
                       });
      });
}

}  // namespace idd::daemon
