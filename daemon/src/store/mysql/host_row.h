// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_MYSQL_HOST_ROW_H_
#define IDD_DAEMON_STORE_MYSQL_HOST_ROW_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "platform/host_id.h"
#include "sql/mysql_db.h"

namespace idd::daemon {

// Names a run of idd: its number, which rises with each run on a state directory, so that the row
// of an earlier run can be told from that of a later one; the rest is random.
inline constexpr std::size_t kRunNumberSize = 16;  // the number comes first, and sorts as text
[[nodiscard]] std::string MakeRun(std::uint64_t number);
// Whether the number of `run` is below that of `other`.
[[nodiscard]] bool IsOlderRun(std::string_view run, std::string_view other) noexcept;

// The row of this host in idd_host. Another live host with the same name would take its returned
// ranges and abandon its leases. So the row has the run that holds the name, and a beat that only
// rises.
//
// Thread safety: none.
class HostRow {
 public:
  // `run`: MakeRun(), so that two owners of such an object differ.
  HostRow(HostIdentity host, std::string run) : host_(std::move(host)), run_(std::move(run)) {}

  // Takes the name. True: the row is older than this run had left it, so the tables were set back.
  // kUnavailable while another live host has the name.
  //
  // A run that has held the name takes the row of an earlier run on its state directory back, too:
  // that run had ended or was silent before this one got the name, so its row is from a copy of the
  // tables. A clone of the state directory that started later has a higher number.
  [[nodiscard]] Result<bool> Claim(MysqlDb& db);
  // Renews the row if that is due. False: the row is not as this run left it.
  [[nodiscard]] Result<bool> Beat(MysqlDb& db);
  // An SQL condition on idd_host: the row of this host, as this run left it.
  [[nodiscard]] std::string IsAsLeft() const;

 private:
  [[nodiscard]] std::string IsThisHost() const;

  const HostIdentity host_;
  const std::string run_;
  std::uint64_t beat_ = 0;  // of the row; 0: not known
  MonotonicTime beaten_at_{};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_MYSQL_HOST_ROW_H_
