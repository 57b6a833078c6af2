// SPDX-License-Identifier: Apache-2.0
#include "platform/logging.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "idd/base/check.h"
#include "idd/base/utf8.h"
#include "platform/journal_stream.h"

namespace idd::daemon::log {
namespace {

// How many lines of an event are written in a window of time.
struct Allowance {
  int lines = 0;
  std::chrono::seconds window{};
};
constexpr Allowance kUsual{.lines = 20, .window = std::chrono::seconds(1)};
constexpr Allowance kSeldom{.lines = 1, .window = std::chrono::seconds(60)};
constexpr std::array<const char*, 4> kLevelNames = {"debug", "info", "warning", "error"};
constexpr std::size_t kMaxEvents = 256;

struct Budget {
  Pace pace = Pace::kUsual;
  std::chrono::steady_clock::time_point window{};
  int written = 0;
  std::uint64_t suppressed = 0;
};

struct State {
  std::mutex mutex;
  Format format = Format::kText;
  Level level = Level::kInfo;
  std::shared_ptr<spdlog::logger> logger;  // spdlog's own type for a logger
  std::map<std::string, Budget, std::less<>> budgets;
  std::map<std::string, EventCount, std::less<>> counts;
  std::uint64_t suppressed = 0;
};

State& GetState() {
  // Never destroyed: threads may log until the very end.
  static State& state = *new State;
  return state;
}

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// sd-daemon(3): the level of a line, for the journal.
class PriorityPrefix : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& out) override {
    const std::string_view prefix = PrefixOf(message.level);
    out.append(prefix.data(), prefix.data() + prefix.size());
  }
  [[nodiscard]] std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<PriorityPrefix>();
  }

 private:
  static std::string_view PrefixOf(spdlog::level::level_enum level) {
    if (level <= spdlog::level::debug) return "<7>";
    if (level == spdlog::level::info) return "<6>";
    return level == spdlog::level::warn ? "<4>" : "<3>";
  }
};

// The journal stores its own time and level for each line.
std::string PatternOf(Format format, bool is_journal) {
  const std::string prefix = is_journal ? "%*" : "";
  if (format == Format::kJson) {
    return prefix + R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";
  }
  return prefix + (is_journal ? "%l %v" : "%Y-%m-%dT%H:%M:%S.%eZ %l %v");
}

void SetPattern(spdlog::logger& logger, Format format) {
  auto formatter =
      std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc, "\n");
  formatter->add_flag<PriorityPrefix>('*').set_pattern(PatternOf(format, IsJournal()));
  logger.set_formatter(std::move(formatter));
}

spdlog::logger& LoggerLocked(State& state) {
  if (state.logger == nullptr) {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    state.logger = std::make_shared<spdlog::logger>("idd", std::move(sink));
    SetPattern(*state.logger, Format::kText);
    state.logger->flush_on(spdlog::level::debug);
  }
  return *state.logger;
}

const Allowance& AllowanceOf(const Budget& budget) {
  return budget.pace == Pace::kSeldom ? kSeldom : kUsual;
}

// True if the line may be written; `suppressed` gets the number of lines left out before it.
bool TakeBudget(State& state, std::string_view event, Pace pace, std::uint64_t& suppressed) {
  auto it = state.budgets.find(event);
  if (it == state.budgets.end()) {
    if (state.budgets.size() >= kMaxEvents) return true;
    it = state.budgets.emplace(std::string(event), Budget{}).first;
  }
  Budget& budget = it->second;
  budget.pace = pace;
  const auto now = std::chrono::steady_clock::now();
  if (budget.window == std::chrono::steady_clock::time_point{} ||
      now - budget.window >= AllowanceOf(budget).window) {
    budget.window = now;
    budget.written = 0;
  }
  if (budget.written >= AllowanceOf(budget).lines) {
    ++budget.suppressed;
    ++state.suppressed;
    return false;
  }
  ++budget.written;
  suppressed = std::exchange(budget.suppressed, 0);
  return true;
}

// Counts only warnings and errors, which an operator must look at. The other events are many, and
// their counts are of no use.
void Count(State& state, Level level, std::string_view event) {
  if (level < Level::kWarning) return;
  auto it = state.counts.find(event);
  if (it == state.counts.end()) {
    if (state.counts.size() >= kMaxEvents) return;
    const std::string name(event);
    it = state.counts.emplace(name, EventCount{.level = level, .event = name, .count = 0}).first;
  }
  ++it->second.count;
}

// What a terminal might act on, or show as other text than it is. U+FFFD stands for bytes that are
// not UTF-8.
bool IsEscaped(std::uint32_t code) {
  return IsControl(code) || IsDeceptive(code) || code == 0xfffd;
}

bool NeedsQuotes(std::string_view value) {
  if (value.empty() || value.find_first_of(" \"=\\") != std::string_view::npos) return true;
  while (!value.empty()) {
    const Utf8Character character = FirstUtf8Character(value);
    if (character.bytes == 0 || IsEscaped(character.code)) return true;
    value.remove_prefix(character.bytes);
  }
  return false;
}

// Uses JSON's escapes in the text format too: a value can neither start a new line nor control the
// terminal. Names in any script stay readable.
std::string Quote(std::string_view value) {
  const std::string document =
      nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string quoted;
  for (std::string_view left = document; !left.empty();) {
    const Utf8Character character = FirstUtf8Character(left);
    IDD_CHECK(character.bytes != 0);
    if (IsEscaped(character.code)) {
      std::array<char, 8> text{};
      std::snprintf(text.data(), text.size(), "\\u%04x", character.code);
      quoted += text.data();
    } else {
      quoted += left.substr(0, character.bytes);
    }
    left.remove_prefix(character.bytes);
  }
  return quoted;
}

std::string TextLine(std::string_view event, const std::initializer_list<Field>& fields,
                     std::uint64_t suppressed) {
  std::string line(event);
  for (const Field& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    line += field.is_number || !NeedsQuotes(field.value) ? field.value : Quote(field.value);
  }
  if (suppressed != 0) line += " suppressed=" + std::to_string(suppressed);
  return line;
}

std::string JsonFields(std::string_view event, const std::initializer_list<Field>& fields,
                       std::uint64_t suppressed) {
  std::string line = "\"event\":" + Quote(event);
  for (const Field& field : fields) {
    line += ',' + Quote(field.key) + ':';
    line += field.is_number ? field.value : Quote(field.value);
  }
  if (suppressed != 0) line += ",\"suppressed\":" + std::to_string(suppressed);
  return line;
}

}  // namespace

void Configure(Level level, Format format) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  state.format = format;
  spdlog::logger& logger = LoggerLocked(state);
  state.level = level;
  logger.set_level(ToSpdlog(level));
  SetPattern(logger, format);
}

void SetLevel(Level level) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  state.level = level;
  LoggerLocked(state).set_level(ToSpdlog(level));
}

Level GetLevel() {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  return state.level;
}

const char* LevelName(Level level) noexcept { return kLevelNames[static_cast<std::size_t>(level)]; }

std::optional<Level> ParseLevel(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
    if (name == kLevelNames[i]) return static_cast<Level>(i);
  }
  return std::nullopt;
}

void FlushSuppressed(bool at_end) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  spdlog::logger& logger = LoggerLocked(state);
  const auto now = std::chrono::steady_clock::now();
  for (auto& [event, budget] : state.budgets) {
    if (budget.suppressed == 0) continue;
    if (!at_end && now - budget.window < AllowanceOf(budget).window) continue;
    const std::uint64_t suppressed = std::exchange(budget.suppressed, 0);
    const std::initializer_list<Field> fields = {{"of", event}};
    logger.warn("{}", state.format == Format::kText
                          ? TextLine("log.suppressed", fields, suppressed)
                          : JsonFields("log.suppressed", fields, suppressed));
  }
}

void Write(Level level, std::string_view event, std::initializer_list<Field> fields, Pace pace) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  Count(state, level, event);
  spdlog::logger& logger = LoggerLocked(state);
  if (!logger.should_log(ToSpdlog(level))) return;
  std::uint64_t suppressed = 0;
  if (!TakeBudget(state, event, pace, suppressed)) return;
  const std::string line = state.format == Format::kText ? TextLine(event, fields, suppressed)
                                                         : JsonFields(event, fields, suppressed);
  logger.log(ToSpdlog(level), "{}", line);
}

std::vector<EventCount> Counts() {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  std::vector<EventCount> counts;
  counts.reserve(state.counts.size());
  for (const auto& [event, count] : state.counts) counts.push_back(count);
  return counts;
}

std::uint64_t CountOf(std::string_view event) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  const auto it = state.counts.find(event);
  return it == state.counts.end() ? 0 : it->second.count;
}

std::uint64_t SuppressedLines() {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  return state.suppressed;
}

}  // namespace idd::daemon::log
