// SPDX-License-Identifier: Apache-2.0
#include "top/top_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cwchar>
#include <tuple>
#include <utility>

#include "terminal/output.h"

namespace idd::tools {
namespace {

constexpr std::size_t kHeadLines = 4;
constexpr std::size_t kFootLines = 1;
// Names and curves get more room, if there is any, up to these widths.
constexpr std::size_t kWidestTag = 48;
constexpr std::size_t kWidestCurve = 40;

// One character as it is displayed: its bytes in `text`, and its columns.
struct Shown {
  std::size_t bytes = 1;
  std::size_t columns = 1;
  bool is_shown = false;  // false: the terminal or the locale cannot show it
};

Shown FirstShown(std::string_view text, std::mbstate_t& state) {
  wchar_t code = 0;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the state is the caller's.
  const std::size_t bytes = std::mbrtowc(&code, text.data(), text.size(), &state);
  if (bytes == 0 || bytes > text.size()) {
    state = std::mbstate_t{};
    return {};
  }
  const int columns = ::wcwidth(code);
  if (columns < 0) return {.bytes = bytes, .columns = 1, .is_shown = false};
  return {.bytes = bytes, .columns = static_cast<std::size_t>(columns), .is_shown = true};
}

bool IsAscii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

// The characters that fit `width` columns; '?' replaces each one that cannot be shown.
std::pair<std::string, std::size_t> Fitting(std::string_view text, std::size_t width,
                                            bool has_utf8) {
  std::string fitting;
  std::size_t columns = 0;
  std::mbstate_t state{};
  while (!text.empty()) {
    Shown shown = FirstShown(text, state);
    if (!has_utf8 && !IsAscii(text.front())) shown = {.bytes = 1, .columns = 1, .is_shown = false};
    if (columns + shown.columns > width) break;
    fitting += shown.is_shown ? std::string(text.substr(0, shown.bytes)) : "?";
    columns += shown.columns;
    text.remove_prefix(shown.bytes);
  }
  return {fitting, columns};
}

std::string StateText(const TopTag& tag) { return ShownState(tag.now.state, tag.is_kept); }

// The operator drained it: it should hold nothing, whatever was promised.
bool IsDrained(const TopTag& tag) { return tag.now.state == "drained"; }
bool IsShort(const TopTag& tag) { return !tag.is_kept && !IsDrained(tag); }

Tone StateTone(const TopTag& tag) {
  if (tag.now.state == "dry" || tag.now.state == "quarantined") return Tone::kBad;
  if (IsDrained(tag)) return Tone::kFaint;
  return tag.is_kept ? Tone::kGood : Tone::kWarning;
}

std::string CoveredText(const TopTag& tag) {
  return tag.covered_s ? FormatDuration(*tag.covered_s) : "-";
}

double HighestRate(const TopTag& tag, std::size_t width) {
  double highest = 0;
  for (std::size_t age = 0; age < std::min(width, tag.rates.size()); ++age) {
    highest = std::max(highest, tag.rates.Back(age));
  }
  return highest;
}

std::string RateText(const TopTag& tag) {
  return tag.is_snowflake() ? "-" : FormatRate(tag.rate_per_s);
}

// A number of ids; of a snowflake tag, which has none, "-".
Span IdsCell(const TopTag& tag, std::uint64_t ids, std::size_t width) {
  return {Tone::kPlain, tag.is_snowflake() ? "-" : ShortCount(static_cast<double>(ids), width)};
}
std::string IdsText(const TopTag& tag, std::uint64_t ids) {
  return tag.is_snowflake() ? "-" : std::to_string(ids);
}

// A column of the screen. `rank`: if room is short, the highest are left out.
struct TopColumn {
  const char* title;
  std::size_t width;
  std::size_t gap;  // blanks before it
  int rank;
  Align align;
  Span (*cell)(const TopTag& tag, std::size_t width, bool has_utf8);
};

Span TagCell(const TopTag& tag, std::size_t /*width*/, bool /*has_utf8*/) {
  return {Tone::kPlain, EscapeText(tag.name)};
}
Span StateCell(const TopTag& tag, std::size_t /*width*/, bool /*has_utf8*/) {
  return {StateTone(tag), EscapeText(StateText(tag))};
}
Span RateCell(const TopTag& tag, std::size_t width, bool /*has_utf8*/) {
  const std::string rate = RateText(tag);
  return {Tone::kPlain, rate.size() <= width ? rate : ShortCount(tag.rate_per_s, width)};
}
Span RateCurve(const TopTag& tag, std::size_t width, bool has_utf8) {
  return {Tone::kFaint, Sparkline(tag.rates, width, HighestRate(tag, width), has_utf8)};
}
Span AvailableCell(const TopTag& tag, std::size_t width, bool /*has_utf8*/) {
  return IdsCell(tag, tag.now.available, width);
}
Span CoveredCell(const TopTag& tag, std::size_t /*width*/, bool /*has_utf8*/) {
  return {IsShort(tag) ? Tone::kWarning : Tone::kPlain, CoveredText(tag)};
}
Span CoverCurve(const TopTag& tag, std::size_t width, bool has_utf8) {
  const Tone tone = IsShort(tag) ? Tone::kWarning : Tone::kFaint;
  return {tone, Sparkline(tag.covers, width, tag.now.outage_tolerance_s, has_utf8)};
}
Span PromiseCell(const TopTag& tag, std::size_t /*width*/, bool /*has_utf8*/) {
  return {Tone::kPlain, FormatDuration(tag.promise_s)};
}
Span ClaimedCell(const TopTag& tag, std::size_t width, bool /*has_utf8*/) {
  return IdsCell(tag, tag.now.claimed, width);
}
Span LeasesCell(const TopTag& tag, std::size_t width, bool /*has_utf8*/) {
  return {Tone::kPlain, ShortCount(static_cast<double>(tag.now.leases), width)};
}
Span FallbacksCell(const TopTag& tag, std::size_t width, bool /*has_utf8*/) {
  return {Tone::kPlain, ShortCount(static_cast<double>(tag.now.fallbacks), width)};
}
Span InLanesCell(const TopTag& tag, std::size_t width, bool /*has_utf8*/) {
  const auto ids = static_cast<double>(tag.now.in_lanes);
  return {Tone::kPlain, ids == 0 ? "-" : ShortCount(ids, width)};
}
Span StepCell(const TopTag& tag, std::size_t width, bool /*has_utf8*/) {
  return IdsCell(tag, tag.now.step, width);
}
Span ErrorCell(const TopTag& tag, std::size_t /*width*/, bool /*has_utf8*/) {
  return {Tone::kWarning, EscapeText(tag.last_error.value_or(""))};
}

constexpr int kHighestRank = 11;
constexpr std::size_t kTagColumn = 0;
constexpr std::size_t kRateCurveColumn = 3;
constexpr std::size_t kCoverCurveColumn = 6;
constexpr std::array<TopColumn, 14> kColumns = {{
    {"TAG", 12, 0, 0, Align::kLeft, TagCell},
    {"STATE", 11, 1, 0, Align::kLeft, StateCell},
    {"RATE/S", 9, 1, 0, Align::kRight, RateCell},
    {"", 10, 1, 3, Align::kRight, RateCurve},
    {"AVAILABLE", 10, 1, 2, Align::kRight, AvailableCell},
    {"COVERED", 8, 1, 1, Align::kRight, CoveredCell},
    {"", 8, 1, 4, Align::kRight, CoverCurve},
    {"PROMISE", 7, 2, 5, Align::kRight, PromiseCell},
    {"CLAIMED", 14, 2, 6, Align::kRight, ClaimedCell},
    {"LEASES", 8, 1, 7, Align::kRight, LeasesCell},
    {"FALLBACKS", 9, 1, 8, Align::kRight, FallbacksCell},
    {"STEP", 10, 1, 9, Align::kRight, StepCell},
    {"IN LANES", 8, 1, 10, Align::kRight, InLanesCell},
    {"LAST ERROR", 24, 2, kHighestRank, Align::kLeft, ErrorCell},
}};

// The width of each column; 0 if it is left out.
std::array<std::size_t, kColumns.size()> LayOut(std::size_t columns) {
  std::array<std::size_t, kColumns.size()> widths{};
  std::size_t used = 0;
  bool is_full = false;
  for (int rank = 0; rank <= kHighestRank && !is_full; ++rank) {
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      if (kColumns[i].rank != rank) continue;
      is_full = is_full || used + kColumns[i].width + kColumns[i].gap > columns;
      if (is_full) break;
      widths[i] = kColumns[i].width;
      used += kColumns[i].width + kColumns[i].gap;
    }
  }
  const auto widen = [&](std::size_t column, std::size_t most) {
    if (widths[column] == 0) return;
    const std::size_t more = std::min(columns - used, most - widths[column]);
    widths[column] += more;
    used += more;
  };
  widen(kTagColumn, widths.back() == 0 ? kWidestTag : kWidestTag / 2);
  widen(kRateCurveColumn, kWidestCurve / 2);
  widen(kCoverCurveColumn, kWidestCurve / 2);
  widen(kTagColumn, kWidestTag);
  widen(kColumns.size() - 1, columns);
  return widths;
}

StyledLine TitleLine(const std::array<std::size_t, kColumns.size()>& widths, TopOrder order) {
  constexpr std::array<const char*, 4> kTitles = {"RATE/S", "COVERED", "AVAILABLE", "TAG"};
  const std::string_view sorted = kTitles[static_cast<std::size_t>(order)];
  StyledLine line;
  for (std::size_t i = 0; i < kColumns.size(); ++i) {
    if (widths[i] == 0) continue;
    const TopColumn& column = kColumns[i];
    const Tone tone = column.title == sorted ? Tone::kStrong : Tone::kFaint;
    line.push_back({Tone::kPlain, std::string(column.gap, ' ')});
    line.push_back({tone, InColumns(column.title, widths[i], column.align, false)});
  }
  return line;
}

StyledLine TagLine(const TopTag& tag, const std::array<std::size_t, kColumns.size()>& widths,
                   bool has_utf8) {
  StyledLine line;
  for (std::size_t i = 0; i < kColumns.size(); ++i) {
    if (widths[i] == 0) continue;
    const TopColumn& column = kColumns[i];
    Span cell = column.cell(tag, widths[i], has_utf8);
    cell.text = InColumns(cell.text, widths[i], column.align, has_utf8);
    line.push_back({Tone::kPlain, std::string(column.gap, ' ')});
    line.push_back(std::move(cell));
  }
  return line;
}

Span DaemonText(const TopHead& head) {
  if (head.gone_why) {
    return {Tone::kBad,
            "daemon gone since " + FormatDuration(head.gone_s) + ": " + EscapeText(*head.gone_why)};
  }
  return {Tone::kStrong, "idd " + EscapeText(head.version) + " on " + EscapeText(head.host_id) +
                             ", pid " + std::to_string(head.pid) + ", up " +
                             FormatDuration(head.uptime_s)};
}

Span DatabaseText(const TopHead& head) {
  std::string text = "database " + EscapeText(head.database_state) + " for " +
                     FormatDuration(head.database_since_s) + ", " + EscapeText(head.database_url);
  // idd's last report: the database may have changed since.
  if (head.gone_why) return {Tone::kFaint, "last report: " + text};
  if (head.database_state == "up") return {Tone::kPlain, text};
  if (head.database_error) text += "; " + EscapeText(*head.database_error);
  return {Tone::kBad, text};
}

std::string SumsText(const TopSums& sums) {
  std::string text = Counted(sums.tags, "tag");
  if (sums.snowflake < sums.tags || sums.tags == 0) {
    text += ", " + FormatRate(sums.rate_per_s) + " ids/s, promise kept for " +
            std::to_string(sums.kept) + " of " + std::to_string(sums.judged);
  }
  if (sums.snowflake > 0) text += ", " + std::to_string(sums.snowflake) + " snowflake";
  if (sums.dry > 0) text += ", " + std::to_string(sums.dry) + " dry";
  if (sums.quarantined > 0) text += ", " + std::to_string(sums.quarantined) + " quarantined";
  if (sums.drained > 0) text += ", " + std::to_string(sums.drained) + " drained";
  return text;
}

Tone SumsTone(const TopSums& sums) {
  if (sums.dry + sums.quarantined > 0) return Tone::kBad;
  return sums.kept < sums.judged ? Tone::kWarning : Tone::kPlain;
}

// The line above the tags: their arrangement, and which of them are visible. The line below: the
// keys.
std::string ArrangementText(const TopPage& page, std::size_t rows) {
  const TopArrangement& how = page.arrangement;
  if (page.is_typing_filter) return "filter: " + EscapeText(how.filter) + "_";
  std::string text = std::string("by ") + TopOrderName(how.order);
  if (how.is_reversed) text += ", reversed";
  if (!how.filter.empty()) text += ", filter " + Quote(how.filter);
  const std::size_t shown =
      std::min(rows, page.tags.size() - std::min(page.first, page.tags.size()));
  if (shown == 0) return text + ", no tags";
  return text + ", " + std::to_string(page.first + 1) + "-" + std::to_string(page.first + shown) +
         " of " + std::to_string(page.tags.size());
}

StyledLine Whole(Span span, const Screen& screen) {
  span.text = Fitting(span.text, screen.columns, screen.has_utf8).first;
  return {std::move(span)};
}

std::vector<StyledLine> RenderTooSmall(const Screen& screen) {
  std::vector<StyledLine> lines(screen.rows);
  const std::array<std::string, 3> texts = {
      "too small: " + std::to_string(screen.columns) + "x" + std::to_string(screen.rows),
      "top needs " + std::to_string(kLeastTopColumns) + "x" + std::to_string(kLeastTopRows),
      "q quits"};
  for (std::size_t i = 0; i < std::min(texts.size(), lines.size()); ++i) {
    lines[i] = Whole({Tone::kPlain, texts[i]}, screen);
  }
  return lines;
}

}  // namespace

std::string PlainText(const StyledLine& line) {
  std::string text;
  for (const Span& span : line) text += span.text;
  return text;
}

std::size_t TopRowsOf(const Screen& screen) {
  constexpr std::size_t kOthers = kHeadLines + 1 + kFootLines;
  return screen.rows > kOthers ? screen.rows - kOthers : 0;
}

std::vector<StyledLine> RenderTop(const TopPage& page, const Screen& screen) {
  if (screen.columns < kLeastTopColumns || screen.rows < kLeastTopRows) {
    return RenderTooSmall(screen);
  }
  const std::size_t rows = TopRowsOf(screen);
  const auto widths = LayOut(screen.columns);
  std::vector<StyledLine> lines;
  lines.push_back(Whole(DaemonText(page.head), screen));
  lines.push_back(Whole(DatabaseText(page.head), screen));
  lines.push_back(Whole({SumsTone(page.sums), SumsText(page.sums)}, screen));
  lines.push_back(Whole({Tone::kPlain, ArrangementText(page, rows)}, screen));
  lines.push_back(TitleLine(widths, page.arrangement.order));
  for (std::size_t i = page.first; i < page.tags.size() && i < page.first + rows; ++i) {
    lines.push_back(TagLine(*page.tags[i], widths, screen.has_utf8));
  }
  lines.resize(screen.rows - kFootLines);
  const char* const keys = page.is_typing_filter
                               ? "Enter keeps the filter  Esc drops it"
                               : "q quit  s sort  r reverse  / filter  arrows scroll";
  lines.push_back(Whole({Tone::kFaint, keys}, screen));
  return lines;
}

std::string RenderTopText(const TopPage& page, const Screen& screen) {
  Table table({{"TAG"},
               {"STATE"},
               {"RATE/S", Align::kRight},
               {"AVAILABLE", Align::kRight},
               {"COVERED", Align::kRight},
               {"PROMISE", Align::kRight, 1},
               {"CLAIMED", Align::kRight, 2},
               {"LEASES", Align::kRight, 3},
               {"FALLBACKS", Align::kRight, 4},
               {"STEP", Align::kRight, 5},
               {"IN LANES", Align::kRight, 6}});
  for (const TopTag* tag : page.tags) {
    table.AddRow({tag->name, StateText(*tag), RateText(*tag), IdsText(*tag, tag->now.available),
                  CoveredText(*tag), FormatDuration(tag->promise_s),
                  IdsText(*tag, tag->now.claimed), std::to_string(tag->now.leases),
                  std::to_string(tag->now.fallbacks), IdsText(*tag, tag->now.step),
                  tag->now.in_lanes == 0 ? "-" : std::to_string(tag->now.in_lanes)});
  }
  std::string text = FitTo(DaemonText(page.head).text, screen.columns) + "\n" +
                     FitTo(DatabaseText(page.head).text, screen.columns) + "\n" +
                     FitTo(SumsText(page.sums), screen.columns) + "\n";
  if (!page.tags.empty()) text += "\n" + table.Format(screen.columns);
  return text;
}

std::string Sparkline(const History& history, std::size_t width, double full, bool has_utf8) {
  constexpr std::array<const char*, 8> kBlocks = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                  "\u2585", "\u2586", "\u2587", "\u2588"};
  constexpr std::array<const char*, 8> kSigns = {"_", ".", "-", "=", "+", "*", "%", "#"};
  constexpr double kHighest = 7;
  const std::array<const char*, 8>& levels = has_utf8 ? kBlocks : kSigns;
  std::string line(width - std::min(width, history.size()), ' ');
  for (std::size_t age = std::min(width, history.size()); age > 0; --age) {
    const double part = full > 0 ? std::clamp(history.Back(age - 1) / full, 0.0, 1.0) : 0;
    line += levels[static_cast<std::size_t>(std::ceil(part * kHighest))];
  }
  return line;
}

std::size_t DisplayWidth(std::string_view text) {
  std::size_t width = 0;
  std::mbstate_t state{};
  while (!text.empty()) {
    const Shown shown = FirstShown(text, state);
    width += shown.columns;
    text.remove_prefix(shown.bytes);
  }
  return width;
}

std::string InColumns(std::string_view text, std::size_t width, Align align, bool has_utf8) {
  auto [fitting, columns] = Fitting(text, width, has_utf8);
  const bool is_cut = Fitting(text, width + 2, has_utf8).second > width;
  if (is_cut && width > 2) {
    std::tie(fitting, columns) = Fitting(text, width - 2, has_utf8);
    fitting += "..";
    columns += 2;
  }
  const std::string padding(width - columns, ' ');
  return align == Align::kRight ? padding + fitting : fitting + padding;
}

std::string ShortCount(double value, std::size_t width) {
  constexpr std::array<char, 6> kUnits = {'k', 'M', 'G', 'T', 'P', 'E'};
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.0f", value);
  std::size_t unit = 0;
  while (std::string_view(text.data()).size() > width && unit < kUnits.size()) {
    value /= 1000;
    std::snprintf(text.data(), text.size(), value < 100 ? "%.1f%c" : "%.0f%c", value,
                  kUnits[unit++]);
  }
  return text.data();
}

}  // namespace idd::tools
