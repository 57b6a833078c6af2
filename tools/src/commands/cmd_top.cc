// SPDX-License-Identifier: Apache-2.0
//
// idctl top: a live view of the tags, or snapshots for pipes and scripts.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <thread>
#include <vector>

#include "commands/cmd_cluster.h"
#include "commands/commands.h"
#include "top/full_screen.h"
#include "top/top_model.h"
#include "top/top_source.h"
#include "top/top_view.h"

namespace idd::tools {
namespace {

constexpr double kLeastIntervalSeconds = 0.1;
constexpr double kMaxIntervalSeconds = 3600;
constexpr TimeRange kIntervalRange = {100, 3'600'000, 1, BareTime::kRefused};
constexpr std::size_t kMaxFilterBytes = 128;

// "0.5", not "1e3", "nan" or "-1".
std::string ParseInterval(const std::string& text, double* seconds) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const bool is_number = stop == end && error == std::errc();
  std::uint64_t ms = 0;
  if (!is_number && ParseTime(text, kIntervalRange, &ms).empty()) {
    *seconds = static_cast<double>(ms) / 1000;
    return {};
  }
  if (!is_number || !(value >= kLeastIntervalSeconds && value <= kMaxIntervalSeconds)) {
    return Quote(text) + " is not a time from 0.1 to 3600 seconds, such as 0.5, 500ms or 10s";
  }
  *seconds = value;
  return {};
}

JsonDocument SumsJson(const TopSums& sums) {
  JsonDocument document;
  document.Set("tags", sums.tags)
      .Set("rate_per_s", sums.rate_per_s)
      .Set("available", sums.available)
      .Set("promise_kept", sums.kept)
      .Set("snowflake", sums.snowflake)
      .Set("dry", sums.dry)
      .Set("quarantined", sums.quarantined)
      .Set("drained", sums.drained);
  return document;
}

JsonDocument TopTagJson(const TopTag& tag) {
  JsonDocument promise;
  promise.Set("outage_tolerance_s", tag.now.outage_tolerance_s)
      .Set("reckoned_per_s", tag.now.planning_rate_per_s)
      .Set("promised_ids", tag.now.promised_ids)
      .Set("kept", tag.is_kept);
  JsonDocument document;
  document.Set("tag", tag.name)
      .Set("mode", tag.mode)
      .Set("state", tag.now.state)
      .Set("rate_per_s", tag.rate_per_s)
      .Set("available", tag.now.available)
      .Set("covered_s", tag.covered_s)
      .Set("promise", promise)
      .Set("claimed", tag.now.claimed)
      .Set("leases", tag.now.leases)
      .Set("fallbacks", tag.now.fallbacks)
      .Set("step", tag.now.step)
      .Set("observed", tag.now.is_observed)
      .Set("last_error", tag.last_error);
  return document;
}

JsonDocument DaemonJson(const TopHead& head) {
  JsonDocument daemon;
  daemon.Set("version", head.version)
      .Set("pid", head.pid)
      .Set("uptime_s", head.uptime_s)
      .Set("host_id", head.host_id)
      .Set("state", head.gone_why ? "gone" : "up")
      .Set("gone_s", head.gone_s);
  return daemon;
}

JsonDocument DatabaseJson(const TopHead& head) {
  JsonDocument database;
  database.Set("state", head.database_state)
      .Set("url", head.database_url)
      .Set("since_s", head.database_since_s)
      .Set("last_error", head.database_error);
  return database;
}

JsonDocument PageJson(const TopPage& page) {
  std::vector<JsonDocument> tags;
  tags.reserve(page.tags.size());
  for (const TopTag* tag : page.tags) tags.push_back(TopTagJson(*tag));
  JsonDocument document;
  document.Set("daemon", DaemonJson(page.head))
      .Set("database", DatabaseJson(page.head))
      .Set("interval_s", page.interval_s)
      .Set("sum", SumsJson(page.sums))
      .Set("tags", tags);
  return document;
}

// The content of the screen, and how keys change it.
class TopState {
 public:
  TopState(const TopArguments& arguments, const TopSource& source) : source_(source) {
    page_.interval_s = arguments.interval_s;
    page_.arrangement.order =
        ParseTopOrder(arguments.sort.value_or("rate")).value_or(TopOrder::kRate);
    page_.arrangement.filter = arguments.filter.value_or("");
  }

  // `rows`: the number of tags visible at once; 0: all.
  const TopPage& Page(std::size_t rows) {
    const std::vector<const TopTag*> tags = source_.tags();
    page_.head = source_.head();
    page_.sums = SumUp(tags);
    page_.tags = Arrange(tags, page_.arrangement);
    const std::size_t last = page_.tags.size() - std::min(rows, page_.tags.size());
    page_.first = std::min(page_.first, last);
    rows_ = rows;
    return page_;
  }

  // Returns false on quit.
  bool Press(const Key& key) {
    if (page_.is_typing_filter) {
      Type(key);
      return true;
    }
    if (key.kind != KeyKind::kText) {
      Scroll(key.kind);
      return true;
    }
    return PressLetter(key.text);
  }

 private:
  bool PressLetter(const std::string& letter) {
    TopArrangement& how = page_.arrangement;
    if (letter == "q") return false;
    if (letter == "s") how.order = NextOrder(how.order);
    if (letter == "r") how.is_reversed = !how.is_reversed;
    if (letter == "R") how.order = TopOrder::kRate;
    if (letter == "C") how.order = TopOrder::kCover;
    if (letter == "A") how.order = TopOrder::kAvailable;
    if (letter == "N") how.order = TopOrder::kName;
    if (letter == "k") Scroll(KeyKind::kUp);
    if (letter == "j") Scroll(KeyKind::kDown);
    if (letter == "/") {
      page_.is_typing_filter = true;
      how.filter.clear();
    }
    return true;
  }

  void Type(const Key& key) {
    std::string& filter = page_.arrangement.filter;
    if (key.kind == KeyKind::kEnter || key.kind == KeyKind::kEscape) page_.is_typing_filter = false;
    if (key.kind == KeyKind::kEscape) filter.clear();
    if (key.kind == KeyKind::kErase) {
      const std::size_t characters = WidthInCharacters(filter);
      filter = FirstCharacters(filter, characters - std::min<std::size_t>(characters, 1));
    }
    if (key.kind == KeyKind::kText && filter.size() + key.text.size() <= kMaxFilterBytes) {
      filter += key.text;
    }
    page_.first = 0;
  }

  void Scroll(KeyKind key) {
    const std::size_t end = page_.tags.size();
    const std::size_t screenful = std::max<std::size_t>(rows_, 1);
    if (key == KeyKind::kUp) page_.first -= std::min<std::size_t>(page_.first, 1);
    if (key == KeyKind::kPageUp) page_.first -= std::min(page_.first, screenful);
    if (key == KeyKind::kDown) page_.first = std::min(page_.first + 1, end);
    if (key == KeyKind::kPageDown) page_.first = std::min(page_.first + screenful, end);
    if (key == KeyKind::kHome) page_.first = 0;
    if (key == KeyKind::kEnd) page_.first = end;
  }

  const TopSource& source_;
  TopPage page_;
  std::size_t rows_ = 0;
};

MonotonicClock::duration IntervalOf(const TopArguments& arguments) {
  return std::chrono::duration_cast<MonotonicClock::duration>(
      std::chrono::duration<double>(arguments.interval_s));
}

// One snapshot an interval, each at the end of the interval that its rates cover.
Outcome PrintSnapshots(const GlobalOptions& global, const TopArguments& arguments,
                       TopSource& source, Output& out) {
  TopState state(arguments, source);
  const std::uint64_t count = arguments.is_once ? 1 : arguments.count.value_or(1);
  const Screen screen = ProbeScreen(out.fd());
  MonotonicTime next = MonotonicClock::now();
  for (std::uint64_t i = 0; i < count && out.ok(); ++i) {
    next += IntervalOf(arguments);
    std::this_thread::sleep_until(next);
    if (Status status = source.Refresh(); !status.ok()) return FailureFrom(status, "top");
    const TopPage& page = state.Page(0);
    if (global.as_json) {
      out.Write(count > 1 ? JsonLine(global, PageJson(page)) : JsonText(global, PageJson(page)));
    } else {
      out.Write((i > 0 ? "\n" : "") + RenderTopText(page, screen));
    }
    out.Flush();
  }
  return std::nullopt;
}

// Nothing: the terminal does not support a full screen.
std::optional<Outcome> ShowOnScreen(const TopArguments& arguments, TopSource& source, int out_fd) {
  TopState state(arguments, source);
  FullScreen shown;
  shown.interval = IntervalOf(arguments);
  shown.first_refresh = MonotonicClock::now();
  shown.refresh = [&source] { return source.Refresh(); };
  shown.draw = [&state](const Screen& screen) {
    return RenderTop(state.Page(TopRowsOf(screen)), screen);
  };
  shown.press = [&state](const Key& key, const Screen& /*screen*/) { return state.Press(key); };
  const std::optional<Status> ended = Show(shown, out_fd);
  if (!ended.has_value()) return std::nullopt;
  return ended->ok() ? Outcome() : FailureFrom(*ended, "top");
}

Outcome Top(const GlobalOptions& global, const TopArguments& arguments, Output& out) {
  if (arguments.is_all_hosts) return TopOfCluster(global, arguments, out);
  TopSource source(global.socket_path);
  const auto timeout = std::chrono::milliseconds(global.timeout_ms.value_or(kAdminTimeoutMs));
  if (Status status = source.Start(Deadline::After(timeout)); !status.ok()) {
    return FailureFrom(status, "top");
  }
  const bool is_full_screen = !global.as_json && !arguments.is_once && !arguments.count &&
                              ProbeScreen(out.fd()).is_terminal && ::isatty(STDIN_FILENO) == 1;
  if (is_full_screen) {
    if (const std::optional<Outcome> done = ShowOnScreen(arguments, source, out.fd())) return *done;
  }
  return PrintSnapshots(global, arguments, source, out);
}

}  // namespace

void RegisterTopCommand(Command root, Invocation& invocation) {
  Command top = root.AddCommand("top", "Live view of the tags, or a snapshot for a pipe",
                                "idctl top --sort cover --interval 0.5");
  TopArguments& arguments = invocation.top;
  top.AddArgument("--interval",
                  "Time between refreshes, at least 0.1; in seconds without a unit [1]",
                  [&arguments](const std::string& text) {
                    return ParseInterval(text, &arguments.interval_s);
                  })
      .ValueName("TIME");
  top.Explain(kTimeHelp);
  top.AddChoice("--sort", "Sort order of the tags [rate]", {"rate", "cover", "available", "name"},
                &arguments.sort);
  top.AddText("--filter", "Only tags whose name contains TEXT", &arguments.filter);
  top.AddFlag("--once", "Print one snapshot and exit", &arguments.is_once);
  top.AddCount("--count", "Number of snapshots to print; with --json, one per line",
               {1, 1'000'000'000}, &arguments.count);
  top.AddFlag("--all-hosts", "The hosts and tags of the whole store", &arguments.is_all_hosts);
  top.AddCount("--limit", "With --all-hosts: maximum number of hosts, and of tags [20]",
               {1, 100'000}, &arguments.limit);
  SetAction(top, invocation,
            [&invocation](Output& out) { return Top(invocation.global, invocation.top, out); });
}

}  // namespace idd::tools
