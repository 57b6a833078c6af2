// SPDX-License-Identifier: Apache-2.0
//
// The command line's grammar: commands, options, and the texts of their help. What parses it stays
// in command_line.cc: the definition of its types takes a compiler seconds.
#ifndef IDD_TOOLS_TERMINAL_COMMAND_LINE_H_
#define IDD_TOOLS_TERMINAL_COMMAND_LINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace idd::tools {

// An option or a positional argument, while its command is built. Lives as long as the CommandLine.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  // Wrong usage without it.
  Argument& Required();
  // What stands for the value in the help ("MS"); empty: nothing.
  Argument& ValueName(const char* name);
  // What the help shows as the value without it.
  Argument& Default(const char* value);

 private:
  CLI::Option* option_;
};

// Printable bounds of a number.
struct NumberRange {
  std::uint64_t min;
  std::uint64_t max;
};

// UTF-8 text of at most kMaxTextBytes, so that a request fits a frame.
inline constexpr std::size_t kMaxTextBytes = 2048;

// Reads an argument's text. Returns what is wrong with it; empty: nothing, and the value was
// stored. Called more than once for each text, the last time for the one that counts.
using ReadArgument = std::function<std::string(const std::string& text)>;

// A command while it is built: a handle, to be copied. Lives as long as the CommandLine, as must
// what the arguments are written to. Names are "TAG" of a positional argument and "-n,--count" of
// an option; of an option given twice the last one counts.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // A subcommand with its example in the help; `summary` is one line.
  [[nodiscard]] Command AddCommand(const char* name, const char* summary, const char* example);
  // Wrong usage without one of its subcommands.
  void RequireSubcommand();
  // Called at the end of the parsing when this is the command that was chosen.
  void OnChosen(std::function<void()> chosen);

  // Wrong usage unless wire::CheckTagName accepts it.
  Argument AddTagName(const char* name, const char* help, std::string* tag);
  Argument AddTagName(const char* name, const char* help, std::optional<std::string>* tag);
  // A decimal number and nothing else: no sign, no octal or hexadecimal, which CLI11 would read.
  Argument AddNumber(const char* name, const char* help, NumberRange range,
                     std::optional<std::uint64_t>* number);
  Argument AddText(const char* name, const char* help, std::optional<std::string>* text);
  // One of a few words; the help lists them.
  Argument AddChoice(const char* name, const char* help, std::vector<std::string> choices,
                     std::optional<std::string>* choice);
  void AddFlag(const char* name, const char* help, bool* flag);
  // Any other.
  Argument AddArgument(const char* name, const char* help, const ReadArgument& read);

 private:
  CLI::App* app_;
};

// The whole of it. Not thread-safe.
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

  // Its options may stand behind the commands, too; one of these is required.
  [[nodiscard]] Command root();

  enum class Kind { kCommand, kHelp, kWrongUsage };
  struct Parsed {
    Kind kind = Kind::kCommand;
    std::string text;  // the help or version that was asked for, or what is wrong
  };
  [[nodiscard]] Parsed Parse(int argc, const char* const* argv);
  // "idctl tag create": as far as the command line was understood.
  [[nodiscard]] std::string CommandPath() const;

 private:
  std::unique_ptr<CLI::App> app_;
};

// The pure checks behind the arguments. An empty text means: fine.
[[nodiscard]] std::string CheckTagArgument(const std::string& tag);
[[nodiscard]] std::string CheckTextArgument(const std::string& text);
[[nodiscard]] std::string CheckSocketArgument(const std::string& path);
[[nodiscard]] std::string ParseNumber(const std::string& text, NumberRange range,
                                      std::uint64_t* number);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TERMINAL_COMMAND_LINE_H_
