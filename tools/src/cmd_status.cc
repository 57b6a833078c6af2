// SPDX-License-Identifier: Apache-2.0
//
// idctl status: the daemon, its database, and what every tag has.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "commands.h"

namespace idd::tools {
namespace {

// Older daemons cannot be.
std::string Drained(const Fields& daemon) {
  const bool is_drained = daemon.Has("drained") && daemon.Flag("drained");
  return is_drained ? "; the whole host is drained, 'idctl resume' ends it" : "";
}

std::string DaemonLine(const Fields& daemon) {
  return "daemon    idd " + EscapeText(daemon.Text("version")) + ", up " +
         FormatDuration(daemon.Number("uptime_s")) + ", pid " + daemon.CountText("pid") +
         ", host " + EscapeText(daemon.Text("host_id")) + ", socket " +
         EscapeText(daemon.Text("socket")) + Drained(daemon) + "\n";
}

std::string DatabaseLine(const Fields& database) {
  const std::optional<double> since_s = database.OptionalNumber("since_s");
  const std::optional<std::string> last_error = database.OptionalText("last_error");
  std::string line = "database  " + EscapeText(database.Text("state"));
  if (since_s) line += " for " + FormatDuration(*since_s);
  line += ", " + EscapeText(database.Text("url"));
  if (last_error) line += "; last error: " + EscapeText(*last_error);
  return line + "\n";
}

Table TagTable() {
  return Table({{"TAG"},
                {"MODE"},
                {"STATE"},
                {"STEP", Align::kRight},
                {"CLAIMED", Align::kRight},
                {"AVAILABLE", Align::kRight},
                {"RATE/S", Align::kRight},
                {"COVERED", Align::kRight},
                {"FALLBACKS", Align::kRight},
                {"LEASES", Align::kRight}});
}

// How long what is held lasts, of what was promised.
std::string Covered(const Fields& tag) {
  const std::optional<double> covered_s = tag.OptionalNumber("covered_s");
  const Fields promise = tag.Object("promise");
  const std::string of = " of " + FormatDuration(promise.Number("outage_tolerance_s"));
  const bool is_kept = promise.Flag("kept");
  if (!covered_s) return "";
  return FormatDuration(*covered_s) + of + (is_kept ? "" : ", short");
}

void AddTagRow(const Fields& tag, Table& table) {
  table.AddRow({tag.Text("tag"), tag.Text("mode"), tag.Text("state"), tag.CountText("step"),
                tag.CountText("claimed"), tag.CountText("available"),
                FormatRate(tag.Number("rate_per_s")), Covered(tag), tag.CountText("fallbacks"),
                tag.CountText("leases")});
}

// The segments of the ring. `next` is read from memory that clients write, so it may lie anywhere.
Table SegmentTable(const Fields& tag) {
  Table table({{"SEGMENT"},
               {"BASE", Align::kRight},
               {"LIMIT", Align::kRight},
               {"NEXT", Align::kRight},
               {"LEFT", Align::kRight}});
  std::size_t number = 0;
  for (const Fields& segment : tag.Objects("segments")) {
    const std::uint64_t base = segment.Count("base");
    const std::uint64_t limit = segment.Count("limit");
    const std::uint64_t next = segment.Count("next");
    const std::uint64_t first = std::max(base, next);
    table.AddRow({std::to_string(++number), std::to_string(base), std::to_string(limit),
                  std::to_string(next), std::to_string(limit > first ? limit - first : 0)});
  }
  return table;
}

// From three months before the end on.
std::string ForecastLine(const Fields& tag) {
  constexpr double kWarnedDays = 90;
  const std::optional<double> days = tag.OptionalNumber("exhausted_in_days");
  if (!days || *days >= kWarnedDays) return {};
  return EscapeText(tag.Text("tag")) + ": its ids end in " + FormatDuration(*days * 86'400) +
         " at this rate\n";
}

std::string ErrorLine(const Fields& tag) {
  const std::optional<std::string> last_error = tag.OptionalText("last_error");
  if (!last_error) return {};
  return EscapeText(tag.Text("tag")) + ": last error: " + EscapeText(*last_error) + "\n";
}

// The tables and lines below the head.
std::string TagsText(const std::vector<Fields>& tags, const std::string& asked_tag) {
  if (tags.empty()) return "\nno tags; create one with 'idctl tag create TAG'\n";
  Table table = TagTable();
  std::string segments;
  std::string errors;
  for (const Fields& tag : tags) {
    AddTagRow(tag, table);
    errors += ForecastLine(tag) + ErrorLine(tag);
    const Table of_tag = SegmentTable(tag);  // read in any case: it checks the fields
    if (!asked_tag.empty()) segments += "\n" + of_tag.Format();
  }
  return "\n" + table.Format() + segments + (errors.empty() ? "" : "\n" + errors);
}

Outcome ShowStatus(const GlobalOptions& global, const std::string& tag, Output& out) {
  AdminCall call;
  call.what = tag.empty() ? "status" : "status " + Quote(tag);
  call.request = {{"op", "status"}};
  if (!tag.empty()) call.request["tag"] = tag;
  call.render = [&tag](const Json& document) { return RenderStatus(document, tag); };
  return RunAdminCall(global, call, out);
}

}  // namespace

Result<std::string> RenderStatus(const Json& document, const std::string& tag) {
  Status error;
  const Fields reply(document, "reply", &error);
  const std::vector<Fields> tags = reply.Objects("tags");
  std::string text = DaemonLine(reply.Object("daemon")) + DatabaseLine(reply.Object("database")) +
                     TagsText(tags, tag);
  if (!error.ok()) return error;
  if (!tag.empty() && tags.empty()) {
    return Status(Code::kNoSuchTag, "the daemon knows no tag of that name");
  }
  return text;
}

void RegisterStatusCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* status = AddCommand(app, "status", "Show the daemon, its database and the tags",
                                "idctl status orders");
  AddTagName(*status, "TAG", "Only this tag, with its segments",
             [&invocation](std::string tag) { invocation.filter.tag = std::move(tag); });
  status->callback([&invocation] {
    invocation.action = [&invocation](Output& out) {
      return ShowStatus(invocation.global, invocation.filter.tag.value_or(""), out);
    };
  });
}

}  // namespace idd::tools
