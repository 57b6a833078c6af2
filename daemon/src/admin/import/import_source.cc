// SPDX-License-Identifier: Apache-2.0
#include "admin/import/import_source.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "refill/refill_settings.h"
#include "sql/mysql_db.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// The columns that are read. An empty name stands for a column that the source does not have, and a
// table may lack the last two. A generator raises a row's `last` before it hands out the ids up to
// it, so no id above `last` was handed out.
struct Layout {
  ImportSource source;
  const char* name;
  const char* table;
  const char* name_column;         // empty: the table is one sequence; the tag has its name
  const char* second_name_column;  // a tag is then "name.second name"
  const char* last_column;
  const char* step_column;
  const char* begin_column;  // ids may have begun only above it
  const char* delta_column;  // above 1 the ids are shared out among several databases
  TagMode mode = TagMode::kSegment;
};
constexpr std::array kLayouts = {
    Layout{ImportSource::kTinyid, "tinyid", "tiny_id_info", "biz_type", "", "max_id", "step",
           "begin_id", "delta"},
    Layout{ImportSource::kCosid, "cosid", "cosid", "name", "", "last_max_id", "", "", ""},
    Layout{ImportSource::kCommonSequence, "common-sequence", "common_sequence", "service_name",
           "business_name", "current_max_id", "step", "", ""},
    Layout{ImportSource::kFlickr, "flickr", "Tickets64", "", "", "id", "", "",
           "auto_increment_increment", TagMode::kTicket},
};
// Their order in the rows of Select().
enum SourceColumn {
  kNameColumn,
  kSecondNameColumn,
  kLastColumn,
  kStepColumn,
  kBeginColumn,
  kDeltaColumn
};

const Layout& LayoutOf(ImportSource source) {
  return *std::find_if(kLayouts.begin(), kLayouts.end(),
                       [source](const Layout& layout) { return layout.source == source; });
}

using ColumnTypes = std::map<std::string, std::string, std::less<>>;  // by name, in lower case

bool IsOneOf(const std::string& type, std::initializer_list<const char*> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

Status CheckColumns(const Layout& layout, const std::string& table, const ColumnTypes& types) {
  const auto check = [&](const char* name, bool is_number) -> Status {
    if (*name == '\0') return Status::Ok();
    const auto type = types.find(name);
    if (type == types.end()) {
      return {Code::kInvalid, "table '" + table + "' has no column " + name +
                                  "; it is not a table of " + layout.name};
    }
    const bool fits =
        is_number ? IsOneOf(type->second, {"tinyint", "smallint", "mediumint", "int", "bigint"})
                  : IsOneOf(type->second, {"char", "varchar", "tinytext", "text", "mediumtext"});
    if (fits) return Status::Ok();
    return {Code::kInvalid, "column " + std::string(name) + " of table '" + table + "' is a " +
                                type->second + "; it must be " +
                                (is_number ? "an integer" : "a text")};
  };
  for (const char* name : {layout.name_column, layout.second_name_column}) {
    if (Status status = check(name, false); !status.ok()) return status;
  }
  for (const char* name : {layout.last_column, layout.step_column}) {
    if (Status status = check(name, true); !status.ok()) return status;
  }
  for (const char* name : {layout.begin_column, layout.delta_column}) {
    if (!types.contains(name)) continue;
    if (Status status = check(name, true); !status.ok()) return status;
  }
  return Status::Ok();
}

// The newest row may have been rolled back or deleted, but its number was used.
std::string SelectAutoIncrement(const Layout& layout, const std::string& table,
                                const std::string& quoted) {
  return "SELECT " + MysqlDb::Text(table) + ", '', GREATEST(COALESCE(MAX(`" + layout.last_column +
         "`), 0), COALESCE((SELECT auto_increment FROM information_schema.tables"
         " WHERE table_schema = DATABASE() AND table_name = " +
         MysqlDb::Text(table) + "), 1) - 1), 0, 0, @@global.auto_increment_increment FROM `" +
         quoted + "`";
}

std::string Select(const Layout& layout, const std::string& table, const ColumnTypes& types) {
  const auto column = [&](const char* name, const char* otherwise) {
    return types.contains(name) ? "`" + std::string(name) + "`" : std::string(otherwise);
  };
  std::string quoted;
  for (const char c : table) quoted += c == '`' ? "``" : std::string(1, c);
  if (*layout.name_column == '\0') return SelectAutoIncrement(layout, table, quoted);
  return "SELECT " + column(layout.name_column, "''") + ", " +
         column(layout.second_name_column, "''") + ", " + column(layout.last_column, "0") + ", " +
         column(layout.step_column, "0") + ", " + column(layout.begin_column, "0") + ", " +
         column(layout.delta_column, "1") + " FROM `" + quoted + "` LIMIT " +
         std::to_string(kMaxImportRows + 1);
}

// The largest value of a row above which there is still an id.
constexpr std::uint64_t kLargestLast = kMaxId - 1;

Status ReadNumbers(const Layout& layout, const ImportQuery& query, const MysqlRow& row,
                   ImportRow& read) {
  for (const SourceColumn column : {kLastColumn, kBeginColumn}) {
    const char* const name = column == kLastColumn ? layout.last_column : layout.begin_column;
    const std::optional<std::uint64_t> last = row.UintIf(column);
    if (!last.has_value() || *last > kLargestLast) {
      return {Code::kInvalid, std::string(name) + " is " + row.Describe(column) +
                                  "; it must be a whole number from 0 to " +
                                  std::to_string(kLargestLast)};
    }
    read.next_id = std::max(read.next_id, *last + 1);
  }
  const bool has_step = *layout.step_column != '\0';
  read.step = query.step.value_or(has_step ? row.UintIf(kStepColumn).value_or(0) : kDefaultStep);
  if (read.step < 1 || read.step > kMaxStep) {
    return {Code::kInvalid, "step is " + row.Describe(kStepColumn) + "; it must be from 1 to " +
                                std::to_string(kMaxStep) + ", or give --step"};
  }
  if (row.UintIf(kDeltaColumn).value_or(1) > 1) {
    read.note = std::string(layout.delta_column) + " is " + row.Describe(kDeltaColumn) +
                ": import the source's other databases as well";
  }
  return Status::Ok();
}

ImportRow ReadRow(const Layout& layout, const ImportQuery& query, const MysqlRow& row) {
  ImportRow read;
  read.mode = query.mode.value_or(layout.mode);
  const bool has_second = *layout.second_name_column != '\0';
  read.tag = query.prefix + row.TextIf(kNameColumn).value_or("");
  if (has_second) read.tag += "." + row.TextIf(kSecondNameColumn).value_or("");
  if (row.IsNull(kNameColumn) || row.IsNull(kSecondNameColumn)) {
    read.refusal = {
        Code::kInvalid,
        std::string(row.IsNull(kNameColumn) ? layout.name_column : layout.second_name_column) +
            " is NULL"};
    return read;
  }
  read.refusal = CheckNewTagName(read.tag);
  if (read.refusal.ok()) read.refusal = ReadNumbers(layout, query, row, read);
  return read;
}

// Two sequences must not become one tag: it would be unknown which ids belong to which.
void RefuseNamesakes(std::vector<ImportRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ImportRow& a, const ImportRow& b) { return a.tag < b.tag; });
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].tag != rows[i - 1].tag) continue;
    for (ImportRow* row : {&rows[i - 1], &rows[i]}) {
      if (!row->refusal.ok()) continue;
      row->refusal = {Code::kInvalid, "more than one row makes a tag of this name"};
    }
  }
}

Result<std::vector<ImportRow>> ReadTable(const ImportQuery& query, MysqlDb& db) {
  const Layout& layout = LayoutOf(query.source);
  const std::string table = query.table.empty() ? layout.table : query.table;
  const Result<MysqlResult> columns = db.Query(
      "SELECT LOWER(column_name), LOWER(data_type) FROM information_schema.columns"
      " WHERE table_schema = DATABASE() AND table_name = " +
      MysqlDb::Text(table));
  if (!columns.ok()) return columns.status();
  ColumnTypes types;
  for (const auto& cells : columns.value().rows)
    types[cells[0].value_or("")] = cells[1].value_or("");
  if (types.empty()) {
    return Status(Code::kInvalid, "there is no table '" + table +
                                      "' that the user may read; check its name, or grant SELECT");
  }
  if (Status status = CheckColumns(layout, table, types); !status.ok()) return status;
  const Result<MysqlResult> found = db.Query(Select(layout, table, types));
  if (!found.ok()) return found.status();
  if (found.value().rows.empty()) {
    return Status(Code::kInvalid, "table '" + table + "' has no rows; there is nothing to import");
  }
  if (found.value().rows.size() > kMaxImportRows) {
    return Status(Code::kInvalid, "table '" + table + "' has more than " +
                                      std::to_string(kMaxImportRows) +
                                      " rows; move some of them to a table of their own");
  }
  std::vector<ImportRow> rows;
  for (const auto& cells : found.value().rows) {
    rows.push_back(ReadRow(layout, query, MysqlRow(cells)));
  }
  RefuseNamesakes(rows);
  return rows;
}

}  // namespace

const char* ImportSourceName(ImportSource source) noexcept { return LayoutOf(source).name; }

std::optional<ImportSource> ParseImportSource(std::string_view name) noexcept {
  for (const Layout& layout : kLayouts) {
    if (name == layout.name) return layout.source;
  }
  return std::nullopt;
}

Result<std::vector<ImportRow>> ReadImportSource(const ImportQuery& query) {
  Status refusal;
  for (const MysqlEndpoint& endpoint : query.from.endpoints) {
    const Result<std::unique_ptr<MysqlDb>> db = MysqlDb::Connect(query.from, endpoint);
    refusal = db.status();
    if (!db.ok()) continue;
    Result<std::vector<ImportRow>> rows = ReadTable(query, *db.value());
    if (rows.ok()) return rows;
    refusal = rows.status();
    break;
  }
  // The codes for an unavailable or incompatible store mean idd's own store, which is not at fault
  // here.
  const Code code = refusal.code() == Code::kInvalid ? Code::kInvalid : Code::kSystem;
  return Status(code, "cannot import from " + query.from.Display() + ": " + refusal.message());
}

}  // namespace idd::daemon
