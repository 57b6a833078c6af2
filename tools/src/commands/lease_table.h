// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TOOLS_COMMANDS_LEASE_TABLE_H_
#define IDD_TOOLS_COMMANDS_LEASE_TABLE_H_

#include <string>
#include <string_view>
#include <utility>

#include "client/json_fields.h"
#include "terminal/output.h"

namespace idd::tools {

// Leases as `lease list` and `whois` show them, after one column that the command adds. The leases
// of a snowflake tag, if kTime is chosen, are windows of time.
class LeaseTable {
 public:
  enum class Bounds { kNumbers, kTime };

  LeaseTable(std::string_view own_title, std::string_view state_title,
             Bounds bounds = Bounds::kNumbers)
      : bounds_(bounds),
        table_({{own_title},
                {"HOST"},
                {state_title},
                {bounds == Bounds::kTime ? "FROM" : "BASE", AlignOf(bounds)},
                {bounds == Bounds::kTime ? "TO" : "LIMIT", AlignOf(bounds)},
                {"CLAIMED", Align::kRight, 1},
                {"RETURNED", Align::kRight, 4},
                {"ABANDONED", Align::kRight, 3},
                {"LEASED", Align::kLeft, 2},
                {"CLOSED", Align::kLeft, 5},
                {"NAME", Align::kLeft, 4},
                {"TOKEN", Align::kLeft, 6}}) {}

  void Add(std::string own, const Fields& lease) {
    std::string first = lease.CountText("base");
    std::string limit = lease.CountText("limit");
    if (bounds_ == Bounds::kTime) {
      first = lease.Text("from");
      limit = lease.Text("to");
    }
    table_.AddRow({std::move(own), lease.Text("host"), lease.Text("state"), std::move(first),
                   std::move(limit), lease.CountText("claimed"), lease.CountText("returned"),
                   lease.CountText("abandoned"), lease.Text("leased_at"),
                   lease.OptionalText("closed_at").value_or(""),
                   lease.OptionalText("host_name").value_or(""), lease.Text("token")});
  }
  [[nodiscard]] std::string Format(std::size_t columns) const { return table_.Format(columns); }

 private:
  static Align AlignOf(Bounds bounds) {
    return bounds == Bounds::kTime ? Align::kLeft : Align::kRight;
  }

  const Bounds bounds_;
  Table table_;
};

}  // namespace idd::tools

#endif  // IDD_TOOLS_COMMANDS_LEASE_TABLE_H_
