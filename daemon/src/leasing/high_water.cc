// SPDX-License-Identifier: Apache-2.0
#include "leasing/high_water.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "idd/shm/abi.h"
#include "platform/random.h"
#include "sql/sqlite_db.h"

namespace idd::daemon {
namespace {

constexpr std::string_view kIncarnationKey = "incarnation";
constexpr std::string_view kDatabaseKey = "database";
constexpr std::string_view kHostIdKey = "host_id";
constexpr std::string_view kHeldListKey = "held_list";
// Exists while marks may be missing from the file (see RaiseAll()).
constexpr std::string_view kPutOffKey = "marks_put_off";
constexpr std::string_view kRunNumberKey = "run_number";

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

// Made with the first drain: a file without the table has no drains, and an older idd ignores the
// table.
constexpr const char* kDrainTable = R"sql(
CREATE TABLE IF NOT EXISTS idd_drain(
  biz_tag TEXT PRIMARY KEY NOT NULL,  -- '': the whole host
  since   TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT
)sql";

// Made with the first membership, for the same reasons.
constexpr const char* kCeilingTable = R"sql(
CREATE TABLE IF NOT EXISTS idd_ceiling(
  biz_tag TEXT PRIMARY KEY NOT NULL,
  ceiling INTEGER NOT NULL CHECK(ceiling >= 0),
  mark    INTEGER NOT NULL DEFAULT 0 CHECK(mark >= 0)  -- the ceiling when a data set was replaced
) STRICT
)sql";
// An older idd noted the members in idd_member, without their runs. The first write drops that.
constexpr const char* kMemberTable = R"sql(
CREATE TABLE IF NOT EXISTS idd_live_member(
  host      TEXT PRIMARY KEY NOT NULL,
  silence_s INTEGER NOT NULL CHECK(silence_s >= 0),
  run       TEXT NOT NULL
) STRICT
)sql";
constexpr const char* kMembershipTable = R"sql(
CREATE TABLE IF NOT EXISTS idd_membership(
  id           INTEGER PRIMARY KEY CHECK(id = 1),
  is_live      INTEGER NOT NULL,
  incarnation  TEXT NOT NULL,
  server       TEXT NOT NULL,
  boot_id      TEXT NOT NULL,
  confirmed_ms INTEGER NOT NULL CHECK(confirmed_ms >= 0),
  beat         INTEGER NOT NULL CHECK(beat >= 0)
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

  ~SqliteHighWaterMarks() override {
    // If this fails, the next run raises the marks to the ceilings.
    if (raises_ == Raises::kPutOff) static_cast<void>(WriteAllMarks());
  }

  // A run that was killed may have put off marks. They lie below the noted ceilings.
  Status RecoverMarks() {
    const Result<std::string> put_off = ReadMeta(kPutOffKey);
    if (!put_off.ok() || put_off.value().empty()) return put_off.status();
    Status status = RaiseToCeilings();
    return status.ok() ? WriteAllMarks() : status;
  }

  Result<std::uint64_t> Get(const std::string& tag) override {
    const Result<bool> has_ceilings = HasCeilings();
    if (!has_ceilings.ok()) return has_ceilings.status();
    std::uint64_t highest = 0;
    for (const char* table : {"idd_mark", "idd_ceiling"}) {
      if (table != std::string_view("idd_mark") && !has_ceilings.value()) break;
      SqliteQuery query =
          db_->Query("SELECT mark FROM " + std::string(table) + " WHERE biz_tag = ?1", tag);
      if (query.Next()) highest = std::max(highest, query.Uint(0));
      if (!query.Finish().ok()) {
        return query.Finish().WithContext(std::string(table) + " of tag '" + tag + "'");
      }
    }
    const auto put_off = put_off_.find(tag);
    return put_off == put_off_.end() ? highest : std::max(highest, put_off->second);
  }

  // An invalid row stops only its own tag: Get() reports it before each lease.
  Result<std::vector<TagMark>> All() override {
    const Result<bool> has_ceilings = HasCeilings();
    if (!has_ceilings.ok()) return has_ceilings.status();
    if (!has_ceilings.value()) return Own();
    return AddPutOff(
        ReadMarks("SELECT biz_tag, max(mark) FROM (SELECT biz_tag, mark FROM idd_mark UNION ALL"
                  " SELECT biz_tag, mark FROM idd_ceiling WHERE mark > 0) GROUP BY biz_tag"
                  " ORDER BY biz_tag"));
  }

  Result<std::vector<TagMark>> Own() override {
    return AddPutOff(ReadMarks("SELECT biz_tag, mark FROM idd_mark ORDER BY biz_tag"));
  }

  Result<std::vector<TagMark>> Ceilings() override {
    const Result<bool> has_ceilings = HasCeilings();
    if (!has_ceilings.ok()) return has_ceilings.status();
    if (!has_ceilings.value()) return std::vector<TagMark>();
    return ReadMarks("SELECT biz_tag, ceiling FROM idd_ceiling ORDER BY biz_tag");
  }

  Status NoteCeilings(const std::vector<TagMark>& ceilings) override {
    for (const TagMark& ceiling : ceilings) {
      if (Status status = CheckMark(ceiling); !status.ok()) return status;
    }
    return Write([&]() -> Status {
      if (Status status = db_->Run(kCeilingTable); !status.ok()) return status;
      has_ceilings_.reset();  // a rollback would undo the table
      for (const TagMark& ceiling : ceilings) {
        Status status = db_->Run(
            "INSERT INTO idd_ceiling(biz_tag, ceiling) VALUES(?1, ?2) ON CONFLICT(biz_tag)"
            " DO UPDATE SET ceiling = excluded.ceiling WHERE excluded.ceiling > ceiling",
            ceiling.tag, ceiling.mark);
        if (!status.ok()) return status;
      }
      return Status::Ok();
    });
  }

  Status RaiseToCeilings() override {
    const Result<bool> has_ceilings = HasCeilings();
    if (!has_ceilings.ok()) return has_ceilings.status();
    if (!has_ceilings.value()) return Status::Ok();
    return WriteRow("UPDATE idd_ceiling SET mark = ceiling WHERE mark < ceiling");
  }

  Result<MemberList> Members() override {
    MemberList members;
    const Result<bool> has_older = HasTable("idd_member");
    if (!has_older.ok()) return has_older.status();
    const Result<bool> has_table = HasTable("idd_live_member");
    if (!has_table.ok()) return has_table.status();
    if (!has_older.value() && !has_table.value()) return members;
    SqliteQuery query =
        db_->Query(has_older.value() ? "SELECT host, silence_s, '' FROM idd_member"
                                     : "SELECT host, silence_s, run FROM idd_live_member");
    while (query.Next()) {
      members[query.Text(0)] = {.silence_s = static_cast<std::int64_t>(query.Uint(1)),
                                .run = query.Text(2)};
    }
    if (!query.Finish().ok()) return query.Finish().WithContext("the members of the fence");
    return members;
  }

  Status SetMembers(const MemberList& members) override {
    return Write([&]() -> Status {
      if (Status status = db_->Run(kMemberTable); !status.ok()) return status;
      if (Status status = db_->Run("DROP TABLE IF EXISTS idd_member"); !status.ok()) return status;
      if (Status status = db_->Run("DELETE FROM idd_live_member"); !status.ok()) return status;
      for (const auto& [host, member] : members) {
        Status status =
            db_->Run("INSERT INTO idd_live_member(host, silence_s, run) VALUES(?1, ?2, ?3)", host,
                     static_cast<std::uint64_t>(member.silence_s), member.run);
        if (!status.ok()) return status;
      }
      return Status::Ok();
    });
  }

  Result<std::uint64_t> NextRunNumber(std::uint64_t above) override {
    const Result<std::string> last = ReadMeta(kRunNumberKey);
    if (!last.ok()) return last.status();
    std::uint64_t number = 0;
    const char* const end = last.value().data() + last.value().size();
    if (!last.value().empty() && std::from_chars(last.value().data(), end, number).ptr != end) {
      return Status(Code::kInvalid, "idd_meta: run_number is no number");
    }
    number = std::max(number, above) + 1;
    if (Status status = WriteMeta(kRunNumberKey, std::to_string(number)); !status.ok()) {
      return status.WithContext("the number of this host's next state cannot be kept");
    }
    return number;
  }

  Result<Membership> GetMembership() override {
    const Result<bool> has_table = HasTable("idd_membership");
    if (!has_table.ok()) return has_table.status();
    if (!has_table.value()) return Membership();
    SqliteQuery query = db_->Query(
        "SELECT is_live, incarnation, server, boot_id, confirmed_ms, beat FROM idd_membership");
    Membership membership;
    if (query.Next()) {
      membership = {.is_live = query.Uint(0) == 1,
                    .incarnation = query.Text(1),
                    .server = query.Text(2),
                    .boot_id = query.Text(3),
                    .confirmed_ms = static_cast<std::int64_t>(query.Uint(4)),
                    .beat = query.Uint(5)};
    }
    if (!query.Finish().ok()) return query.Finish().WithContext("idd_membership");
    return membership;
  }

  Status SetMembership(const Membership& membership) override {
    return Write([&]() -> Status {
      if (Status status = db_->Run(kMembershipTable); !status.ok()) return status;
      return db_->Run(
          "INSERT OR REPLACE INTO idd_membership(id, is_live, incarnation, server, boot_id,"
          " confirmed_ms, beat) VALUES(1, ?1, ?2, ?3, ?4, ?5, ?6)",
          std::uint64_t{membership.is_live ? 1U : 0U}, membership.incarnation, membership.server,
          membership.boot_id, static_cast<std::uint64_t>(membership.confirmed_ms), membership.beat);
    });
  }

  Status RaiseAll(const std::vector<TagMark>& marks) override {
    for (const TagMark& mark : marks) {
      if (Status status = CheckMark(mark); !status.ok()) return status;
    }
    // The first raise is written in any case.
    const Result<bool> are_below_ceilings =
        raises_ == Raises::kNone ? Result<bool>(false) : AreBelowCeilings(marks);
    if (!are_below_ceilings.ok()) return are_below_ceilings.status();
    if (are_below_ceilings.value() && raises_ == Raises::kPutOff) {
      for (const TagMark& mark : marks) {
        std::uint64_t& put_off = put_off_[mark.tag];
        put_off = std::max(put_off, mark.mark);
      }
      return Status::Ok();
    }
    const bool puts_off = are_below_ceilings.value() && raises_ == Raises::kOne;
    Status status = Write([&]() -> Status {
      for (const TagMark& mark : marks) {
        if (Status raised = WriteMark(mark.tag, mark.mark); !raised.ok()) return raised;
      }
      return puts_off ? SetMeta(kPutOffKey, "1") : Status::Ok();
    });
    if (!status.ok() || raises_ == Raises::kPutOff) return status;
    raises_ = puts_off ? Raises::kPutOff : Raises::kOne;
    return status;
  }

  Status Flush() override {
    if (!put_off_.empty()) return Write([] { return Status::Ok(); });
    if (raises_ == Raises::kPutOff) return WriteAllMarks();
    raises_ = Raises::kNone;
    return Status::Ok();
  }

  Status Lower(const std::string& tag, std::uint64_t mark) override {
    if (Status status = CheckMark({.tag = tag, .mark = mark}); !status.ok()) return status;
    return WriteRow("UPDATE idd_mark SET mark = ?2 WHERE biz_tag = ?1 AND mark > ?2", tag, mark);
  }

  Result<std::string> Incarnation() override { return ReadMeta(kIncarnationKey); }

  Status SetIncarnation(const std::string& incarnation) override {
    return WriteMeta(kIncarnationKey, incarnation);
  }

  Result<std::string> Database() override { return ReadMeta(kDatabaseKey); }

  Status SetDatabase(const std::string& display_url) override {
    return WriteMeta(kDatabaseKey, display_url);
  }

  Result<std::string> HeldList() override { return ReadMeta(kHeldListKey); }

  Status SetHeldList(const std::string& id) override { return WriteMeta(kHeldListKey, id); }

  Result<std::vector<std::string>> Drained() override {
    std::vector<std::string> scopes;
    const Result<bool> has_table = HasTable("idd_drain");
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
    // Two processes that start at once must agree on the name: the first one's stays.
    Status status = WriteRow("INSERT OR IGNORE INTO idd_meta(key, value) VALUES(?1, ?2)",
                             kHostIdKey, RandomToken());
    if (!status.ok()) return status;
    return ReadMeta(kHostIdKey);
  }

 private:
  Result<std::vector<TagMark>> ReadMarks(std::string_view sql) {
    SqliteQuery query = db_->Query(sql);
    std::vector<TagMark> marks;
    while (query.Next()) {
      const std::optional<std::string> tag = query.TextIf(0);
      const std::optional<std::uint64_t> mark = query.UintIf(1);
      if (tag.has_value() && mark.has_value()) marks.push_back({.tag = *tag, .mark = *mark});
    }
    if (!query.Finish().ok()) return query.Finish();
    return marks;
  }

  // Precondition: `marks` are sorted by tag, and so is the result.
  Result<std::vector<TagMark>> AddPutOff(Result<std::vector<TagMark>> marks) const {
    if (!marks.ok()) return marks;
    std::map<std::string, std::uint64_t> highest(put_off_.begin(), put_off_.end());
    for (const TagMark& mark : marks.value()) {
      std::uint64_t& known = highest[mark.tag];
      known = std::max(known, mark.mark);
    }
    marks.value().clear();
    for (const auto& [tag, mark] : highest) marks.value().push_back({.tag = tag, .mark = mark});
    return marks;
  }

  Result<bool> HasCeilings() {
    if (has_ceilings_.has_value()) return *has_ceilings_;
    Result<bool> has = HasTable("idd_ceiling");
    if (has.ok()) has_ceilings_ = has.value();
    return has;
  }

  Result<bool> HasTable(std::string_view name) {
    SqliteQuery query =
        db_->Query("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1", name);
    const bool has_table = query.Next() && query.Uint(0) == 1;
    if (!query.Finish().ok()) return query.Finish();
    return has_table;
  }

  Status WriteMeta(std::string_view key, const std::string& value) {
    return Write([&] { return SetMeta(key, value); });
  }

  // Preconditions of both: a transaction is open.
  Status SetMeta(std::string_view key, const std::string& value) {
    return db_->Run(
        "INSERT INTO idd_meta(key, value) VALUES(?1, ?2)"
        " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        key, value);
  }
  Status WriteMark(const std::string& tag, std::uint64_t mark) {
    return db_->Run(
        "INSERT INTO idd_mark(biz_tag, mark) VALUES(?1, ?2)"
        " ON CONFLICT(biz_tag) DO UPDATE SET mark = excluded.mark WHERE excluded.mark > mark",
        tag, mark);
  }

  // From now on no mark is put off.
  Status WriteAllMarks() {
    Status status =
        Write([&] { return db_->Run("DELETE FROM idd_meta WHERE key = ?1", kPutOffKey); });
    if (status.ok()) raises_ = Raises::kNone;
    return status;
  }

  Result<bool> AreBelowCeilings(const std::vector<TagMark>& marks) {
    Result<bool> has_ceilings = HasCeilings();
    if (!has_ceilings.ok() || !has_ceilings.value()) return has_ceilings;
    for (const TagMark& mark : marks) {
      SqliteQuery query =
          db_->Query("SELECT ceiling FROM idd_ceiling WHERE biz_tag = ?1", mark.tag);
      const bool is_below = query.Next() && mark.mark <= query.Uint(0);
      if (!query.Finish().ok()) return query.Finish().WithContext("idd_ceiling");
      if (!is_below) return false;
    }
    return true;
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
    Status status = db_->InTransaction([&]() -> Status {
      for (const auto& [tag, mark] : put_off_) {
        if (Status written = WriteMark(tag, mark); !written.ok()) return written;
      }
      return body();
    });
    if (status.ok()) put_off_.clear();
    return status;
  }

  // Opens the file again, but only after a COMMIT of unknown outcome. A replaced file is not
  // opened: its marks may be lower than those that this daemon relied on, so an operator must look.
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
  std::optional<bool> has_ceilings_{};  // nothing: not known
  // Raises since the last Flush(). While they are put off, kPutOffKey is in the file.
  enum class Raises { kNone, kOne, kPutOff };
  Raises raises_ = Raises::kNone;
  std::map<std::string, std::uint64_t, std::less<>> put_off_;
};

}  // namespace

Result<std::unique_ptr<HighWaterMarks>> HighWaterMarks::Open(const std::string& state_dir) {
  Result<std::unique_ptr<SqliteDb>> db =
      SqliteDb::Open(state_dir + "/high-water.db", kHighWaterFormat);
  Status why = db.status();
  if (db.ok()) {
    auto marks = std::make_unique<SqliteHighWaterMarks>(std::move(db).value());
    why = marks->RecoverMarks();
    if (why.ok()) return std::unique_ptr<HighWaterMarks>(std::move(marks));
  }
  const Code code = why.code() == Code::kIncompatible ? Code::kIncompatible : Code::kSystem;
  return Status(code, "the high-water marks cannot be used: " + why.message());
}

}  // namespace idd::daemon
