// SPDX-License-Identifier: Apache-2.0
//
// idctl status: the daemon, its database, and the state of every tag.
#include <algorithm>
#include <optional>
#include <vector>

#include "commands/cmd_cluster.h"
#include "commands/commands.h"
#include "tags/snowflake_layout.h"
#include "terminal/terminal.h"
#include "top/top_model.h"

namespace idd::tools {
namespace {

// Indentation of the continuation lines of the head.
constexpr std::size_t kHeadIndent = 10;
constexpr std::size_t kErrorIndent = 2;
constexpr std::uint64_t kLongestStoreWaitMs = 600'000;

// Older daemons do not report "drained" and cannot be drained.
std::string Drained(const Fields& daemon) {
  const bool is_drained = daemon.Has("drained") && daemon.Flag("drained");
  return is_drained ? "; the whole host is drained, 'idctl resume' ends it" : "";
}

// Older daemons do not report the machine's name.
std::string Named(const Fields& daemon) {
  const std::optional<std::string> name = daemon.OptionalText("host_name");
  const std::optional<std::string> address = daemon.OptionalText("host_address");
  std::string text;
  if (name) text += EscapeText(*name);
  if (address) text += (text.empty() ? "" : ", ") + EscapeText(*address);
  return text.empty() ? text : " (" + text + ")";
}

std::string DaemonLines(const Fields& daemon, std::size_t columns) {
  return WrapTo("daemon    idd " + EscapeText(daemon.Text("version")) + ", up " +
                    FormatDuration(daemon.Number("uptime_s")) + ", pid " + daemon.CountText("pid") +
                    ", host " + EscapeText(daemon.Text("host_id")) + Named(daemon) + ", socket " +
                    EscapeText(daemon.Text("socket")) + Drained(daemon),
                columns, kHeadIndent) +
         "\n";
}

std::string DatabaseLines(const Fields& database, std::size_t columns) {
  const std::optional<double> since_s = database.OptionalNumber("since_s");
  const std::optional<std::string> last_error = database.OptionalText("last_error");
  std::string line = "database  " + EscapeText(database.Text("state"));
  if (since_s) line += " for " + FormatDuration(*since_s);
  line += ", " + EscapeText(database.Text("url"));
  if (last_error) line += "; last error: " + EscapeText(*last_error);
  return WrapTo(line, columns, kHeadIndent) + "\n";
}

// "web-1, web-2 (silent for 2m), web-3; term 17, begun by web-1".
std::string WitnessesText(const Fields& agreement) {
  std::string text;
  for (const Fields& witness : agreement.Objects("witnesses")) {
    const double silent_s = witness.Number("silent_s");
    text += (text.empty() ? "" : ", ") + EscapeText(witness.Text("host"));
    if (witness.Flag("is_there")) continue;
    text += silent_s > 0 ? " (silent for " + FormatDuration(silent_s) + ")"
                         : std::string(" (not in this term yet)");
  }
  text += "; term " + agreement.CountText("term") + ", begun by " +
          EscapeText(agreement.Text("begun_by"));
  std::string next;
  for (const std::string& host : agreement.Texts("next")) {
    next += (next.empty() ? "; next " : ", ") + EscapeText(host);
  }
  return text + next;
}

// Nothing for a SQLite file, and from an older daemon.
std::string AgreementLines(const Fields& database, std::size_t columns) {
  const std::optional<Fields> agreement =
      database.Has("agreement") ? database.OptionalObject("agreement") : std::optional<Fields>();
  if (!agreement) return {};
  std::string lines = WrapTo("witnesses " + WitnessesText(*agreement), columns, kHeadIndent) + "\n";
  const bool has_majority = agreement->Flag("has_majority");
  const bool waits = agreement->Text("state") == "waiting";
  const std::optional<std::string> reason = agreement->OptionalText("reason");
  if (!reason) return lines;
  std::string line = waits ? "leasing   waits: " : "leasing   only below the active ceilings: ";
  line += EscapeText(*reason);
  if (!has_majority) {
    line +=
        "; start the witnesses, or replace those that will not return with 'idctl witness set "
        "--force HOST...'";
  }
  return lines + WrapTo(line, columns, kHeadIndent) + "\n";
}

// Of both tables of tags.
constexpr std::size_t kStateColumn = 2;

Table TagTable() {
  return Table({{"TAG"},
                {"MODE", Align::kLeft, 6},
                {"STATE"},
                {"STEP", Align::kRight, 5},
                {"CLAIMED", Align::kRight, 2},
                {"AVAILABLE", Align::kRight},
                {"RATE/S", Align::kRight, 1},
                {"COVERED", Align::kRight},
                {"FALLBACKS", Align::kRight, 4},
                {"LEASES", Align::kRight, 3}});
}

// Snowflake tags: the time of the next id, and until when ids need no lease.
Table SnowflakeTable() {
  return Table({{"TAG"},
                {"MODE", Align::kLeft, 5},
                {"STATE"},
                {"WORKER", Align::kRight},
                {"TIME", Align::kLeft, 1},
                {"LEASED-UNTIL"},
                {"CLOCK", Align::kLeft, 4},
                {"FALLBACKS", Align::kRight, 3},
                {"LEASES", Align::kRight, 2}});
}

// Highlights what an operator should look at.
std::string PaintCell(std::size_t column, const std::string& cell, const Screen& screen) {
  if (column == kStateColumn) {
    const bool is_bad = cell == "dry" || cell == "quarantined";
    if (cell == "drained") return Toned(Tone::kFaint, cell, screen);
    if (cell == "short") return Toned(Tone::kWarning, cell, screen);
    return Toned(is_bad ? Tone::kBad : Tone::kGood, cell, screen);
  }
  return cell;
}

// The present length of the promise. Nothing while the tag is idle.
std::optional<double> PromiseLength(const Fields& tag) {
  return tag.Object("promise").OptionalNumber("length_s");
}

// How long the available ids last; of a tag that is short, also how long they should last by now.
std::string Covered(const Fields& tag) {
  const std::optional<double> covered_s = tag.OptionalNumber("covered_s");
  const std::optional<double> length_s = PromiseLength(tag);
  const bool is_kept = tag.Object("promise").Flag("kept");
  if (!covered_s) return "";
  const std::string covered = FormatDuration(*covered_s);
  return is_kept || !length_s ? covered : covered + " of " + FormatDuration(*length_s);
}

std::string PromiseLine(const Fields& tag) {
  const Fields promise = tag.Object("promise");
  const std::optional<double> length_s = PromiseLength(tag);
  const double tolerance_s = promise.Number("outage_tolerance_s");
  const double now_s = length_s.value_or(tolerance_s);
  std::string text = "promise " + std::string(promise.Flag("kept") ? "kept" : "not kept");
  text += ": ids for " + FormatDuration(now_s) + " without the store";
  if (now_s < tolerance_s) {
    text += ", as long as the load has lasted; at most " + FormatDuration(tolerance_s);
  }
  return text;
}

// To the second: "2026-11-25T03:00:00Z". Any other form stays as it is.
std::string InSeconds(std::string time) {
  constexpr std::size_t kFraction = 19;  // its position
  if (time.size() == kFraction + 5 && time[kFraction] == '.') time.erase(kFraction, 4);
  return time;
}

// A worker id, once this host has one.
void AddSnowflakeRow(const Fields& tag, Table& table) {
  std::string worker;
  std::string time;
  std::string until;
  std::string clock;
  if (const std::optional<Fields> snowflake = SnowflakeOf(tag)) {
    static_cast<void>(snowflake->OptionalText("counter"));  // checks it
    if (snowflake->OptionalNumber("worker")) worker = snowflake->CountText("worker");
    time = InSeconds(snowflake->OptionalText("time").value_or(""));
    until = InSeconds(snowflake->OptionalText("leased_until").value_or(""));
    clock = snowflake->Text("clock");
  }
  table.AddRow({tag.Text("tag"), tag.Text("mode"), tag.Text("state"), std::move(worker),
                std::move(time), std::move(until), std::move(clock), tag.CountText("fallbacks"),
                tag.CountText("leases")});
}

void AddTagRow(const Fields& tag, Table& table) {
  table.AddRow({tag.Text("tag"), tag.Text("mode"),
                ShownState(tag.Text("state"), tag.Object("promise").Flag("kept")),
                tag.CountText("step"), tag.CountText("claimed"), tag.CountText("available"),
                FormatRate(tag.Number("rate_per_s")), Covered(tag), tag.CountText("fallbacks"),
                tag.CountText("leases")});
}

// The segments of the ring. `next` is read from memory that clients can write, so it may have any
// value.
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

// Of order cpu; empty for other tags, and from an older idd.
std::string LanesLine(const Fields& tag) {
  if (!tag.Has("lanes")) return {};
  const std::optional<Fields> lanes = tag.OptionalObject("lanes");
  if (!lanes) return {};
  return lanes->CountText("count") + " lanes with blocks of " + lanes->CountText("block") + ": " +
         lanes->CountText("left") + " ids left in lanes, " + lanes->CountText("dropped") +
         " dropped in this ring\n";
}

// Shown from three months before the end.
std::string ForecastLine(const Fields& tag) {
  constexpr double kForecastDays = 90;
  const std::optional<double> days = tag.OptionalNumber("exhausted_in_days");
  if (!days || *days >= kForecastDays) return {};
  const std::string left = FormatDuration(*days * 86'400);
  if (IsSnowflake(tag.Text("mode"))) {
    return EscapeText(tag.Text("tag")) + ": the time bits of its layout end in " + left;
  }
  return EscapeText(tag.Text("tag")) + ": its ids end in " + left + " at this rate";
}

std::string ErrorLine(const Fields& tag) {
  const std::optional<std::string> last_error = tag.OptionalText("last_error");
  if (!last_error) return {};
  return EscapeText(tag.Text("tag")) + ": last error: " + EscapeText(*last_error);
}

// The tables and lines below the head.
std::string TagsText(const std::vector<Fields>& tags, const std::string& asked_tag,
                     const Screen& screen) {
  if (tags.empty()) return "\nno tags; create one with 'idctl tag create TAG'\n";
  Table of_ranges = TagTable();
  Table of_time = SnowflakeTable();
  std::size_t count_of_time = 0;
  std::string segments;
  std::string errors;
  for (const Fields& tag : tags) {
    const bool has_time = IsSnowflake(tag.Text("mode"));
    Table checked = TagTable();  // also of a tag that is shown by its time
    AddTagRow(tag, has_time ? checked : of_ranges);
    if (has_time) AddSnowflakeRow(tag, of_time);
    count_of_time += has_time ? 1U : 0U;
    for (const std::string& line : {ForecastLine(tag), ErrorLine(tag)}) {
      if (!line.empty()) errors += WrapTo(line, screen.columns, kErrorIndent) + "\n";
    }
    const Table of_tag = SegmentTable(tag);  // always read: this checks the fields
    const std::string lanes = LanesLine(tag);
    const std::string promise = PromiseLine(tag);
    if (asked_tag.empty() || has_time) continue;
    segments += "\n" + of_tag.Format(screen.columns) + lanes;
    if (tag.Text("mode") == "segment") {
      segments += WrapTo(promise, screen.columns, kErrorIndent) + "\n";
    }
  }
  const auto paint = [&screen](std::size_t column, const std::string& cell) {
    return PaintCell(column, cell, screen);
  };
  std::string text;
  if (count_of_time < tags.size()) text += "\n" + of_ranges.Format(screen.columns, paint);
  if (count_of_time > 0) text += "\n" + of_time.Format(screen.columns, paint);
  return text + segments + (errors.empty() ? "" : "\n" + errors);
}

Outcome ShowStatus(const GlobalOptions& global, const std::string& tag, Output& out) {
  AdminCall call(tag.empty() ? "status" : "status " + Quote(tag), "status");
  if (!tag.empty()) call.request.Set("tag", tag);
  // Half of the user's timeout is for the store: if the store does not list the tags, idd answers
  // from its own knowledge.
  if (global.timeout_ms.has_value()) {
    call.request.Set("wait_ms", std::min(*global.timeout_ms / 2, kLongestStoreWaitMs));
  }
  const Screen screen = ProbeScreen(out.fd());
  call.render = [&tag, &screen](const Json& document) {
    return RenderStatus(document, tag, screen);
  };
  return RunAdminCall(global, call, out);
}

}  // namespace

Result<std::string> RenderStatus(const Json& document, const std::string& tag,
                                 const Screen& screen) {
  Status error;
  const Fields reply(document, "reply", &error);
  const std::vector<Fields> tags = reply.Objects("tags");
  std::string text = DaemonLines(reply.Object("daemon"), screen.columns) +
                     DatabaseLines(reply.Object("database"), screen.columns) +
                     AgreementLines(reply.Object("database"), screen.columns) +
                     TagsText(tags, tag, screen);
  if (!error.ok()) return error;
  if (!tag.empty() && tags.empty()) {
    return Status(Code::kNoSuchTag, "the daemon knows no tag of that name");
  }
  return text;
}

void RegisterStatusCommand(Command root, Invocation& invocation) {
  Command status = root.AddCommand("status", "Show the daemon, its database and the tags",
                                   "idctl status orders");
  status.AddTagName("TAG", "Only this tag, with its segments", &invocation.filter.tag);
  status.AddFlag("--all-hosts", "The hosts and tags of the whole store",
                 &invocation.filter.is_all_hosts);
  status.AddNumber("--limit", "With --all-hosts: maximum number of hosts, and of tags [20]",
                   {1, 100'000}, &invocation.filter.limit);
  SetAction(status, invocation, [&invocation](Output& out) {
    const FilterArguments& filter = invocation.filter;
    if (filter.is_all_hosts) {
      return ShowCluster(invocation.global, {.tag = filter.tag.value_or(""), .limit = filter.limit},
                         out);
    }
    return ShowStatus(invocation.global, invocation.filter.tag.value_or(""), out);
  });
}

}  // namespace idd::tools
