// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite/sqlite_schema.h"

#include <string>

namespace idd::daemon {
namespace {

// STRICT, because past 2^63 a plain INTEGER column turns into a REAL that stops moving. Times are
// UTC from SQLite, for people only.
constexpr const char* kAllocatorSchema = R"sql(
-- Leaf's table, name for name. max_id is where the next lease begins. A table that is already there
-- is kept, STRICT or not: its values are checked whenever they are read.
CREATE TABLE IF NOT EXISTS leaf_alloc(
  biz_tag     TEXT PRIMARY KEY NOT NULL,
  max_id      INTEGER NOT NULL DEFAULT 1,
  step        INTEGER NOT NULL,
  description TEXT,
  update_time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;

-- 'incarnation': the random id of this data set, made with it and never changed. 'stamp': random, of the
-- last transaction that granted ids, and 'previous_stamp': of the one before it; what the witness beside
-- the file has must be one of them (sqlite_witness.h). 'file', 'directory' and 'path': which file this is,
-- and where it lay when it was opened last (SqliteDb::Place).
CREATE TABLE idd_meta(
  key   TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;
INSERT INTO idd_meta(key, value) VALUES('incarnation', lower(hex(randomblob(16))));

-- What a tag needs beyond Leaf's columns. No row means the defaults, so rows made for Leaf serve as
-- they stand. max_id_allowed is the largest id that may be handed out. access 'socket': the tag's
-- ring is passed to no client. refill, max_step, max_prefetch and outage_tolerance_s say when the
-- next ids are leased, and how many (docs/refill.md); NULL is the default of the idd that reads it.
CREATE TABLE idd_tag(
  biz_tag        TEXT PRIMARY KEY NOT NULL,
  mode           TEXT NOT NULL DEFAULT 'segment' CHECK(mode IN ('segment', 'snowflake', 'ticket')),
  max_id_allowed INTEGER NOT NULL DEFAULT 9223372036854775806
                 CHECK(max_id_allowed BETWEEN 0 AND 9223372036854775806),
  access         TEXT NOT NULL DEFAULT 'ring' CHECK(access IN ('ring', 'socket')),
  refill         TEXT CHECK(refill IN ('promise', 'leaf')),
  max_step       INTEGER CHECK(max_step BETWEEN 1 AND 1000000000000),
  max_prefetch   INTEGER CHECK(max_prefetch BETWEEN 2 AND 9223372036854775807),
  outage_tolerance_s INTEGER CHECK(outage_tolerance_s BETWEEN 0 AND 604800)
) STRICT;

-- The journal: one row a lease. Ids are [base, limit). Some minutes after its end, a lease is moved
-- to idd_ended. The newest row stays, so that seq rises indefinitely.
-- A range that was handed back and is taken again gets a new row and counts as leased again, while
-- the old row keeps its returned count: in each row that is not active
--   claimed + returned + abandoned = limit - base,
-- so the sums over a tag add up as well.
-- used_limit: no id of the lease at or above it was ever handed out; 0 when none was, so that hosts
-- that hand back whole leases one after the other find max_id where it was before all of them.
CREATE TABLE idd_lease(
  seq        INTEGER PRIMARY KEY,
  token      TEXT NOT NULL UNIQUE CHECK(length(token) = 32 AND token NOT GLOB '*[^0-9a-f]*'),
  biz_tag    TEXT NOT NULL,
  host       TEXT NOT NULL,
  base       INTEGER NOT NULL CHECK(base >= 0),
  "limit"    INTEGER NOT NULL CHECK("limit" > base),
  state      TEXT NOT NULL DEFAULT 'active'
             CHECK(state IN ('active', 'exhausted', 'returned', 'abandoned')),
  claimed    INTEGER NOT NULL DEFAULT 0 CHECK(claimed BETWEEN 0 AND "limit" - base),
  returned   INTEGER NOT NULL DEFAULT 0 CHECK(returned BETWEEN 0 AND "limit" - base),
  abandoned  INTEGER NOT NULL DEFAULT 0 CHECK(abandoned BETWEEN 0 AND "limit" - base),
  leased_at  TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
  closed_at  TEXT,
  used_limit INTEGER GENERATED ALWAYS AS
             (CASE WHEN state <> 'returned' THEN "limit"
                   WHEN claimed = 0 THEN 0
                   ELSE base + claimed END) VIRTUAL,
  CHECK(CASE state
        WHEN 'active' THEN claimed + returned + abandoned = 0 AND closed_at IS NULL
        ELSE claimed + returned + abandoned = "limit" - base AND closed_at IS NOT NULL END),
  CHECK(state <> 'exhausted' OR claimed = "limit" - base),
  CHECK((state = 'returned') = (returned > 0))
) STRICT;
CREATE INDEX idd_lease_used ON idd_lease(biz_tag, used_limit);
CREATE INDEX idd_lease_active ON idd_lease(host, biz_tag) WHERE state = 'active';

-- Tails that could not go back into max_id because a later lease lies above them. The same host
-- takes them again; token is that of the lease that the tail was part of.
CREATE TABLE idd_returned(
  token       TEXT PRIMARY KEY NOT NULL REFERENCES idd_lease(token),
  biz_tag     TEXT NOT NULL,
  host        TEXT NOT NULL,
  base        INTEGER NOT NULL CHECK(base >= 0),
  "limit"     INTEGER NOT NULL CHECK("limit" > base),
  returned_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;
CREATE INDEX idd_returned_next ON idd_returned(biz_tag, host, base);

-- What a host says about itself (host_store.h). stopped_at: the host has stopped since it was last
-- seen; forgotten_at: an operator has forgotten it since.
CREATE TABLE idd_host(
  host         TEXT PRIMARY KEY NOT NULL CHECK(host <> ''),
  first_seen   TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
  last_seen    TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
  stopped_at   TEXT,
  forgotten_at TEXT,
  name         TEXT NOT NULL DEFAULT '',
  address      TEXT NOT NULL DEFAULT '',
  version      TEXT NOT NULL DEFAULT '',
  boot_id      TEXT NOT NULL DEFAULT '',
  report       TEXT
) STRICT;

-- Tombstones. Every id of a deleted tag lies below max_id, so a namesake begins there. Kept when
-- the namesake is made.
CREATE TABLE idd_deleted_tag(
  biz_tag    TEXT PRIMARY KEY NOT NULL,
  max_id     INTEGER NOT NULL CHECK(max_id >= 0),
  deleted_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;

-- How a snowflake tag's ids are made (snowflake_layout.h). It stays when the tag is deleted, so that
-- a namesake makes the same ids from the counters of its workers, which stay too.
CREATE TABLE idd_snowflake(
  biz_tag TEXT PRIMARY KEY NOT NULL,
  layout  TEXT NOT NULL
) STRICT;

-- The host that leases from the counter of a worker id, the row 'TAG#WORKER' of leaf_alloc.
CREATE TABLE idd_worker(
  biz_tag  TEXT NOT NULL,
  worker   INTEGER NOT NULL CHECK(worker BETWEEN 0 AND 4294967295),
  host     TEXT NOT NULL,
  taken_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY(biz_tag, worker)
) STRICT;

-- In which order a tag's ids come on a host, and how many ids a CPU's lane takes (0: idd chooses).
-- No row: order host.
CREATE TABLE idd_order(
  biz_tag    TEXT PRIMARY KEY NOT NULL,
  tag_order  TEXT NOT NULL DEFAULT 'host' CHECK(tag_order IN ('host', 'cpu')),
  lane_block INTEGER NOT NULL DEFAULT 0 CHECK(lane_block BETWEEN 0 AND 65536)
) STRICT;

-- Settled leases (journal_store.h), the rows of idd_lease as they were. Nothing changes them, and
-- they have no index that a lease would have to write.
CREATE TABLE idd_ended(
  seq        INTEGER PRIMARY KEY,
  token      TEXT NOT NULL UNIQUE,
  biz_tag    TEXT NOT NULL,
  host       TEXT NOT NULL,
  base       INTEGER NOT NULL,
  "limit"    INTEGER NOT NULL,
  state      TEXT NOT NULL CHECK(state IN ('exhausted', 'returned', 'abandoned')),
  claimed    INTEGER NOT NULL,
  returned   INTEGER NOT NULL,
  abandoned  INTEGER NOT NULL,
  leased_at  TEXT NOT NULL,
  closed_at  TEXT NOT NULL,
  used_limit INTEGER NOT NULL,
  CHECK(claimed + returned + abandoned = "limit" - base)
) STRICT;
CREATE INDEX idd_ended_used ON idd_ended(biz_tag, used_limit);
CREATE INDEX idd_ended_tag ON idd_ended(biz_tag);
CREATE INDEX idd_ended_host ON idd_ended(host);
CREATE INDEX idd_ended_state ON idd_ended(state);
CREATE INDEX idd_ended_returned ON idd_ended(biz_tag, base) WHERE state = 'returned';

-- The sums of the leases that a host's settled leases of a tag came to in a month (of closed_at).
-- The sums of the folded ones among them, whose rows are deleted, are in folded_...; first_id and
-- last_limit enclose `ranges`, the ids that those had kept (folded_ranges.h). used_limit: the
-- highest of all of them.
CREATE TABLE idd_total(
  biz_tag          TEXT NOT NULL,
  host             TEXT NOT NULL,
  month            TEXT NOT NULL,
  leases           INTEGER NOT NULL,
  leased           INTEGER NOT NULL,
  claimed          INTEGER NOT NULL,
  returned         INTEGER NOT NULL,
  abandoned        INTEGER NOT NULL,
  used_limit       INTEGER NOT NULL,
  folded_leases    INTEGER NOT NULL DEFAULT 0,
  folded_leased    INTEGER NOT NULL DEFAULT 0,
  folded_claimed   INTEGER NOT NULL DEFAULT 0,
  folded_returned  INTEGER NOT NULL DEFAULT 0,
  folded_abandoned INTEGER NOT NULL DEFAULT 0,
  first_id         INTEGER NOT NULL DEFAULT 0,
  last_limit       INTEGER NOT NULL DEFAULT 0,
  ranges           TEXT NOT NULL DEFAULT '',
  PRIMARY KEY(biz_tag, host, month)
) STRICT;
CREATE INDEX idd_total_used ON idd_total(biz_tag, used_limit);

-- The host that does some work for all of them.
CREATE TABLE idd_role(
  role  TEXT PRIMARY KEY NOT NULL,
  host  TEXT NOT NULL,
  since TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;
)sql";

// An existing leaf_alloc must have Leaf's columns and one row per tag. If a tag had two rows, an
// UPDATE would move both and the tag would have two next ids.
Status CheckLeafAlloc(SqliteDb& db) {
  SqliteQuery query = db.Query(
      "SELECT (SELECT count(*) FROM pragma_table_info('leaf_alloc') WHERE lower(name) IN"
      "          ('biz_tag', 'max_id', 'step', 'description', 'update_time')),"
      "       (SELECT count(*) FROM pragma_index_list('leaf_alloc') AS i"
      "          WHERE i.\"unique\" = 1 AND i.partial = 0 AND"
      "            (SELECT group_concat(lower(name)) FROM pragma_index_info(i.name)) = 'biz_tag')");
  if (!query.Next()) return query.Finish();
  const bool has_columns = query.Uint(0) == 5;
  const bool is_unique = query.Uint(1) != 0;
  if (!query.Finish().ok()) return query.Finish();
  if (!has_columns) {
    return {Code::kIncompatible,
            "table leaf_alloc in '" + db.path() +
                "' lacks one of Leaf's columns biz_tag, max_id, step, description, update_time"};
  }
  if (!is_unique) {
    return {Code::kIncompatible, "table leaf_alloc in '" + db.path() +
                                     "' has no primary key or unique index on biz_tag alone"};
  }
  return Status::Ok();
}

// idd adds its tables to an empty file, or beside the leaf_alloc of a user who moves over from
// Leaf. Another program's database means a mistyped path, and is left as it is.
Status CheckAdoptable(SqliteDb& db) {
  SqliteQuery query = db.Query(
      "SELECT (SELECT count(*) FROM sqlite_schema),"
      "       (SELECT count(*) FROM sqlite_schema"
      "          WHERE type = 'table' AND lower(name) = 'leaf_alloc')");
  if (!query.Next()) return query.Finish();
  const bool is_empty = query.Uint(0) == 0;
  const bool has_leaf_alloc = query.Uint(1) != 0;
  if (!query.Finish().ok() || is_empty) return query.Finish();
  if (!has_leaf_alloc) {
    return {Code::kIncompatible, "'" + db.path() +
                                     "' is a database of something else: it has tables, and no "
                                     "leaf_alloc among them"};
  }
  return CheckLeafAlloc(db);
}

Status CheckAllocatorTables(SqliteDb& db) {
  SqliteQuery query = db.Query(
      "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND lower(name) IN ('leaf_alloc',"
      " 'idd_meta', 'idd_tag', 'idd_lease', 'idd_returned', 'idd_host', 'idd_deleted_tag',"
      " 'idd_snowflake', 'idd_worker', 'idd_order', 'idd_ended', 'idd_total', 'idd_role')");
  const bool complete = query.Next() && query.Uint(0) == 13;
  if (!query.Finish().ok()) return query.Finish();
  if (!complete) {
    return {Code::kIncompatible, "'" + db.path() +
                                     "' is idd's allocator database but lacks some of its tables; "
                                     "restore it from a backup; idd does not repair it"};
  }
  return CheckLeafAlloc(db);
}

}  // namespace

const SqliteFormat& AllocatorFormat() {
  static constexpr SqliteFormat kFormat = {
      .what = "idd's allocator database",
      .application_id = 0x49444441,  // "IDDA"
      .version = 1,
      .own_tables = "idd_*",
      .schema = kAllocatorSchema,
      .check_adoptable = CheckAdoptable,
      .check_complete = CheckAllocatorTables,
      .is_shared = true,
  };
  return kFormat;
}

}  // namespace idd::daemon
