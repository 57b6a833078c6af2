// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TOOLS_COMMANDS_LEASE_TABLE_H_
#define IDD_TOOLS_COMMANDS_LEASE_TABLE_H_

#include <string>
#include <string_view>
#include <utility>

#include "client/json_fields.h"
#include "terminal/output.h"

namespace idd::tools {

// Leases as `lease list` and `whois` show them, after one column that the command adds.
class LeaseTable {
 public:
  LeaseTable(std::string_view own_title, std::string_view state_title)
      : table_({{own_title},
                {"HOST"},
                {state_title},
                {"BASE", Align::kRight},
                {"LIMIT", Align::kRight},
                {"CLAIMED", Align::kRight, 1},
                {"RETURNED", Align::kRight, 4},
                {"ABANDONED", Align::kRight, 3},
                {"LEASED", Align::kLeft, 2},
                {"CLOSED", Align::kLeft, 5},
                {"TOKEN", Align::kLeft, 6}}) {}

  void Add(std::string own, const Fields& lease) {
    table_.AddRow({std::move(own), lease.Text("host"), lease.Text("state"), lease.CountText("base"),
                   lease.CountText("limit"), lease.CountText("claimed"),
                   lease.CountText("returned"), lease.CountText("abandoned"),
                   lease.Text("leased_at"), lease.OptionalText("closed_at").value_or(""),
                   lease.Text("token")});
  }
  [[nodiscard]] std::string Format(std::size_t columns) const { return table_.Format(columns); }

 private:
  Table table_;
};

}  // namespace idd::tools

#endif  // IDD_TOOLS_COMMANDS_LEASE_TABLE_H_
