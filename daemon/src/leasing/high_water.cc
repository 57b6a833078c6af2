// SPDX-License-Identifier: Apache-2.0
#include "leasing/high_water.h"

#include <charconv>
#include <cstdint>
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
constexpr std::string_view kRunNumberKey = "run_number";

constexpr const char* kMarksSchema = R"sql(
-- Every id of the tag that this host ever handed out lies below mark.
CREATE TABLE idd_mark(
  biz_tag TEXT PRIMARY KEY NOT NULL,
  mark    INTEGER NOT NULL CHECK(mark >= 0)
) STRICT;

-- The scopes that operators have drained; '': the whole host.
CREATE TABLE idd_drain(
  biz_tag TEXT PRIMARY KEY NOT NULL,
  since   TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;

-- Noted ceilings (agreement/agreement.h).
CREATE TABLE idd_ceiling(
  biz_tag TEXT PRIMARY KEY NOT NULL,
  ceiling INTEGER NOT NULL CHECK(ceiling >= 0)
) STRICT;

-- What the host keeps as a witness.
CREATE TABLE idd_witness(
  id          INTEGER PRIMARY KEY CHECK(id = 1),
  disk        TEXT NOT NULL,
  promise     TEXT NOT NULL,
  noted       INTEGER NOT NULL CHECK(noted >= 0),
  beat        INTEGER NOT NULL CHECK(beat >= 0),
  active      TEXT NOT NULL,
  list        TEXT NOT NULL,
  incarnation TEXT NOT NULL
) STRICT;

-- 'incarnation': of the allocator's data set; 'host_id': this host's random name; 'held_list': the id
-- of the list of held leases that the last run kept.
CREATE TABLE idd_meta(
  key   TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;
)sql";

Status CheckNothing(SqliteDb& /*db*/) { return Status::Ok(); }

Status CheckMarkTables(SqliteDb& db) {
  SqliteQuery query = db.Query(
      "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN"
      " ('idd_mark', 'idd_drain', 'idd_ceiling', 'idd_witness', 'idd_meta')");
  const bool complete = query.Next() && query.Uint(0) == 5;
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

  // An invalid row stops only its own tag: Get() reports it before each lease.
  Result<std::vector<TagMark>> All() override {
    return ReadMarks("SELECT biz_tag, mark FROM idd_mark ORDER BY biz_tag");
  }

  Result<std::vector<TagMark>> Ceilings() override {
    return ReadMarks("SELECT biz_tag, ceiling FROM idd_ceiling ORDER BY biz_tag");
  }

  Status NoteCeilings(const std::vector<TagMark>& ceilings) override {
    for (const TagMark& ceiling : ceilings) {
      if (Status status = CheckMark(ceiling); !status.ok()) return status;
    }
    return Write([&]() -> Status {
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

  Result<WitnessState> GetWitnessState() override {
    SqliteQuery query =
        db_->Query("SELECT disk, promise, noted, beat, active, list, incarnation FROM idd_witness");
    WitnessState state;
    bool is_sound = true;
    if (query.Next()) {
      const std::optional<Term> promise = ParseTerm(query.Text(1));
      std::optional<WitnessList> active = ParseWitnessList(query.Text(4));
      std::optional<WitnessList> list = ParseWitnessList(query.Text(5));
      is_sound = promise.has_value() && active.has_value() && list.has_value();
      state = {.disk = query.Text(0),
               .promise = promise.value_or(Term()),
               .noted = query.Uint(2),
               .beat = query.Uint(3),
               .active = std::move(active).value_or(WitnessList()),
               .list = std::move(list).value_or(WitnessList()),
               .incarnation = query.Text(6)};
    }
    if (!query.Finish().ok()) return query.Finish().WithContext("idd_witness");
    if (!is_sound) return Status(Code::kInvalid, "idd_witness: the promise or a list is invalid");
    if (!state.disk.empty()) return state;
    state.disk = RandomToken().substr(0, kDiskIdSize);
    Status status = SetWitnessState(state);
    return status.ok() ? Result<WitnessState>(std::move(state)) : Result<WitnessState>(status);
  }

  Status SetWitnessState(const WitnessState& state) override {
    return WriteRow(
        "INSERT OR REPLACE INTO idd_witness(id, disk, promise, noted, beat, active, list,"
        " incarnation) VALUES(1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        state.disk, state.promise.Text(), state.noted, state.beat, state.active.Text(),
        state.list.Text(), state.incarnation);
  }

  Result<std::uint64_t> NextRunNumber() override {
    const Result<std::string> before = ReadMeta(kRunNumberKey);
    if (!before.ok()) return before.status();
    std::uint64_t number = 0;
    const char* const end = before.value().data() + before.value().size();
    if (!before.value().empty() && std::from_chars(before.value().data(), end, number).ptr != end) {
      return Status(Code::kInvalid, "idd_meta: run_number is no number");
    }
    Status status = WriteMeta(kRunNumberKey, std::to_string(++number));
    if (!status.ok()) return status.WithContext("the number of this run cannot be kept");
    return number;
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

  Result<std::string> Database() override { return ReadMeta(kDatabaseKey); }

  Status SetDatabase(const std::string& display_url) override {
    return WriteMeta(kDatabaseKey, display_url);
  }

  Result<std::string> HeldList() override { return ReadMeta(kHeldListKey); }

  Status SetHeldList(const std::string& id) override { return WriteMeta(kHeldListKey, id); }

  Result<std::vector<std::string>> Drained() override {
    std::vector<std::string> scopes;
    SqliteQuery query = db_->Query("SELECT biz_tag FROM idd_drain");
    while (query.Next()) scopes.push_back(query.Text(0));
    if (!query.Finish().ok()) return query.Finish().WithContext("idd_drain");
    return scopes;
  }

  Status SetDrained(const std::string& scope, bool is_drained) override {
    return Write([&]() -> Status {
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
    return db_->InTransaction([&]() -> Status { return body(); });
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
