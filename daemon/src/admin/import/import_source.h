// SPDX-License-Identifier: Apache-2.0
//
// Reads the tables of other id generators, which lease from a MySQL-protocol database, so that
// their tags can be taken over.
#ifndef IDD_DAEMON_ADMIN_IMPORT_IMPORT_SOURCE_H_
#define IDD_DAEMON_ADMIN_IMPORT_IMPORT_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idd/base/status.h"
#include "sql/mysql_url.h"
#include "store/tag_record.h"

namespace idd::daemon {

enum class ImportSource {
  kTinyid,          // didi/tinyid's tiny_id_info
  kCosid,           // Ahoo-Wang/CosId's cosid
  kCommonSequence,  // common_sequence, by service and business
  kFlickr,          // a ticket server's Tickets64
};
[[nodiscard]] const char* ImportSourceName(ImportSource source) noexcept;  // "tinyid", ...
[[nodiscard]] std::optional<ImportSource> ParseImportSource(std::string_view name) noexcept;

inline constexpr std::size_t kMaxImportRows = 100'000;

struct ImportQuery {
  ImportSource source = ImportSource::kTinyid;
  MysqlUrl from;
  std::string table;                  // empty: the source's default name
  std::string prefix;                 // of the tags, before the names of the rows
  std::optional<std::uint64_t> step;  // nothing: the row's, or the default where it has none
  std::optional<TagMode> mode;        // of tags that are created; nothing: as the source's
};

struct ImportRow {
  std::string tag;
  std::uint64_t next_id = 0;  // above every id that the source may have handed out
  std::uint64_t step = 0;
  TagMode mode = TagMode::kSegment;
  std::string note;  // what an operator should know of it; may be empty
  Status refusal;    // not ok: why the row makes no tag; the numbers are then invalid
};

// Reads the table over a connection of its own; blocks for as long as MysqlDb does. The rows are in
// the order of their tags. kInvalid: the table is missing, empty, too large or not the source's;
// kSystem: it cannot be read. No message contains the password.
[[nodiscard]] Result<std::vector<ImportRow>> ReadImportSource(const ImportQuery& query);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_IMPORT_IMPORT_SOURCE_H_
