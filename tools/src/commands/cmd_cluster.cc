// SPDX-License-Identifier: Apache-2.0
//
// idctl status --all-hosts, idctl top --all-hosts: the hosts and tags of the whole store.
#include "commands/cmd_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/admin_client.h"
#include "commands/commands.h"
#include "terminal/terminal.h"
#include "top/full_screen.h"
#include "top/top_view.h"

namespace idd::tools {
namespace {

// Indentation of the continuation lines of the head.
constexpr std::size_t kHeadIndent = 10;
// A store with millions of sums takes its time.
constexpr std::uint64_t kClusterTimeoutMs = 60'000;
constexpr double kForecastDays = 90;
constexpr std::size_t kHostStateColumn = 2;
constexpr double kPercent = 100;

std::string Line(const std::string& text, std::size_t columns) {
  return WrapTo(text, columns, kHeadIndent) + "\n";
}

// The names in one of the document's objects of counts, in its order. What is no such object has
// none; Fields reports it.
std::vector<std::string> NamesIn(const Json& document, const char* key) {
  std::vector<std::string> names;
  const auto all = document.find("cluster");
  if (all == document.end() || !all->is_object()) return names;
  const auto counts = all->find(key);
  if (counts == all->end() || !counts->is_object()) return names;
  for (const auto& item : counts->items()) names.push_back(item.key());
  return names;
}

// "49 live, 1 silent".
std::string ConditionsText(const Json& document, const Fields& all) {
  const Fields counts = all.Object("conditions");
  std::string text;
  for (const std::string& name : NamesIn(document, "conditions")) {
    text += (text.empty() ? "" : ", ") + counts.CountText(name.c_str()) + " " + EscapeText(name);
  }
  return text;
}

// "; idd 0.1.0 on 49, 0.2.0 on 1".
std::string VersionsText(const Json& document, const Fields& all) {
  const Fields counts = all.Object("versions");
  std::string text;
  for (const std::string& name : NamesIn(document, "versions")) {
    text += (text.empty() ? "; idd " : ", ") + EscapeText(name) + " on " +
            counts.CountText(name.c_str());
  }
  return text;
}

std::string HeadLines(const Json& document, const Fields& all, std::size_t columns) {
  std::string text = Line("hosts     " + all.CountText("hosts") + ": " +
                              ConditionsText(document, all) + VersionsText(document, all),
                          columns);
  const std::uint64_t leased = all.Count("leased_ids");
  const std::uint64_t abandoned = all.Count("abandoned_ids");
  std::string waste = std::to_string(abandoned) + " abandoned";
  if (leased > 0) {
    std::ostringstream percent;
    percent.precision(1);
    percent << std::fixed
            << kPercent * static_cast<double>(abandoned) / static_cast<double>(leased);
    waste += " (" + percent.str() + " %)";
  }
  text += Line("leases    " + all.CountText("active_leases") + " active with " +
                   all.CountText("held_ids") + " ids; of " + std::to_string(leased) +
                   " leased ids " + all.CountText("claimed_ids") + " claimed, " +
                   all.CountText("returned_ids") + " returned, " + waste,
               columns);
  const std::uint64_t short_tags = all.Count("short_tags");
  text += Line("tags      " + all.CountText("tags") + ", " + FormatRate(all.Number("rate_per_s")) +
                   " ids/s" +
                   (short_tags == 0 ? std::string()
                                    : "; " + std::to_string(short_tags) +
                                          " short: a host holds fewer ids than promised"),
               columns);
  return text;
}

// Only a peer that administers all tags sees the sums of the hosts.
std::string CountOrNone(const Fields& object, const char* key) {
  const std::optional<std::uint64_t> count = object.OptionalCount(key);
  return count.has_value() ? std::to_string(*count) : std::string();
}

std::string HostsTable(const Fields& reply, const Screen& screen) {
  const std::vector<Fields> hosts = reply.Objects("hosts");
  const bool have_names = std::all_of(hosts.begin(), hosts.end(), [](const Fields& host) {
    return host.OptionalText("name").has_value();
  });
  Table table({{"HOST", Align::kLeft, have_names ? 1 : 0},
               {"NAME"},
               {"STATE"},
               {"VERSION", Align::kLeft, 3},
               {"LAST-SEEN", Align::kLeft, 5},
               {"LEASES", Align::kRight, 4},
               {"HELD", Align::kRight, 2},
               {"SHORT-TAGS", Align::kRight, 6}});
  for (const Fields& host : hosts) {
    table.AddRow({host.Text("host"), host.OptionalText("name").value_or(""), host.Text("condition"),
                  host.OptionalText("version").value_or(""),
                  FormatDuration(host.Number("silent_s")) + " ago",
                  CountOrNone(host, "active_leases"), CountOrNone(host, "held_ids"),
                  CountOrNone(host, "short_tags")});
  }
  if (hosts.empty()) return {};
  return "\n" +
         table.Format(screen.columns, [&screen](std::size_t column, const std::string& cell) {
           if (column != kHostStateColumn) return cell;
           if (cell == "stopped") return Toned(Tone::kFaint, cell, screen);
           return Toned(cell == "silent" ? Tone::kBad : Tone::kGood, cell, screen);
         });
}

std::string TagsTable(const Fields& reply, std::size_t columns) {
  const std::vector<Fields> tags = reply.Objects("tags");
  Table table({{"TAG"},
               {"MODE", Align::kLeft, 6},
               {"RATE/S", Align::kRight},
               {"HOSTS", Align::kRight, 2},
               {"LEASES", Align::kRight, 5},
               {"HELD", Align::kRight, 1},
               {"ABANDONED", Align::kRight, 4},
               {"NEXT", Align::kRight, 7},
               {"ENDS-IN", Align::kRight, 3},
               {"SHORT-HOSTS", Align::kRight, 8}});
  for (const Fields& tag : tags) {
    const std::optional<std::string> mode = tag.OptionalText("mode");
    const bool is_counted = mode != "snowflake";  // others' ids are numbers of time
    const std::optional<double> rate = tag.OptionalNumber("rate_per_s");
    const std::optional<double> days = tag.OptionalNumber("exhausted_in_days");
    const std::string held = tag.CountText("held_ids");
    const std::string abandoned = tag.CountText("abandoned_ids");
    const std::string next = CountOrNone(tag, "next_id");
    static_cast<void>(CountOrNone(tag, "max_id"));  // checks it
    std::string ends;
    if (days.has_value() && *days < kForecastDays) ends = FormatDuration(*days * 86'400);
    table.AddRow({tag.Text("tag"), mode.value_or("deleted"), rate ? FormatRate(*rate) : "",
                  tag.CountText("hosts"), tag.CountText("active_leases"), is_counted ? held : "",
                  is_counted ? abandoned : "", is_counted ? next : "", std::move(ends),
                  tag.CountText("short_hosts")});
  }
  return tags.empty() ? "\nno tags; create one with 'idctl tag create TAG'\n"
                      : "\n" + table.Format(columns);
}

std::string MoreLine(const Fields& reply, std::size_t columns) {
  const std::uint64_t hosts = reply.Count("more_hosts");
  const std::uint64_t tags = reply.Count("more_tags");
  if (hosts + tags == 0) return {};
  std::string text;
  if (hosts > 0) text += Counted(hosts, "host");
  if (tags > 0) text += (text.empty() ? "" : " and ") + Counted(tags, "tag");
  return "\n" + Line("Not shown: " + text + "; --limit shows more.", columns);
}

AdminRequest ClusterRequest(const ClusterArguments& arguments) {
  AdminRequest request("cluster");
  if (!arguments.tag.empty()) request.Set("tag", arguments.tag);
  request.SetIfGiven("limit", arguments.limit);
  return request;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(std::move(line));
  return lines;
}

// The live view: reads the cluster again and again.
class ClusterTop {
 public:
  ClusterTop(const GlobalOptions& global, const ClusterArguments& arguments)
      : socket_path_(global.socket_path),
        timeout_(static_cast<std::int64_t>(global.timeout_ms.value_or(kClusterTimeoutMs))),
        request_(ClusterRequest(arguments)) {}

  [[nodiscard]] Status Refresh() {
    const Deadline deadline = Deadline::After(timeout_);
    if (!client_.has_value()) {
      Result<AdminClient> client = AdminClient::Connect(socket_path_, deadline);
      if (!client.ok()) return client.status();
      client_.emplace(std::move(client).value());
    }
    Result<JsonDocument> document = client_->Request(request_, deadline);
    if (!document.ok()) {
      client_.reset();
      return document.status();
    }
    document_ = std::move(document).value();
    // A malformed document is an error, whatever it is shown as.
    return RenderCluster(document_->json(), {}).status();
  }
  [[nodiscard]] std::string Text(const Screen& screen) const {
    return RenderCluster(document_->json(), screen).value();
  }
  [[nodiscard]] const JsonDocument& document() const { return *document_; }

 private:
  const std::string socket_path_;
  const std::chrono::milliseconds timeout_;
  const AdminRequest request_;
  std::optional<AdminClient> client_;
  std::optional<JsonDocument> document_;
};

MonotonicClock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<MonotonicClock::duration>(
      std::chrono::duration<double>(seconds));
}

// What the screen shows, from line `first` on. While idd does not answer, the last lines stay.
std::vector<StyledLine> PageOf(const ClusterTop& top, const Status& refreshed, std::size_t& first,
                               const Screen& screen) {
  constexpr std::size_t kFootLines = 1;
  const Screen plain{.is_terminal = true, .columns = screen.columns, .rows = screen.rows};
  const std::vector<std::string> lines = LinesOf(top.Text(plain));
  const std::size_t room = screen.rows > kFootLines ? screen.rows - kFootLines : 0;
  first = std::min(first, lines.size() - std::min(lines.size(), room));
  std::vector<StyledLine> page;
  for (std::size_t i = first; i < lines.size() && page.size() < room; ++i) {
    page.push_back({{Tone::kPlain, FitTo(lines[i], screen.columns)}});
  }
  page.resize(room);
  const std::string foot =
      refreshed.ok() ? "q quit  arrows scroll" : "no answer: " + EscapeText(refreshed.message());
  page.push_back({{refreshed.ok() ? Tone::kFaint : Tone::kBad, FitTo(foot, screen.columns)}});
  return page;
}

// Returns false on quit.
bool Press(const Key& key, std::size_t rows, std::size_t& first) {
  if (key.kind == KeyKind::kText && key.text == "q") return false;
  const bool is_up = key.kind == KeyKind::kUp || (key.kind == KeyKind::kText && key.text == "k");
  const bool is_down =
      key.kind == KeyKind::kDown || (key.kind == KeyKind::kText && key.text == "j");
  if (is_up) first -= std::min<std::size_t>(first, 1);
  if (is_down) ++first;
  if (key.kind == KeyKind::kPageUp) first -= std::min(first, rows);
  if (key.kind == KeyKind::kPageDown) first += rows;
  if (key.kind == KeyKind::kHome) first = 0;
  if (key.kind == KeyKind::kEnd) first = SIZE_MAX / 2;
  return true;
}

// Nothing: the terminal does not support a full screen.
std::optional<Outcome> ShowOnScreen(double interval_s, ClusterTop& top, int out_fd) {
  Status refreshed;
  std::size_t first = 0;
  FullScreen shown;
  shown.interval = Seconds(interval_s);
  shown.first_refresh = MonotonicClock::now() + shown.interval;
  // An error is shown, and the next refresh may succeed.
  shown.refresh = [&top, &refreshed] {
    refreshed = top.Refresh();
    return Status::Ok();
  };
  shown.draw = [&](const Screen& screen) { return PageOf(top, refreshed, first, screen); };
  shown.press = [&first](const Key& key, const Screen& screen) {
    return Press(key, screen.rows, first);
  };
  if (!Show(shown, out_fd).has_value()) return std::nullopt;
  return Outcome();
}

Outcome PrintSnapshots(const GlobalOptions& global, const TopArguments& arguments, ClusterTop& top,
                       Output& out) {
  const std::uint64_t count = arguments.is_once ? 1 : arguments.count.value_or(1);
  const Screen screen = ProbeScreen(out.fd());
  for (std::uint64_t i = 0; i < count && out.ok(); ++i) {
    if (i > 0) {
      std::this_thread::sleep_for(Seconds(arguments.interval_s));
      if (Status status = top.Refresh(); !status.ok()) {
        return FailureFrom(status, "top --all-hosts");
      }
    }
    if (global.as_json) {
      out.Write(count > 1 ? JsonLine(global, top.document()) : JsonText(global, top.document()));
    } else {
      out.Write((i > 0 ? "\n" : "") + top.Text(screen));
    }
    out.Flush();
  }
  return std::nullopt;
}

}  // namespace

Result<std::string> RenderCluster(const Json& document, const Screen& screen) {
  Status error;
  const Fields reply(document, "reply", &error);
  static_cast<void>(reply.Count("age_ms"));  // checks them
  static_cast<void>(reply.Count("rate_window_s"));
  std::string text = HeadLines(document, reply.Object("cluster"), screen.columns) +
                     HostsTable(reply, screen) + TagsTable(reply, screen.columns) +
                     MoreLine(reply, screen.columns);
  if (!error.ok()) return error;
  return text;
}

Outcome ShowCluster(const GlobalOptions& global, const ClusterArguments& arguments, Output& out) {
  AdminCall call("status --all-hosts", "cluster");
  call.request = ClusterRequest(arguments);
  call.timeout_ms = kClusterTimeoutMs;
  const Screen screen = ProbeScreen(out.fd());
  call.render = [&screen](const Json& document) { return RenderCluster(document, screen); };
  return RunAdminCall(global, call, out);
}

Outcome TopOfCluster(const GlobalOptions& global, const TopArguments& arguments, Output& out) {
  ClusterTop top(global, {.tag = "", .limit = arguments.limit});
  if (Status status = top.Refresh(); !status.ok()) return FailureFrom(status, "top --all-hosts");
  const bool is_full_screen = !global.as_json && !arguments.is_once && !arguments.count &&
                              ProbeScreen(out.fd()).is_terminal && ::isatty(STDIN_FILENO) == 1;
  if (is_full_screen) {
    const std::optional<Outcome> done = ShowOnScreen(arguments.interval_s, top, out.fd());
    if (done.has_value()) return *done;
  }
  return PrintSnapshots(global, arguments, top, out);
}

}  // namespace idd::tools
