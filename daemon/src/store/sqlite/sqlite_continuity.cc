// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite/sqlite_continuity.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "platform/random.h"

namespace idd::daemon {

void SqliteContinuity::Begin() {
  next_.clear();
  is_granting_ = false;
  is_unrecorded_ = false;
}

void SqliteContinuity::Raise(const std::string& tag, std::uint64_t next) {
  next_[tag] = std::max(next, witness_.NextOf(tag));
  is_granting_ = true;
}

Result<SqliteContinuity::Stamps> SqliteContinuity::ReadStamps(SqliteDb& db) {
  SqliteQuery query = db.Query(
      "SELECT coalesce((SELECT value FROM idd_meta WHERE key = 'stamp'), ''),"
      "       coalesce((SELECT value FROM idd_meta WHERE key = 'previous_stamp'), '')");
  Stamps stamps;
  if (query.Next()) stamps = {.last = query.Text(0), .previous = query.Text(1)};
  if (!query.Finish().ok()) return query.Finish();
  return stamps;
}

Status SqliteContinuity::Check(SqliteDb& db) {
  const SqliteWitness::State& known = witness_.state();
  if (known.line.empty() || known.line != line_) {
    return {Code::kUnavailable, "'" + db.path() +
                                    "' was set back, as another idd or its witness says; it is "
                                    "opened again"};
  }
  const Result<bool> continues = Continue(db);
  if (!continues.ok()) return continues.status();
  if (continues.value()) return Status::Ok();
  return {Code::kUnavailable, "'" + db.path() + "' was set back: it lacks leases that '" +
                                  witness_.path() + "' knows; it is opened again"};
}

Result<SqliteContinuity::Join> SqliteContinuity::JoinWitness(SqliteDb& db) {
  const SqliteWitness::State& known = witness_.state();
  const Result<bool> continues = Continue(db);
  if (!continues.ok()) return continues.status();
  if (Status status = JoinPlace(db, continues.value()); !status.ok()) return status;
  is_witness_lost_ = known.line.empty() && !stamp_.empty();
  if (continues.value()) return Join::kContinues;
  if (!known.line.empty() && !known.next.empty()) return Join::kWasSetBack;
  if (Status status = AdoptTags(db); !status.ok()) return status;
  return Join::kBegins;
}

// A file that was renamed is not a copy: idd may still run on its last name, or was killed there,
// and the newest grants are in the log of that name.
Status SqliteContinuity::JoinPlace(SqliteDb& db, bool continues) {
  const Result<SqliteDb::Place> found = db.FindPlace();
  if (!found.ok()) return found.status();
  const SqliteDb::Place& is = found.value();
  SqliteQuery query = db.Query(
      "SELECT coalesce((SELECT value FROM idd_meta WHERE key = 'file'), ''),"
      "       coalesce((SELECT value FROM idd_meta WHERE key = 'directory'), ''),"
      "       coalesce((SELECT value FROM idd_meta WHERE key = 'path'), '')");
  SqliteDb::Place was;
  if (query.Next())
    was = {.file = query.Text(0), .directory = query.Text(1), .path = query.Text(2)};
  if (!query.Finish().ok()) return query.Finish();
  const auto name = [](const SqliteDb::Place& place) {
    return place.path.substr(place.path.rfind('/') + 1);
  };
  is_new_place_ = was.file != is.file || was.directory != is.directory || name(was) != name(is);
  if (!is_new_place_) return Status::Ok();
  if (was.file == is.file && !continues && !SqliteDb::HasNoLog(was)) {
    return {Code::kUnavailable,
            "'" + db.path() + "' was renamed: as '" + was.path +
                "' it may have a -wal with leases that it lacks here, so ids could be leased "
                "twice; end every idd on it, and rename it back, or move the -wal and the .witness "
                "along"};
  }
  return db.Run(
      "INSERT INTO idd_meta(key, value) VALUES('file', ?1), ('directory', ?2), ('path', ?3)"
      " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
      is.file, is.directory, is.path);
}

Result<bool> SqliteContinuity::Continue(SqliteDb& db) {
  Result<Stamps> stamps = ReadStamps(db);
  if (!stamps.ok()) return stamps.status();
  stamp_ = std::move(stamps.value().last);
  const std::string& known = witness_.state().stamp;
  if (stamp_.empty() || known.empty()) return false;
  const bool is_ahead = stamps.value().previous == known;
  if (stamp_ != known && !is_ahead) return false;
  Status status = stamp_ == known ? ConfirmHandBack(db) : AdoptTags(db);
  if (!status.ok()) return status;
  return true;
}

// The daemon that handed the tail back died before it recorded the COMMIT in the witness. Nothing
// was granted since, and the holder had given the tail up before it announced the hand-back. So no
// host has these ids, whatever the tables contain.
Status SqliteContinuity::ConfirmHandBack(SqliteDb& db) {
  const SqliteWitness::State& known = witness_.state();
  if (!known.announced.has_value()) return Status::Ok();
  const SqliteWitness::HandBack& last = *known.announced;
  SqliteQuery query = db.Query(
      "SELECT 1 FROM idd_lease AS l JOIN leaf_alloc AS a ON a.biz_tag = l.biz_tag"
      " WHERE l.token = ?1 AND l.biz_tag = ?2 AND l.state = 'returned'"
      "  AND l.base + l.claimed = ?3 AND typeof(a.max_id) = 'integer' AND a.max_id = ?3"
      "  AND NOT EXISTS (SELECT 1 FROM idd_returned AS r WHERE r.token = l.token)",
      last.token, last.tag, last.next);
  const bool was_committed = query.Next();
  if (!query.Finish().ok()) return query.Finish();
  if (!was_committed) return Status::Ok();
  return witness_.Append(
      {.line = known.line, .stamp = known.stamp, .next = {{last.tag, last.next}}},
      SqliteWitness::Durability::kWritten);
}

Status SqliteContinuity::AdoptTags(SqliteDb& db) {
  SqliteQuery query = db.Query("SELECT biz_tag, max_id FROM leaf_alloc");
  while (query.Next()) {
    const std::optional<std::string> tag = query.TextIf(0);
    const std::optional<std::uint64_t> next = query.UintIf(1);
    if (!tag.has_value() || !next.has_value()) continue;  // nothing is leased from such a row
    if (*next > witness_.NextOf(*tag)) next_[*tag] = *next;
  }
  is_granting_ = true;
  return query.Finish();
}

Status SqliteContinuity::Stamp(SqliteDb& db) {
  if (!is_granting_) return Status::Ok();
  std::string stamp = RandomToken();
  Status status = db.Run(
      "INSERT INTO idd_meta(key, value) VALUES('previous_stamp', ?1), ('stamp', ?2)"
      " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
      stamp_, stamp);
  if (status.ok()) stamp_ = std::move(stamp);
  return status;
}

Status SqliteContinuity::Record() {
  if (!is_granting_ && next_.empty()) return Status::Ok();
  Status status = witness_.Append(
      {.line = line_, .stamp = stamp_, .next = next_},
      is_granting_ ? SqliteWitness::Durability::kSynced : SqliteWitness::Durability::kWritten);
  is_unrecorded_ = !status.ok();
  return status;
}

Status SqliteContinuity::RecordJoin(Join join) {
  std::string line = join == Join::kContinues ? witness_.state().line : RandomToken();
  const std::string before = std::exchange(line_, std::move(line));
  Status status = Record();
  if (!status.ok()) line_ = before;
  return status;
}

}  // namespace idd::daemon
