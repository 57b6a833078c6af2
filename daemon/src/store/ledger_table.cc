// SPDX-License-Identifier: Apache-2.0
#include "store/ledger_table.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "store/folded_ranges.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// How many rows of the journal one statement reads.
constexpr std::uint64_t kRowsOfAPage = 10'000;

// The table, with the index that leaves the fewest of the settled leases; without one, they are
// read in their order. The values are those of ListLeases().
//
// Of the settled leases near an id, all that may contain it: the ids that leases have kept do not
// overlap, so the nearest ones are enough, even in a damaged journal. What was handed back may be
// in any lease that begins below the id.
std::string RowsOf(const SqlSession& session, const LeaseFilter& filter, const std::string& table) {
  if (table != "idd_ended") return table;
  if (filter.containing.has_value() && filter.tag.has_value()) {
    return "(SELECT * FROM (SELECT * FROM idd_ended WHERE biz_tag = ?1 AND used_limit > ?4"
           " ORDER BY used_limit LIMIT 1000) AS kept UNION SELECT * FROM (SELECT * FROM idd_ended"
           " WHERE biz_tag = ?1 AND state = 'returned' AND base <= ?4 ORDER BY base DESC"
           " LIMIT 1000) AS handed_back) AS near_id";
  }
  if (filter.tag.has_value()) return table + session.ByIndex("idd_ended_tag");
  if (filter.host.has_value()) return table + session.ByIndex("idd_ended_host");
  if (filter.state.has_value()) return table + session.ByIndex("idd_ended_state");
  return table;
}

}  // namespace

// Page by page, from the newest lease on. A lease that is settled meanwhile keeps its number.
Result<std::vector<LeaseRecord>> LedgerTable::ListLeases(const LeaseFilter& filter) {
  SqlValues values = {ValueOrNull(filter.tag),
                      ValueOrNull(filter.host),
                      filter.state ? SqlValue(LeaseStateName(*filter.state)) : SqlValue(),
                      filter.containing ? SqlValue(*filter.containing) : SqlValue(),
                      filter.among ? SqlValue(*filter.among) : SqlValue(),
                      ValueOrNull(filter.since)};
  std::string where = " WHERE 1 = 1";
  if (filter.tag) where += " AND biz_tag = ?1";
  if (filter.host) where += " AND host = ?2";
  if (filter.state) where += " AND state = ?3";
  if (filter.containing) where += " AND base <= ?4 AND `limit` > ?4";
  if (filter.among) where += " AND biz_tag" + session_.In(5);
  if (filter.since) where += " AND leased_at >= ?6";
  std::string rows;
  for (const std::string table : {"idd_lease", "idd_ended"}) {
    if (table == "idd_ended" && filter.state == LeaseState::kActive) continue;
    const Result<std::uint64_t> place =
        filter.since ? PlaceBefore(*filter.since, table) : Result<std::uint64_t>(std::uint64_t{0});
    if (!place.ok()) return place.status();
    values.emplace_back(place.value());
    rows += (rows.empty() ? "" : " UNION ALL ") + std::string("SELECT * FROM (SELECT ") +
            kLeaseColumns + " FROM " + RowsOf(session_, filter, table) + where + " AND seq > ?" +
            std::to_string(values.size()) + " AND seq < ?9 ORDER BY seq DESC LIMIT ?10) AS " +
            table + "_rows";
  }
  values.resize(10);
  values[8] = std::min(filter.before.value_or(shm::kMaxLimit), shm::kMaxLimit);
  std::vector<LeaseRecord> leases;
  while (true) {
    const std::uint64_t page =
        filter.newest == 0 ? kRowsOfAPage
                           : std::min<std::uint64_t>(kRowsOfAPage, filter.newest - leases.size());
    values[9] = page;
    Result<std::vector<LeaseRecord>> read =
        ParseLeaseRows(*session_.Query(rows + " ORDER BY seq DESC LIMIT ?10", values));
    if (!read.ok()) return read;
    std::move(read.value().begin(), read.value().end(), std::back_inserter(leases));
    if (read.value().size() < page || leases.size() == filter.newest) break;
    values[8] = leases.back().seq;
  }
  std::reverse(leases.begin(), leases.end());
  return leases;
}

// A place in the journal before all leases that were taken since then. Leases are in the order of
// their time, but for what servers' clocks and the numbers of a cluster's nodes differ.
Result<std::uint64_t> LedgerTable::PlaceBefore(const std::string& since, const std::string& table) {
  using Row = std::pair<std::uint64_t, bool>;
  const auto ask = [&](const std::string& text, std::uint64_t place) -> Result<Row> {
    const auto query =
        session_.Query(text + table + " WHERE seq > ?2 ORDER BY seq LIMIT 1", {since, place});
    Row row{0, false};
    if (query->Next()) row = {query->Uint(0), query->Uint(1) != 0};
    if (!query->Finish().ok()) return query->Finish();
    return row;
  };
  const auto last = session_.Query("SELECT COALESCE(MAX(seq), 0) FROM " + table);
  std::uint64_t low = 0;
  std::uint64_t high = last->Next() ? last->Uint(0) : 0;
  if (!last->Finish().ok()) return last->Finish();
  const std::string look =
      "SELECT seq, leased_at < " + session_.Before("?1", std::chrono::hours(1)) + " FROM ";
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const Result<Row> row = ask(look, middle);
    if (!row.ok()) return row.status();
    (row.value().second ? low : high) = row.value().second ? row.value().first : middle;
  }
  return low;
}

Result<std::vector<LeaseRecord>> LedgerTable::ListByIds(const std::string& tag, std::uint64_t below,
                                                        std::size_t most) {
  const std::string end = " ORDER BY used_limit DESC LIMIT ?3";
  const auto select = [&](const std::string& table) {
    return std::string("SELECT * FROM (SELECT ") + kLeaseColumns + ", used_limit FROM " + table +
           session_.ByIndex(table + "_used") +
           " WHERE biz_tag = ?1 AND used_limit BETWEEN 1 AND ?2" + end + ") AS " + table + "_rows";
  };
  return ParseLeaseRows(
      *session_.Query(select("idd_lease") + " UNION ALL " + select("idd_ended") + end,
                      {tag, below, std::uint64_t{most}}));
}

Result<std::vector<ReturnedRange>> LedgerTable::ListReturned(
    const std::optional<std::string>& tag) {
  const auto query =
      session_.Query(std::string("SELECT biz_tag, host, base, `limit` FROM idd_returned") +
                         (tag ? " WHERE biz_tag = ?1" : "") + " ORDER BY biz_tag, base",
                     {ValueOrNull(tag)});
  std::vector<ReturnedRange> ranges;
  while (query->Next()) {
    ranges.push_back({query->Text(0), query->Text(1), {query->Uint(2), query->Uint(3)}});
    if (ranges.back().ids.empty()) query->Reject(3, "a number above base");
    if (!query->Finish().ok()) {
      return query->Finish().WithContext("idd_returned of tag '" + ranges.back().tag + "'");
    }
  }
  if (!query->Finish().ok()) return query->Finish();
  return ranges;
}

// Not a UNION: the columns' character sets may differ.
Result<std::set<std::string>> LedgerTable::Tags() {
  std::set<std::string> tags;
  for (const char* select :
       {"SELECT biz_tag FROM leaf_alloc", "SELECT DISTINCT biz_tag FROM idd_lease",
        "SELECT DISTINCT biz_tag FROM idd_total"}) {
    const auto query = session_.Query(select);
    while (query->Next()) tags.insert(query->TextIf(0).value_or(""));
    if (!query->Finish().ok()) return query->Finish();
  }
  return tags;
}

// One statement, so that a lease that is settled meanwhile is counted once.
Result<std::vector<LeaseSums>> LedgerTable::SumLeases(const std::optional<std::string>& tag) {
  const std::string of_tag = tag ? " WHERE biz_tag = ?1" : "";
  const auto query = session_.Query(
      "SELECT biz_tag, host, SUM(active), SUM(active_ids), SUM(leases), SUM(leased), SUM(claimed),"
      " SUM(returned), SUM(abandoned) FROM ("
      "SELECT biz_tag, host, SUM(state = 'active') AS active,"
      " SUM(CASE WHEN state = 'active' THEN `limit` - base ELSE 0 END) AS active_ids,"
      " SUM(state <> 'active') AS leases,"
      " SUM(CASE WHEN state = 'active' THEN 0 ELSE `limit` - base END) AS leased,"
      " SUM(claimed) AS claimed, SUM(returned) AS returned, SUM(abandoned) AS abandoned"
      " FROM idd_lease" +
          of_tag +
          " GROUP BY biz_tag, host UNION ALL SELECT biz_tag, host, 0, 0, SUM(leases), SUM(leased),"
          " SUM(claimed), SUM(returned), SUM(abandoned) FROM idd_total" +
          of_tag +
          " GROUP BY biz_tag, host) AS every GROUP BY biz_tag, host ORDER BY biz_tag, host",
      {ValueOrNull(tag)});
  std::vector<LeaseSums> sums;
  while (query->Next()) {
    sums.push_back({.tag = query->Text(0),
                    .host = query->Text(1),
                    .active_leases = query->Uint(2),
                    .active_ids = query->Uint(3),
                    .ended = {.leases = query->Uint(4),
                              .leased = query->Uint(5),
                              .claimed = query->Uint(6),
                              .returned = query->Uint(7),
                              .abandoned = query->Uint(8)}});
  }
  if (!query->Finish().ok()) return query->Finish().WithContext("the sums of the leases");
  return sums;
}

Result<std::vector<FoldedOrigin>> LedgerTable::FindFolded(const std::string& tag,
                                                          std::uint64_t id) {
  constexpr std::uint64_t kAtOnce = 64;  // rows, of some 40 KB at most
  std::vector<FoldedOrigin> origins;
  for (std::uint64_t offset = 0;; offset += kAtOnce) {
    const auto query = session_.Query(
        "SELECT host, month, ranges FROM idd_total WHERE biz_tag = ?1 AND first_id <= ?2"
        " AND last_limit > ?2 ORDER BY month DESC, host LIMIT ?3 OFFSET ?4",
        {tag, id, kAtOnce, offset});
    std::uint64_t rows = 0;
    for (; query->Next(); ++rows) {
      const Result<FoldedRanges> ranges = FoldedRanges::Parse(query->Text(2));
      if (!ranges.ok()) return ranges.status();
      if (!ranges.value().Contains(id)) continue;
      origins.push_back({query->Text(0), query->Text(1), ranges.value().is_exact()});
    }
    if (!query->Finish().ok()) return query->Finish();
    if (rows < kAtOnce) return origins;
  }
}

Result<std::vector<std::string>> LedgerTable::CheckSums(const std::string& tag) {
  Result<std::vector<std::string>> differences = std::vector<std::string>();
  Status status = session_.Snapshot([&] {
    differences = CompareSums(tag);
    return differences.status();
  });
  if (!status.ok()) return status;
  return differences;
}

// Counts the tag's settled leases in parts: a statement over all of them takes longer than a
// connection waits for.
Result<LedgerTable::SumsOfMonths> LedgerTable::CountEnded(const std::string& tag) {
  constexpr std::uint64_t kAtOnce = 20'000;
  SumsOfMonths counted;
  std::uint64_t last = 0;
  while (true) {
    const auto query = session_.Query(
        "SELECT host, month, COUNT(*), SUM(leased), SUM(claimed), SUM(returned), SUM(abandoned),"
        " MAX(seq) FROM (SELECT seq, host, SUBSTR(closed_at, 1, 7) AS month,"
        " `limit` - base AS leased, claimed, returned, abandoned FROM idd_ended" +
            session_.ByIndex("idd_ended_tag") +
            " WHERE biz_tag = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3) AS part GROUP BY 1, 2",
        {tag, last, kAtOnce});
    std::uint64_t rows = 0;
    while (query->Next()) {
      Sums& sums = counted[{query->Text(0), query->Text(1)}];
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums.at(i) += query->Uint(2 + static_cast<int>(i));
      rows += query->Uint(2);
      last = std::max(last, query->Uint(2 + static_cast<int>(sums.size())));
    }
    if (!query->Finish().ok())
      return query->Finish().WithContext("the settled leases of tag '" + tag + "'");
    if (rows < kAtOnce) return counted;
  }
}

Result<std::vector<std::string>> LedgerTable::CompareSums(const std::string& tag) {
  constexpr std::array kNames = {"leases", "leased", "claimed", "returned", "abandoned"};
  constexpr int kTotals = 2;
  constexpr int kFolded = kTotals + static_cast<int>(kNames.size());
  Result<SumsOfMonths> counted = CountEnded(tag);
  if (!counted.ok()) return counted.status();
  const auto query = session_.Query(
      "SELECT host, month, leases, leased, claimed, returned, abandoned, folded_leases,"
      " folded_leased, folded_claimed, folded_returned, folded_abandoned FROM idd_total"
      " WHERE biz_tag = ?1 ORDER BY 1, 2",
      {tag});
  std::vector<std::string> differences;
  while (query->Next()) {
    const std::string host = query->Text(0);
    const std::string month = query->Text(1);
    const Sums& rows = counted.value()[{host, month}];
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      const int column = static_cast<int>(i);
      const std::optional<std::uint64_t> total = query->UintIf(kTotals + column);
      const std::optional<std::uint64_t> folded = query->UintIf(kFolded + column);
      if (total.has_value() && folded.has_value() && *total == *folded + rows.at(i)) continue;
      differences.push_back("idd_total." + std::string(kNames.at(i)) + " of tag '" + tag +
                            "', host " + host + ", month " + month + " is " +
                            query->Describe(kTotals + column) + ", but its leases come to " +
                            (folded.has_value() ? std::to_string(*folded + rows.at(i))
                                                : query->Describe(kFolded + column)));
      break;
    }
  }
  if (!query->Finish().ok()) return query->Finish();
  return differences;
}

}  // namespace idd::daemon
