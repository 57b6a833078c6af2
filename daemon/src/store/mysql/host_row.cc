// SPDX-License-Identifier: Apache-2.0
#include "store/mysql/host_row.h"

#include <chrono>
#include <optional>
#include <vector>

#include "platform/random.h"
#include "store/mysql/mysql_sql.h"

namespace idd::daemon {
namespace {

// The row of a host that has not ended is renewed this often ...
constexpr std::chrono::seconds kBeatEvery(20);
// ... and after this long without a renewal another host may take its name.
constexpr int kSilentForS = 60;
}  // namespace

std::string MakeRun(std::uint64_t number) {
  std::string run;
  for (int shift = 4 * (static_cast<int>(kRunNumberSize) - 1); shift >= 0; shift -= 4) {
    run += "0123456789abcdef"[(number >> static_cast<unsigned>(shift)) & 0xfU];
  }
  return run + RandomToken().substr(kRunNumberSize);
}

bool IsOlderRun(std::string_view run, std::string_view other) noexcept {
  return run.substr(0, kRunNumberSize) < other.substr(0, kRunNumberSize);
}

std::string HostRow::IsAsLeft() const {
  return "idd_host." + IsThisHost() + " AND beat = " + std::to_string(beat_);
}

std::string HostRow::IsThisHost() const {
  return "host = " + MysqlDb::Text(host_.id) + " AND run = '" + run_ + "'";
}

Result<bool> HostRow::Claim(MysqlDb& db) {
  const std::string host = MysqlDb::Text(host_.id);
  const std::string boot = MysqlDb::Text(host_.boot_id);
  const std::string instance = MysqlDb::Text(host_.instance);
  // The next run on the same state dir takes the row over at once. A run that has held the row does
  // not take it back from a later run that shares the state dir.
  const std::string number = std::to_string(kRunNumberSize);
  const std::string is_own = "instance = " + instance + " AND " +
                             (beat_ == 0 ? "boot_id = " + boot
                                         : "(run = '" + run_ + "' OR LEFT(run, " + number +
                                               ") < LEFT('" + run_ + "', " + number + "))");
  const Result<std::vector<MysqlResult>> claimed = db.Packet(
      {"INSERT IGNORE INTO idd_host(host, stopped_at, boot_id, instance, run, beat) VALUES(" +
           host + ", CURRENT_TIMESTAMP, '', " + instance + ", '', 0)",
       "UPDATE idd_host SET boot_id = " + boot + ", instance = " + instance + ", run = '" + run_ +
           "', beat = beat + 1, disk = " + MysqlDb::Text(host_.disk) +
           ", last_seen = CURRENT_TIMESTAMP, stopped_at = NULL WHERE host = " + host +
           " AND (stopped_at IS NOT NULL OR (" + is_own +
           ") OR last_seen < CURRENT_TIMESTAMP - INTERVAL " + std::to_string(kSilentForS) +
           " SECOND)",
       "SELECT boot_id, run, beat, TIMESTAMPDIFF(SECOND, last_seen, CURRENT_TIMESTAMP)"
       " FROM idd_host WHERE host = " +
           host});
  if (!claimed.ok()) return claimed.status();
  if (claimed.value()[2].rows.empty()) {
    return Status(Code::kUnavailable, "the row of host '" + host_.id + "' is gone from idd_host");
  }
  const MysqlRow row(claimed.value()[2].rows[0]);
  if (row.TextIf(1) != run_) {
    return Status(
        Code::kUnavailable,
        "another host uses the name '" + host_.id + "' (boot id " + row.TextIf(0).value_or("") +
            ", seen " + row.TextIf(3).value_or("?") +
            " s ago); give one of them another --host-id, or wait until the other has been "
            "silent for " +
            std::to_string(kSilentForS) + " s");
  }
  const std::optional<std::uint64_t> beat = row.UintIf(2);
  if (!beat.has_value()) return Status(Code::kInvalid, "idd_host.beat is not a number above 0");
  const bool is_set_back = beat_ != 0 && *beat <= beat_;
  beat_ = *beat;
  beaten_at_ = MonotonicClock::now();
  return is_set_back;
}

Result<bool> HostRow::Beat(MysqlDb& db) {
  if (MonotonicClock::now() - beaten_at_ < kBeatEvery) return true;
  const Result<MysqlResult> beaten = db.Query(
      "UPDATE idd_host SET last_seen = CURRENT_TIMESTAMP, beat = beat + 1 WHERE " + IsAsLeft());
  if (!beaten.ok()) return beaten.status();
  if (beaten.value().changed != 1) return false;
  ++beat_;
  beaten_at_ = MonotonicClock::now();
  return true;
}

}  // namespace idd::daemon
