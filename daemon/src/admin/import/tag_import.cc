// SPDX-License-Identifier: Apache-2.0
#include "admin/import/tag_import.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace idd::daemon {
namespace {

// Rows that one job of the lease worker writes, with a commit for each. Leases wait for at most one
// such job.
constexpr std::size_t kRowsAtOnce = 5;

void AddReason(ImportedTag& tag, const std::string& reason) {
  if (reason.empty()) return;
  tag.reason += (tag.reason.empty() ? "" : "; ") + reason;
}

ImportedTag Refused(const ImportRow& row, const std::string& why) {
  ImportedTag tag;
  tag.tag = row.tag;
  tag.reason = why;
  return tag;
}

// The row or the tag is wrong; any other failure is the store's.
bool IsOfTheTag(const Status& status) {
  return status.code() == Code::kInvalid || status.code() == Code::kNoSuchTag;
}

Result<ImportedTag> Create(Store& store, const ImportRow& row, ImportMode mode,
                           const std::string& description) {
  const Result<std::uint64_t> used = store.UsedLimit(row.tag);
  if (!used.ok() && IsOfTheTag(used.status())) return Refused(row, used.status().message());
  if (!used.ok()) return used.status();
  ImportedTag tag{.tag = row.tag,
                  .action = ImportAction::kCreated,
                  .from = std::nullopt,
                  .next_id = std::max(row.next_id, used.value()),
                  .step = row.step,
                  .reason = row.note,
                  .holders = {}};
  if (used.value() > row.next_id) AddReason(tag, "begins above the ids of a deleted tag");
  if (mode == ImportMode::kDryRun) return tag;
  NewTag created;
  created.tag = row.tag;
  created.mode = row.mode;
  if (row.mode == TagMode::kTicket) created.access = TagAccess::kSocket;
  created.step = row.step;
  created.start = tag.next_id;
  created.description = description;
  const Result<TagRecord> record = store.CreateTag(created);
  if (!record.ok() && IsOfTheTag(record.status())) return Refused(row, record.status().message());
  if (!record.ok()) return record.status();
  return tag;
}

// This is done even for a tag that stands high enough: if leases hand back ids below the row's next
// id, those must not be leased again.
Result<ImportedTag> Lift(Store& store, const ImportRow& row, const TagRecord& record,
                         ImportMode mode) {
  const bool is_kept = record.next_id >= row.next_id;
  ImportedTag tag{.tag = row.tag,
                  .action = is_kept ? ImportAction::kKept : ImportAction::kLifted,
                  .from = is_kept ? std::nullopt : std::optional(record.next_id),
                  .next_id = std::max(record.next_id, row.next_id),
                  .step = record.step,
                  .reason = row.note,
                  .holders = {}};
  if (row.next_id > record.max_id) {
    AddReason(tag, "no ids are left up to the tag's largest id " + std::to_string(record.max_id));
  }
  if (mode == ImportMode::kWrite) {
    const Result<TagRecord> lifted = store.LiftTag(row.tag, row.next_id);
    if (!lifted.ok() && IsOfTheTag(lifted.status())) return Refused(row, lifted.status().message());
    if (!lifted.ok()) return lifted.status();
    tag.next_id = lifted.value().next_id;
  }
  const Result<std::vector<LeaseRecord>> active =
      store.ListLeases({.tag = row.tag, .host = std::nullopt, .state = LeaseState::kActive});
  if (!active.ok()) return active.status();
  std::set<std::string> holders;
  for (const LeaseRecord& lease : active.value()) {
    if (lease.ids.first < row.next_id) holders.insert(lease.host);
  }
  tag.holders.assign(holders.begin(), holders.end());
  return tag;
}

Result<ImportedTag> ImportTag(Store& store, const ImportRow& row, const Result<TagRecord>& record,
                              ImportMode mode, const std::string& description) {
  if (record.ok()) return Lift(store, row, record.value(), mode);
  if (record.status().code() == Code::kNoSuchTag) return Create(store, row, mode, description);
  if (IsOfTheTag(record.status())) return Refused(row, record.status().message());
  return record.status();
}

// Combines the outcome of the second reading of a tag with that of the first.
void Merge(const ImportedTag& later, ImportedTag& tag) {
  const ImportedTag first = std::exchange(tag, later);
  const bool was_written =
      first.action == ImportAction::kCreated || first.action == ImportAction::kLifted;
  if (was_written && later.action != ImportAction::kRefused) {
    tag.action = first.action;
    tag.from = first.from;
  }
  AddReason(tag, "moved while importing");
}

}  // namespace

Result<std::vector<ImportedTag>> ImportTags(Store& store, const std::vector<ImportRow>& rows,
                                            ImportMode mode, const std::string& description) {
  std::vector<std::string> names;
  for (const ImportRow& row : rows) {
    if (row.refusal.ok()) names.push_back(row.tag);
  }
  const Result<Store::TagResults> records = store.FindTags(names);
  if (!records.ok()) return records.status();
  auto record = records.value().begin();
  std::vector<ImportedTag> tags;
  for (const ImportRow& row : rows) {
    if (!row.refusal.ok()) {
      tags.push_back(Refused(row, row.refusal.message()));
      continue;
    }
    Result<ImportedTag> tag = ImportTag(store, row, *record++, mode, description);
    if (!tag.ok()) return tag.status();
    tags.push_back(std::move(tag).value());
  }
  return tags;
}

TagImport::TagImport(Means means, ImportQuery query, ImportMode mode, Done done)
    : means_(means), query_(std::move(query)), mode_(mode), done_(std::move(done)) {}

void TagImport::Start() {
  Read([self = shared_from_this()](Result<Rows> rows) {
    if (!rows.ok()) return self->done_(rows.status());
    self->rows_ = std::move(rows).value();
    self->Write(0);
  });
}

void TagImport::Read(std::function<void(Result<Rows>)> then) {
  means_.reader.Post([self = shared_from_this(), then = std::move(then)] {
    self->means_.loop.Post([then, rows = ReadImportSource(self->query_)] { then(rows); });
  });
}

void TagImport::Write(std::size_t begin) {
  const std::size_t end = std::min(begin + kRowsAtOnce, rows_.size());
  const auto at = [this](std::size_t i) { return rows_.begin() + static_cast<std::ptrdiff_t>(i); };
  means_.worker.Submit<std::vector<ImportedTag>>(
      [rows = Rows(at(begin), at(end)), mode = mode_, source = query_.source](Store& store,
                                                                              HighWaterMarks&) {
        return ImportTags(store, rows, mode, std::string("from ") + ImportSourceName(source));
      },
      [self = shared_from_this(), end](Result<std::vector<ImportedTag>> tags) {
        self->OnWritten(end, std::move(tags));
      });
}

void TagImport::OnWritten(std::size_t end, Result<std::vector<ImportedTag>> tags) {
  if (!tags.ok()) {
    return done_(tags.status().WithContext(std::to_string(report_.tags.size()) + " of " +
                                           std::to_string(rows_.size()) + " rows were imported"));
  }
  for (ImportedTag& tag : tags.value()) report_.tags.push_back(std::move(tag));
  if (end < rows_.size()) return Write(end);
  if (mode_ == ImportMode::kDryRun) return Finish();
  Read([self = shared_from_this()](const Result<Rows>& again) { self->OnReadAgain(again); });
}

// A server of the source that still runs has leased ids meanwhile, which this second reading shows.
void TagImport::OnReadAgain(const Result<Rows>& again) {
  if (!again.ok()) {
    report_.warnings.push_back("it is not known whether rows moved while importing: " +
                               again.status().message());
    return Finish();
  }
  std::map<std::string_view, const ImportRow*> first;
  for (const ImportRow& row : rows_) first[row.tag] = &row;
  Rows moved;
  for (const ImportRow& row : again.value()) {
    const auto before = first.find(row.tag);
    const bool is_new = before == first.end() || !before->second->refusal.ok();
    if (row.refusal.ok() && (is_new || row.next_id > before->second->next_id)) moved.push_back(row);
  }
  if (moved.empty()) return Finish();
  report_.warnings.push_back(std::to_string(moved.size()) + (moved.size() == 1 ? " row" : " rows") +
                             " moved while importing (" +
                             (moved.size() == 1 ? "" : "the first is ") + "'" + moved.front().tag +
                             "'): is a server of " + ImportSourceName(query_.source) +
                             " still running? Stop it and import again, or ids come twice");
  means_.worker.Submit<std::vector<ImportedTag>>(
      [moved, source = query_.source](Store& store, HighWaterMarks&) {
        return ImportTags(store, moved, ImportMode::kWrite,
                          std::string("from ") + ImportSourceName(source));
      },
      [self = shared_from_this(), moved](const Result<std::vector<ImportedTag>>& tags) {
        self->OnRewritten(moved, tags);
      });
}

void TagImport::OnRewritten(const Rows& moved, const Result<std::vector<ImportedTag>>& tags) {
  if (!tags.ok()) {
    return done_(tags.status().WithContext("rows that moved while importing (" +
                                           std::to_string(moved.size()) +
                                           ") could not be written"));
  }
  std::map<std::string, std::size_t, std::less<>> places;
  for (std::size_t i = 0; i < report_.tags.size(); ++i) places[report_.tags[i].tag] = i;
  for (const ImportedTag& tag : tags.value()) {
    const auto place = places.find(tag.tag);
    if (place == places.end()) {
      report_.tags.push_back(tag);
    } else {
      Merge(tag, report_.tags[place->second]);
    }
  }
  Finish();
}

void TagImport::Finish() {
  for (const ImportedTag& tag : report_.tags) {
    if (tag.holders.empty()) continue;
    std::string hosts;
    for (const std::string& host : tag.holders) hosts += (hosts.empty() ? "" : ", ") + host;
    report_.warnings.push_back(
        "tag '" + tag.tag + "': leases that begin below what the source had are in use by " +
        hosts + "; run 'idctl drain " + tag.tag + "' and 'idctl resume " + tag.tag +
        "' there, or those ids go on being handed out, also after a restart");
  }
  done_(report_);
}

}  // namespace idd::daemon
