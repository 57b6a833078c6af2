// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_MYSQL_MYSQL_TABLES_H_
#define IDD_DAEMON_STORE_MYSQL_MYSQL_TABLES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace idd::daemon {

// When each of sql::kLeaseTables was made, in seconds since 1970 on the server's clock. A table
// that is dropped and made again, as by a restored dump, counts as another one, whatever its
// contents.
//
// MariaDB takes the time from the table's file whenever it opens the table, and keeps it with each
// of several open instances. After a `chmod` of that file some sessions see a later time than
// others, for the same table. So a table may have several known times, and is new only if it has a
// time that it never had. When a table is made again, all instances are closed and it gets a new
// time.
class MysqlTables {
 public:
  // Adds a time that was read. True: it was not known for this table.
  bool Add(const std::string& table, std::uint64_t made);
  // Adds another host's Times(). True: that host has seen one of the tables with a later time.
  bool AddSeenElsewhere(std::string_view times);

  // " time time ...": the latest of each, in the order of the tables' names.
  [[nodiscard]] std::string Times() const;
  // An SQL condition: all tables exist, use InnoDB and have known times.
  [[nodiscard]] std::string AreSame() const;
  [[nodiscard]] bool empty() const { return made_.empty(); }

 private:
  // At most this many creation times of one table are remembered, the latest ones. Each new time
  // costs a recovery, so there are few.
  static constexpr std::size_t kMaxKnownTimes = 8;

  std::map<std::string, std::set<std::uint64_t>> made_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_MYSQL_MYSQL_TABLES_H_
