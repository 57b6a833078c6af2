// SPDX-License-Identifier: Apache-2.0
//
// Admin: tags.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "admin/admin.h"
#include "admin/admin_fields.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

Result<NewTag> ReadNewTag(const Request& request) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return tag.status();
  const auto mode = TextField(request, "mode");
  const auto access = AccessField(request);
  const auto description = TextField(request, "description");
  const auto step = NumberField(request, "step");
  const auto start = NumberField(request, "start");
  const auto max_id = NumberField(request, "max_id");
  auto refill = RefillFields(request);
  for (const Status& status : {mode.status(), access.status(), description.status(), step.status(),
                               start.status(), max_id.status(), refill.status()}) {
    if (!status.ok()) return status;
  }
  NewTag created;
  created.tag = std::move(tag).value();
  created.mode = mode.value().value_or("segment");
  if (created.mode == "snowflake" || created.mode == "ticket") {
    return Status(Code::kInvalid, "mode " + created.mode + " is not available in this version");
  }
  if (created.mode != "segment") {
    return Status(Code::kInvalid, "unknown mode '" + created.mode + "'; segment is available");
  }
  created.step = step.value().value_or(kDefaultStep);
  created.start = start.value();
  created.max_id = max_id.value();
  created.description = description.value().value_or("");
  created.access = access.value().value_or(TagAccess::kRing);
  created.refill = std::move(refill).value();
  return created;
}

struct CreatedTag {
  TagRecord record;
  bool is_new = true;
};

// With `if_absent` a tag of this name is an answer, and otherwise an error.
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

Result<TagChange> ReadTagChange(const Request& request) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return tag.status();
  const auto description = TextField(request, "description");
  const auto step = NumberField(request, "step");
  const auto max_id = NumberField(request, "max_id");
  const auto access = AccessField(request);
  const auto refill = RefillFields(request);
  for (const Status& status :
       {description.status(), step.status(), max_id.status(), access.status(), refill.status()}) {
    if (!status.ok()) return status;
  }
  return TagChange{.tag = std::move(tag).value(),
                   .step = step.value(),
                   .max_id = max_id.value(),
                   .description = description.value(),
                   .access = access.value(),
                   .refill = refill.value()};
}

}  // namespace

void Admin::CreateTag(const Request& request, const PeerRights& /*rights*/, Done done) {
  Result<NewTag> tag = ReadNewTag(request);
  if (!tag.ok()) return Fail(done, tag.status());
  const Result<bool> if_absent = FlagField(request, "if_absent");
  if (!if_absent.ok()) return Fail(done, if_absent.status());
  worker_.Submit<CreatedTag>(
      [tag = std::move(tag).value(), if_absent = if_absent.value()](Store& store, HighWaterMarks&) {
        return CreateOrFind(store, tag, if_absent);
      },
      [this, done = std::move(done)](const Result<CreatedTag>& created) {
        if (!created.ok()) return Fail(done, created.status());
        const TagRecord& record = created.value().record;
        if (created.value().is_new) {
          tags_.OnTagCreated();
          log::Info("tag.created", {{"tag", record.tag}, {"step", record.step}});
        }
        done(Status::Ok(), Dump({{"tag", TagJson(record)}, {"created", created.value().is_new}}));
      });
}

void Admin::ListTags(const Request& /*request*/, const PeerRights& rights, Done done) {
  worker_.Submit<std::vector<TagRecord>>(
      [](Store& store, HighWaterMarks&) { return store.ListTags(); },
      [rights, done = std::move(done)](const Result<std::vector<TagRecord>>& records) {
        if (!records.ok()) return Fail(done, records.status());
        Json tags = Json::array();
        for (const TagRecord& record : records.value()) {
          if (rights.MaySee(record.tag)) tags.push_back(TagJson(record));
        }
        done(Status::Ok(), Dump({{"tags", std::move(tags)}}));
      });
}

void Admin::ShowTag(const Request& request, const PeerRights& /*rights*/, Done done) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return Fail(done, tag.status());
  worker_.Submit<Json>(
      [tag = std::move(tag).value()](Store& store, HighWaterMarks&) -> Result<Json> {
        const Result<TagRecord> record = store.FindTag(tag);
        if (!record.ok()) return record.status();
        const Result<std::vector<ReturnedRange>> returned = store.ListReturned(tag);
        if (!returned.ok()) return returned.status();
        Json document = TagJson(record.value());
        document["returned"] = Json::array();
        for (const ReturnedRange& range : returned.value()) {
          document["returned"].push_back(
              {{"host", range.host}, {"base", range.ids.first}, {"limit", range.ids.limit}});
        }
        return document;
      },
      [done = std::move(done)](const Result<Json>& document) {
        if (!document.ok()) return Fail(done, document.status());
        done(Status::Ok(), Dump({{"tag", document.value()}}));
      });
}

void Admin::ChangeTag(const Request& request, const PeerRights& /*rights*/, Done done) {
  Result<TagChange> change = ReadTagChange(request);
  if (!change.ok()) return Fail(done, change.status());
  worker_.Submit<TagRecord>([change = std::move(change).value()](
                                Store& store, HighWaterMarks&) { return store.ChangeTag(change); },
                            [this, done = std::move(done)](const Result<TagRecord>& record) {
                              if (!record.ok()) return Fail(done, record.status());
                              tags_.OnTagChanged(record.value());
                              log::Info("tag.changed",
                                        {{"tag", record.value().tag},
                                         {"step", record.value().step},
                                         {"access", TagAccessName(record.value().access)}});
                              done(Status::Ok(), Dump({{"tag", TagJson(record.value())}}));
                            });
}

void Admin::DeleteTag(const Request& request, const PeerRights& /*rights*/, Done done) {
  Result<std::string> tag = TagField(request);
  if (!tag.ok()) return Fail(done, tag.status());
  const auto force = request.find("force");
  if (force == request.end() || *force != true) {
    return Fail(done, {Code::kInvalid, "deleting a tag needs \"force\": true"});
  }
  // Noted as drained, or about to be by a request that came before this one.
  const bool may_be_drained = tags_.drains().Has(tag.value()) || drain_changes_ != 0 ||
                              unsure_drains_.contains(tag.value());
  const auto deleting = deleting_.insert(tag.value());
  worker_.Submit<bool>(
      [tag = tag.value(), may_be_drained](Store& store, HighWaterMarks& marks) -> Result<bool> {
        if (Status status = store.DeleteTag(tag); !status.ok()) return status;
        if (!may_be_drained) return true;
        // A namesake is another tag.
        Status forgotten = marks.SetDrained(tag, false);
        if (forgotten.ok()) return true;
        return forgotten.WithContext("the tag is deleted, and a tag of its name begins drained");
      },
      [this, deleting, tag = tag.value(), done = std::move(done)](const Result<bool>& deleted) {
        deleting_.erase(deleting);
        if (!deleted.ok()) return Fail(done, deleted.status());
        tags_.OnTagDeleted(tag);
        unsure_drains_.erase(tag);
        log::Warning("tag.deleted", {{"tag", tag}});
        done(Status::Ok(), Dump({{"deleted", tag}}));
      });
}

}  // namespace idd::daemon
