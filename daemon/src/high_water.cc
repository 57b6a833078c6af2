// SPDX-License-Identifier: Apache-2.0
#include "high_water.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "idd/shm/abi.h"
#include "random.h"
#include "store/sqlite_db.h"

namespace idd::daemon {
namespace {

constexpr std::string_view kIncarnationKey = "incarnation";
constexpr std::string_view kHostIdKey = "host_id";
constexpr std::string_view kHeldListKey = "held_list";

constexpr const char* kMarksSchema = R"sql(
-- Every id of the tag that this host ever handed out lies below mark.
CREATE TABLE idd_mark(
  biz_tag TEXT PRIMARY KEY NOT NULL,
  mark    INTEGER NOT NULL CHECK(mark >= 0)
) STRICT;

-- 'incarnation': of the allocator's data set; 'host_id': this host's random name; 'held_list': the id
-- of the list of held leases that the last run kept.
CREATE TABLE idd_meta(
  key   TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;
)sql";

// Made with the first drain: a file of an idd that knew of none is as good as one without any, and
// an older idd that finds it leaves it alone.
constexpr const char* kDrainTable = R"sql(
CREATE TABLE IF NOT EXISTS idd_drain(
  biz_tag TEXT PRIMARY KEY NOT NULL,  -- '': the whole host
  since   TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT
)sql";

Status CheckNothing(SqliteDb& /*db*/) { return Status::Ok(); }

Status CheckMarkTables(SqliteDb& db) {
  SqliteQuery query = db.Query(
      "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN"
      " ('idd_mark', 'idd_meta')");
  const bool complete = query.Next() && query.Uint(0) == 2;
  if (!query.Finish().ok() || complete) return query.Finish();
  return {Code::kIncompatible, "'" + db.path() +
                                   "' lacks some of its tables; restore it from a "
                                   "backup; idd does not repair it"};
}

constexpr SqliteFormat kHighWaterFormat = {
    .what = "a file of idd's high-water marks",
    .application_id = 0x49444448,  // "IDDH"
    .version = 1,
    .own_tables = "*",
    .schema = kMarksSchema,
    .check_adoptable = CheckNothing,
    .check_complete = CheckMarkTables,
};

class SqliteHighWaterMarks final : public HighWaterMarks {
 public:
  explicit SqliteHighWaterMarks(std::unique_ptr<SqliteDb> db) : db_(std::move(db)) {}

  Result<std::uint64_t> Get(const std::string& tag) override {
    SqliteQuery query = db_->Query("SELECT mark FROM idd_mark WHERE biz_tag = ?1", tag);
    const std::uint64_t mark = query.Next() ? query.Uint(0) : 0;
    if (!query.Finish().ok()) return query.Finish().WithContext("idd_mark of tag '" + tag + "'");
    return mark;
  }

  Result<std::vector<TagMark>> All() override {
    SqliteQuery query = db_->Query("SELECT biz_tag, mark FROM idd_mark ORDER BY biz_tag");
    std::vector<TagMark> marks;
    while (query.Next()) {
      const std::optional<std::string> tag = query.TextIf(0);
      const std::optional<std::uint64_t> mark = query.UintIf(1);
      // A row that makes no sense stops its own tag alone: Get() says so before each lease.
      if (tag.has_value() && mark.has_value()) marks.push_back({.tag = *tag, .mark = *mark});
    }
    if (!query.Finish().ok()) return query.Finish();
    return marks;
  }

  Status RaiseAll(const std::vector<TagMark>& marks) override {
    for (const TagMark& mark : marks) {
      if (Status status = CheckMark(mark); !status.ok()) return status;
    }
    return Write([&]() -> Status {
      for (const TagMark& mark : marks) {
        Status status = db_->Run(
            "INSERT INTO idd_mark(biz_tag, mark) VALUES(?1, ?2)"
            " ON CONFLICT(biz_tag) DO UPDATE SET mark = excluded.mark WHERE excluded.mark > mark",
            mark.tag, mark.mark);
        if (!status.ok()) return status;
      }
      return Status::Ok();
    });
  }

  Status Lower(const std::string& tag, std::uint64_t mark) override {
    if (Status status = CheckMark({.tag = tag, .mark = mark}); !status.ok()) return status;
    return WriteRow("UPDATE idd_mark SET mark = ?2 WHERE biz_tag = ?1 AND mark > ?2", tag, mark);
  }

  Result<std::string> Incarnation() override { return ReadMeta(kIncarnationKey); }

  Status SetIncarnation(const std::string& incarnation) override {
    return WriteMeta(kIncarnationKey, incarnation);
  }

  Result<std::string> HeldList() override { return ReadMeta(kHeldListKey); }

  Status SetHeldList(const std::string& id) override { return WriteMeta(kHeldListKey, id); }

  Result<std::vector<std::string>> Drained() override {
    std::vector<std::string> scopes;
    const Result<bool> has_table = HasDrainTable();
    if (!has_table.ok()) return has_table.status();
    if (!has_table.value()) return scopes;
    SqliteQuery query = db_->Query("SELECT biz_tag FROM idd_drain");
    while (query.Next()) scopes.push_back(query.Text(0));
    if (!query.Finish().ok()) return query.Finish().WithContext("idd_drain");
    return scopes;
  }

  Status SetDrained(const std::string& scope, bool is_drained) override {
    return Write([&]() -> Status {
      if (Status status = db_->Run(kDrainTable); !status.ok()) return status;
      if (!is_drained) return db_->Run("DELETE FROM idd_drain WHERE biz_tag = ?1", scope);
      return db_->Run("INSERT OR IGNORE INTO idd_drain(biz_tag) VALUES(?1)", scope);
    });
  }

  Result<std::string> FallbackHostId() override {
    Result<std::string> kept = ReadMeta(kHostIdKey);
    if (!kept.ok() || !kept.value().empty()) return kept;
    // Two that start at once must agree: the first one's name stands.
    Status status = WriteRow("INSERT OR IGNORE INTO idd_meta(key, value) VALUES(?1, ?2)",
                             kHostIdKey, RandomToken());
    if (!status.ok()) return status;
    return ReadMeta(kHostIdKey);
  }

 private:
  Result<bool> HasDrainTable() {
    SqliteQuery query = db_->Query(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'idd_drain'");
    const bool has_table = query.Next() && query.Uint(0) == 1;
    if (!query.Finish().ok()) return query.Finish();
    return has_table;
  }

  Status WriteMeta(std::string_view key, const std::string& value) {
    return WriteRow(
        "INSERT INTO idd_meta(key, value) VALUES(?1, ?2)"
        " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        key, value);
  }

  static Status CheckMark(const TagMark& mark) {
    if (mark.mark <= shm::kMaxLimit) return Status::Ok();
    return {Code::kInvalid, "the high-water mark of tag '" + mark.tag + "' cannot be " +
                                std::to_string(mark.mark) + ", which lies beyond 2^63-1"};
  }

  template <typename... Args>
  Status WriteRow(std::string_view sql, const Args&... args) {
    return Write([&] { return db_->Run(sql, args...); });
  }

  template <typename Body>
  Status Write(const Body& body) {
    if (Status status = OpenAgainIfNeeded(); !status.ok()) return status;
    return db_->InTransaction(body);
  }

  // After a COMMIT of unknown outcome only. A file that was replaced is not opened: its marks may
  // be lower than those that this daemon relied on, and that is for an operator to know.
  Status OpenAgainIfNeeded() {
    if (!db_->commit_outcome_unknown()) return Status::Ok();
    if (Status status = db_->CheckNotReplaced(); !status.ok()) {
      return status.WithContext("the high-water marks are gone, restart idd");
    }
    SqliteFormat format = kHighWaterFormat;
    format.may_create = false;
    Result<std::unique_ptr<SqliteDb>> again = SqliteDb::Open(db_->path(), format);
    if (!again.ok()) return again.status();
    db_ = std::move(again).value();
    return Status::Ok();
  }

  // Empty when there is none.
  Result<std::string> ReadMeta(std::string_view key) {
    SqliteQuery query = db_->Query("SELECT value FROM idd_meta WHERE key = ?1", key);
    std::string value = query.Next() ? query.Text(0) : "";
    if (!query.Finish().ok()) return query.Finish();
    return value;
  }

  std::unique_ptr<SqliteDb> db_;
};

}  // namespace

Result<std::unique_ptr<HighWaterMarks>> HighWaterMarks::Open(const std::string& state_dir) {
  Result<std::unique_ptr<SqliteDb>> db =
      SqliteDb::Open(state_dir + "/high-water.db", kHighWaterFormat);
  if (db.ok()) {
    return std::unique_ptr<HighWaterMarks>(
        std::make_unique<SqliteHighWaterMarks>(std::move(db).value()));
  }
  const Status& why = db.status();
  const Code code = why.code() == Code::kIncompatible ? Code::kIncompatible : Code::kSystem;
  return Status(code, "the high-water marks cannot be used: " + why.message());
}

}  // namespace idd::daemon
