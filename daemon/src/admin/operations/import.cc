// SPDX-License-Identifier: Apache-2.0
//
// `import`: takes tags over from another id generator.
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "admin/import/import_source.h"
#include "admin/import/tag_import.h"
#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/claimable.h"
#include "platform/logging.h"
#include "refill/refill_settings.h"

namespace idd::daemon {
namespace {

constexpr std::size_t kMaxTableBytes = 256;  // 64 characters

// `own`: idd's own database, which is the source unless another is given.
Result<MysqlUrl> ReadFrom(const AdminRequest& request, const std::string& own) {
  const auto from = TextField(request, "from");
  if (!from.ok()) return from.status();
  if (from.value().has_value()) {
    return ParseMysqlUrl(*from.value());
  }
  if (own.starts_with("mysql://")) return ParseOwnMysqlUrl(own);
  return Status(Code::kInvalid,
                "idd's own database is not MySQL or MariaDB; give the source's URL with --from");
}

Result<ImportQuery> ReadImportQuery(const AdminRequest& request, const std::string& own) {
  const auto source = TextField(request, "source");
  const auto table = TextField(request, "table");
  const auto prefix = TextField(request, "prefix");
  const auto step = NumberField(request, "step");
  const auto mode = TextField(request, "mode");
  for (const Status& status :
       {source.status(), table.status(), prefix.status(), step.status(), mode.status()}) {
    if (!status.ok()) return status;
  }
  const auto known = ParseImportSource(source.value().value_or(""));
  if (!known.has_value()) {
    return Status(Code::kInvalid, "unknown source '" + source.value().value_or("") +
                                      "'; tinyid, cosid, common-sequence and flickr are known, and "
                                      "Leaf's table needs no import");
  }
  if (step.value().has_value() && (*step.value() < 1 || *step.value() > kMaxStep)) {
    return Status(Code::kInvalid, "'step' must be from 1 to " + std::to_string(kMaxStep));
  }
  ImportQuery query;
  if (mode.value().has_value()) {
    query.mode = ParseTagMode(*mode.value());
    if (!query.mode.has_value() || *query.mode == TagMode::kSnowflake) {
      return Status(Code::kInvalid, "'mode' must be segment or ticket");
    }
  }
  query.source = *known;
  query.table = table.value().value_or("");
  query.prefix = prefix.value().value_or("");
  query.step = step.value();
  if (query.table.size() > kMaxTableBytes || query.table.find('\0') != std::string::npos) {
    return Status(Code::kInvalid, "'table' is not the name of a table");
  }
  Result<MysqlUrl> from = ReadFrom(request, own);
  if (!from.ok()) return from.status();
  query.from = std::move(from).value();
  return query;
}

const char* ActionName(ImportAction action, ImportMode mode) {
  const bool is_dry = mode == ImportMode::kDryRun;
  switch (action) {
    case ImportAction::kCreated:
      return is_dry ? "would create" : "created";
    case ImportAction::kLifted:
      return is_dry ? "would lift" : "lifted";
    case ImportAction::kKept:
      return "kept";
    case ImportAction::kRefused:
      break;
  }
  return "refused";
}

Json ImportJson(const ImportReport& report, ImportSource source, ImportMode mode) {
  Json tags = Json::array();
  for (const ImportedTag& tag : report.tags) {
    const bool is_refused = tag.action == ImportAction::kRefused;
    tags.push_back({{"tag", tag.tag},
                    {"action", ActionName(tag.action, mode)},
                    {"from", tag.from.has_value() ? Json(*tag.from) : Json(nullptr)},
                    {"next_id", is_refused ? Json(nullptr) : Json(tag.next_id)},
                    {"step", is_refused ? Json(nullptr) : Json(tag.step)},
                    {"reason", OrNull(tag.reason)}});
  }
  return {{"source", ImportSourceName(source)},
          {"dry_run", mode == ImportMode::kDryRun},
          {"tags", std::move(tags)},
          {"warnings", report.warnings}};
}

// The tags that exist now.
std::vector<std::string> TagsOf(const ImportReport& report) {
  std::vector<std::string> tags;
  for (const ImportedTag& tag : report.tags) {
    if (tag.action != ImportAction::kRefused) tags.push_back(tag.tag);
  }
  return tags;
}

void LogImport(const ImportReport& report, const ImportQuery& query) {
  std::size_t refused = 0;
  for (const ImportedTag& tag : report.tags) {
    if (tag.action == ImportAction::kRefused) ++refused;
  }
  log::Info("tags.imported", {{"source", ImportSourceName(query.source)},
                              {"from", query.from.Display()},
                              {"tags", report.tags.size() - refused},
                              {"refused", refused},
                              {"warnings", report.warnings.size()}});
}

}  // namespace

void ImportTags(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
                AdminDone done) {
  Result<ImportQuery> query = ReadImportQuery(request, context.info.database);
  if (!query.ok()) return Fail(done, query.status());
  const Result<bool> is_dry = FlagField(request, "dry_run");
  if (!is_dry.ok()) return Fail(done, is_dry.status());
  const Result<std::chrono::milliseconds> wait = WaitField(request);
  if (!wait.ok()) return Fail(done, wait.status());
  const ImportMode mode = is_dry.value() ? ImportMode::kDryRun : ImportMode::kWrite;
  context.reports.Begin([&context, mode, wait = wait.value(), query = std::move(query).value(),
                         done = std::move(done)] {
    // The import outlives this call. No object owns it: each of its steps keeps it alive.
    const auto import = std::make_shared<TagImport>(
        TagImport::Means{context.loop, context.reports.thread(), context.worker}, query, mode,
        [&context, mode, wait, query, done](const Result<ImportReport>& report) {
          context.reports.Finish();
          if (!report.ok()) return Fail(done, report.status());
          Json reply = ImportJson(report.value(), query.source, mode);
          if (mode == ImportMode::kDryRun) return done(Status::Ok(), Dump(reply));
          context.tags.OnTagsCreated(TagsOf(report.value()));
          LogImport(report.value(), query);
          AwaitClaimable(context, TagsOf(report.value()), wait,
                         [done, reply](const Coverage& coverage) mutable {
                           AddClaimable(coverage, reply);
                           done(Status::Ok(), Dump(reply));
                         });
        });
    context.import = import;
    import->Start();
  });
}

}  // namespace idd::daemon
