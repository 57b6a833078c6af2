// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_LOGGING_H_
#define IDD_DAEMON_PLATFORM_LOGGING_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace idd::daemon::log {

enum class Level { kDebug, kInfo, kWarning, kError };
enum class Format { kText, kJson };

// One key=value pair of a line.
struct Field {
  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : Field(k, std::string_view(v)) {}
  Field(std::string_view k, const std::string& v) : Field(k, std::string_view(v)) {}
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Field(std::string_view k, T v) : key(k), value(std::to_string(v)), is_number(true) {}

  std::string_view key;
  std::string value;
  bool is_number = false;
};

// Thread safety: all. Before Configure() lines go to stderr as text.
void Configure(Level level, Format format);
void SetLevel(Level level);
[[nodiscard]] Level GetLevel();
[[nodiscard]] const char* LevelName(Level level) noexcept;  // "debug", "info", "warning", "error"
[[nodiscard]] std::optional<Level> ParseLevel(std::string_view name) noexcept;

// One line: the time (UTC), the level, the event (`lease.granted`, the stable name that
// docs/log-events.md lists) and the fields. At most 20 lines a second are written for one event, or
// one a minute of an event that lasts and repeats itself. The next line of the event, or a line
// `log.suppressed` if none comes, then has the number of lines left out (`suppressed=`).
enum class Pace : std::uint8_t { kUsual, kSeldom };
void Write(Level level, std::string_view event, std::initializer_list<Field> fields,
           Pace pace = Pace::kUsual);

// Writes the `log.suppressed` lines that are due, or all of them `at_end`. To be called once a
// second.
void FlushSuppressed(bool at_end);

// How often each warning and error has occurred since the start, whether or not it was written.
struct EventCount {
  Level level = Level::kWarning;
  std::string event;
  std::uint64_t count = 0;
};
[[nodiscard]] std::vector<EventCount> Counts();
[[nodiscard]] std::uint64_t CountOf(std::string_view event);
// Lines that were left out since the start.
[[nodiscard]] std::uint64_t SuppressedLines();

inline void Debug(std::string_view event, std::initializer_list<Field> fields) {
  Write(Level::kDebug, event, fields);
}
inline void Info(std::string_view event, std::initializer_list<Field> fields) {
  Write(Level::kInfo, event, fields);
}
inline void Warning(std::string_view event, std::initializer_list<Field> fields) {
  Write(Level::kWarning, event, fields);
}
inline void Error(std::string_view event, std::initializer_list<Field> fields,
                  Pace pace = Pace::kUsual) {
  Write(Level::kError, event, fields, pace);
}

}  // namespace idd::daemon::log

#endif  // IDD_DAEMON_PLATFORM_LOGGING_H_
