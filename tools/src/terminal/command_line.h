// SPDX-License-Identifier: Apache-2.0
//
// The command line's grammar: commands, options and their help texts. Only command_line.cc includes
// the parser, whose types take seconds to compile.
#ifndef IDD_TOOLS_TERMINAL_COMMAND_LINE_H_
#define IDD_TOOLS_TERMINAL_COMMAND_LINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "terminal/quantity.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace idd::tools {

// An option or a positional argument of a command under construction. Lives as long as the
// CommandLine.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  // Its absence is wrong usage.
  Argument& Required();
  // The placeholder for the value in the help ("MS"); empty: none.
  Argument& ValueName(const char* name);
  // The default value as the help shows it.
  Argument& Default(const char* value);

 private:
  CLI::Option* option_;
};

// UTF-8 text of at most kMaxTextBytes, so that a request fits a frame.
inline constexpr std::size_t kMaxTextBytes = 2048;

// Reads an argument's text. Returns what is wrong with it, or stores the value and returns an empty
// string. Called more than once for each text; the last call counts.
using ReadArgument = std::function<std::string(const std::string& text)>;

// A text that is no choice, but that a user may expect to be one, and why it is none.
struct WrongChoice {
  std::string text;
  std::string why;  // continues "'text' "
};

// A command under construction: a handle, to be copied. It lives as long as the CommandLine, and so
// must the variables that receive the arguments. Names are "TAG" for a positional argument and
// "-n,--count" for an option; if an option is given twice, the last one counts.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // A subcommand with its example in the help; `summary` is one line.
  [[nodiscard]] Command AddCommand(const char* name, const char* summary, const char* example);
  // Using it without one of its subcommands is wrong usage.
  void RequireSubcommand();
  // Called at the end of parsing if this command was chosen.
  void OnChosen(std::function<void()> chosen);

  // A name that wire::CheckTagName refuses is wrong usage.
  Argument AddTagName(const char* name, const char* help, std::string* tag);
  Argument AddTagName(const char* name, const char* help, std::optional<std::string>* tag);
  // Any number of such names.
  Argument AddTagNames(const char* name, const char* help, std::vector<std::string>* tags);
  // ParseNumber(): an id or another number that is no count.
  Argument AddNumber(const char* name, const char* help, NumberRange range,
                     std::optional<std::uint64_t>* number);
  // One or more such numbers.
  Argument AddNumbers(const char* name, const char* help, NumberRange range,
                      std::vector<std::uint64_t>* numbers);
  // ParseCount(); the help explains the suffixes.
  Argument AddCount(const char* name, const char* help, NumberRange range,
                    std::optional<std::uint64_t>* count);
  // ParseTime(), in multiples of `range.unit_ms`; the help explains the units.
  Argument AddTime(const char* name, const char* help, const TimeRange& range,
                   std::optional<std::uint64_t>* time);
  Argument AddText(const char* name, const char* help, std::optional<std::string>* text);
  // Any number of texts.
  Argument AddTexts(const char* name, const char* help, std::vector<std::string>* texts);
  // One of a few words; the help lists them.
  Argument AddChoice(const char* name, const char* help, std::vector<std::string> choices,
                     std::optional<std::string>* choice, std::vector<WrongChoice> wrong = {});
  void AddFlag(const char* name, const char* help, bool* flag);
  // An option of any other type.
  Argument AddArgument(const char* name, const char* help, const ReadArgument& read);
  // The help lists the options that are added from here on below `title`, and -h,--help below the
  // last one.
  void BeginGroup(const char* title);
  // Puts the line before the end of the help, once. For AddArgument() of a time.
  void Explain(const char* line);

 private:
  CLI::App* app_;
};

// The whole command line. Not thread-safe.
class CommandLine {
 public:
  struct Texts {
    const char* name;
    const char* description;
    const char* footer;
    const char* version;
  };
  explicit CommandLine(const Texts& texts);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Its options may also follow the commands; one command is required.
  [[nodiscard]] Command root();

  enum class Kind { kCommand, kHelp, kWrongUsage };
  struct Parsed {
    Kind kind = Kind::kCommand;
    std::string text;        // the requested help or version, or the error
    std::string suggestion;  // for a wrong word: the one that was perhaps meant
  };
  [[nodiscard]] Parsed Parse(int argc, const char* const* argv);
  // "idctl tag create": the part of the command line that was understood.
  [[nodiscard]] std::string CommandPath() const;

 private:
  std::unique_ptr<CLI::App> app_;
};

// The pure checks of the arguments. An empty text means valid.
[[nodiscard]] std::string CheckTagArgument(const std::string& tag);
[[nodiscard]] std::string CheckTextArgument(const std::string& text);
[[nodiscard]] std::string CheckSocketArgument(const std::string& path);
}  // namespace idd::tools

#endif  // IDD_TOOLS_TERMINAL_COMMAND_LINE_H_
