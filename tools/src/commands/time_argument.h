// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TOOLS_COMMANDS_TIME_ARGUMENT_H_
#define IDD_TOOLS_COMMANDS_TIME_ARGUMENT_H_

#include <ctime>
#include <optional>
#include <string>

#include "terminal/command_line.h"

namespace idd::tools {

// A time in the past as the user writes it, in UTC: "2026-11-26", "2026-11-26 05:30",
// "2026-11-26 05:30:00" (also with a T), or how long before `now`: "45s", "30m", "12h", "7d".
// Returns it in the third form, or nothing if it is none of these.
[[nodiscard]] std::optional<std::string> ParsePastTime(const std::string& text, std::time_t now);

// An option for such a time.
Argument AddPastTime(Command command, const char* name, const char* help,
                     std::optional<std::string>* time);

}  // namespace idd::tools

#endif  // IDD_TOOLS_COMMANDS_TIME_ARGUMENT_H_
