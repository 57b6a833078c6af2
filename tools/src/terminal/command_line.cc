// SPDX-License-Identifier: Apache-2.0
//
// The only file of idctl that includes CLI11.
#include "terminal/command_line.h"

#include <sys/un.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "idd/wire/frames.h"
#include "terminal/output.h"
#include "terminal/suggestion.h"

namespace idd::tools {
namespace {

// The parser's message, or a clearer one for the two most frequent mistakes.
std::string UsageText(const CLI::ParseError& error, const CLI::App& app) {
  const int code = error.get_exit_code();
  const bool is_missing = code == static_cast<int>(CLI::ExitCodes::RequiredError);
  if (!is_missing && code != static_cast<int>(CLI::ExitCodes::ExtrasError)) return error.what();
  const std::vector<std::string> unknown = app.remaining(true);
  if (!unknown.empty()) return "unknown argument " + Quote(unknown.front());
  const std::string text = error.what();
  return text == "A subcommand is required" ? "no command given" : text;
}

const CLI::App& Chosen(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return *command;
}

std::vector<std::string> OptionsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

std::vector<std::string> CommandsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* app : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(app->get_name());
  }
  return names;
}

// The command or option that the first unknown word is probably meant to be, or an empty string.
std::string SuggestionFor(const CLI::App& app, const std::string& path) {
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) return {};
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  const CLI::App& command = Chosen(app);
  if (word.starts_with("--")) return Nearest(word, OptionsOf(command)).value_or("");
  const std::optional<std::string> name = Nearest(word, CommandsOf(command));
  return name.has_value() ? path + " " + *name : "";
}

// Stores the text if it is valid. `T`: std::string, or an optional one.
template <typename T>
ReadArgument Checked(std::string (*check)(const std::string&), T* value) {
  return [check, value](const std::string& text) {
    std::string why = check(text);
    if (why.empty()) *value = text;
    return why;
  };
}

// The help shows a positional argument by its name alone.
const char* TagValueName(const char* name) { return *name == '-' ? "TAG" : ""; }

}  // namespace

Argument& Argument::Required() {
  option_->required();
  return *this;
}

Argument& Argument::ValueName(const char* name) {
  option_->type_name(name);
  return *this;
}

Argument& Argument::Default(const char* value) {
  option_->default_str(value);
  return *this;
}

Command Command::AddCommand(const char* name, const char* summary, const char* example) {
  CLI::App* command = app_->add_subcommand(name, summary);
  command->footer(std::string("Global options: --socket PATH, --json, --timeout TIME; see 'idctl "
                              "--help'.\nExample: ") +
                  example);
  return Command(command);
}

void Command::RequireSubcommand() { app_->require_subcommand(1); }

void Command::OnChosen(std::function<void()> chosen) { app_->callback(std::move(chosen)); }

Argument Command::AddTagName(const char* name, const char* help, std::string* tag) {
  return AddArgument(name, help, Checked(CheckTagArgument, tag)).ValueName(TagValueName(name));
}

Argument Command::AddTagName(const char* name, const char* help, std::optional<std::string>* tag) {
  return AddArgument(name, help, Checked(CheckTagArgument, tag)).ValueName(TagValueName(name));
}

Argument Command::AddTagNames(const char* name, const char* help, std::vector<std::string>* tags) {
  const auto store = [tags](const std::vector<std::string>& texts) { *tags = texts; };
  return Argument(app_->add_option_function<std::vector<std::string>>(name, store, help)
                      ->check(CheckTagArgument, ""))
      .ValueName(TagValueName(name));
}

Argument Command::AddTexts(const char* name, const char* help, std::vector<std::string>* texts) {
  const auto store = [texts](const std::vector<std::string>& given) { *texts = given; };
  return Argument(app_->add_option_function<std::vector<std::string>>(name, store, help)
                      ->check(CheckTextArgument, ""))
      .ValueName("");
}

Argument Command::AddNumber(const char* name, const char* help, NumberRange range,
                            std::optional<std::uint64_t>* number) {
  const auto read = [range, number](const std::string& text) {
    std::uint64_t value = 0;
    std::string why = ParseNumber(text, range, &value);
    if (why.empty()) *number = value;
    return why;
  };
  return AddArgument(name, help, read).ValueName("N");
}

Argument Command::AddCount(const char* name, const char* help, NumberRange range,
                           std::optional<std::uint64_t>* count) {
  const auto read = [range, count](const std::string& text) {
    std::uint64_t value = 0;
    std::string why = ParseCount(text, range, &value);
    if (why.empty()) *count = value;
    return why;
  };
  Explain(kCountHelp);
  return AddArgument(name, help, read).ValueName("N");
}

Argument Command::AddTime(const char* name, const char* help, const TimeRange& range,
                          std::optional<std::uint64_t>* time) {
  const auto read = [range, time](const std::string& text) {
    std::uint64_t value = 0;
    std::string why = ParseTime(text, range, &value);
    if (why.empty()) *time = value;
    return why;
  };
  Explain(kTimeHelp);
  return AddArgument(name, help, read).ValueName("TIME");
}

Argument Command::AddNumbers(const char* name, const char* help, NumberRange range,
                             std::vector<std::uint64_t>* numbers) {
  const auto check = [range](const std::string& text) {
    std::uint64_t value = 0;
    return ParseNumber(text, range, &value);
  };
  // Called after the check.
  const auto store = [range, numbers](const std::vector<std::string>& texts) {
    numbers->clear();
    for (const std::string& text : texts) {
      static_cast<void>(ParseNumber(text, range, &numbers->emplace_back()));
    }
  };
  return Argument(
      app_->add_option_function<std::vector<std::string>>(name, store, help)->check(check, ""));
}

Argument Command::AddText(const char* name, const char* help, std::optional<std::string>* text) {
  return AddArgument(name, help, Checked(CheckTextArgument, text)).ValueName("TEXT");
}

Argument Command::AddChoice(const char* name, const char* help, std::vector<std::string> choices,
                            std::optional<std::string>* choice, std::vector<WrongChoice> wrong) {
  std::string list;
  for (const std::string& item : choices) list += (list.empty() ? "" : ", ") + item;
  const std::string full_help = std::string(help) + ": " + list;
  const auto read = [choices = std::move(choices), wrong = std::move(wrong), list,
                     choice](const std::string& text) {
    for (const WrongChoice& known : wrong) {
      if (known.text == text) return Quote(text) + " " + known.why;
    }
    const bool is_known = std::find(choices.begin(), choices.end(), text) != choices.end();
    if (!is_known) return Quote(text) + " is not one of " + list;
    *choice = text;
    return std::string();
  };
  return AddArgument(name, full_help.c_str(), read);
}

void Command::AddFlag(const char* name, const char* help, bool* flag) {
  app_->add_flag(name, *flag, help);
}

Argument Command::AddArgument(const char* name, const char* help, const ReadArgument& read) {
  const auto store = [read](const std::string& text) { static_cast<void>(read(text)); };
  return Argument(
      app_->add_option_function<std::string>(name, store, help)->take_last()->check(read, ""));
}

void Command::BeginGroup(const char* title) {
  app_->option_defaults()->group(title);
  // Groups are listed in the order of their first options, and -h,--help is there from the start.
  const std::string names = app_->get_help_ptr()->get_name(false, true);
  const std::string help = app_->get_help_ptr()->get_description();
  app_->set_help_flag(names, help);
}

void Command::Explain(const char* line) {
  const std::string footer = app_->get_footer();
  if (footer.find(line) == std::string::npos) app_->footer(std::string(line) + "\n" + footer);
}

CommandLine::CommandLine(const Texts& texts) : app_(std::make_unique<CLI::App>(texts.description)) {
  app_->name(texts.name);
  app_->footer(texts.footer);
  app_->fallthrough();  // inherited: global options may also follow the command
  app_->require_subcommand(1);
  app_->set_version_flag("--version", texts.version);
}

CommandLine::~CommandLine() = default;

Command CommandLine::root() { return Command(app_.get()); }

CommandLine::Parsed CommandLine::Parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success)) {
      return {Kind::kWrongUsage, UsageText(error, *app_), SuggestionFor(*app_, CommandPath())};
    }
    std::ostringstream text;  // --help and --version are "errors" to CLI11
    app_->exit(error, text, text);
    return {Kind::kHelp, text.str(), ""};
  }
  return {};
}

std::string CommandLine::CommandPath() const {
  std::string path = app_->get_name();
  const CLI::App* command = app_.get();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  return path;
}

std::string CheckTagArgument(const std::string& tag) { return wire::CheckTagName(tag).message(); }

std::string CheckTextArgument(const std::string& text) {
  if (!IsUtf8(text)) return "the text is not UTF-8";
  if (text.size() > kMaxTextBytes) {
    return "the text must have at most " + std::to_string(kMaxTextBytes) + " bytes, got " +
           std::to_string(text.size());
  }
  return {};
}

std::string CheckSocketArgument(const std::string& path) {
  constexpr std::size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty()) return "the socket's path is empty";
  if (path.size() > kMaxPathBytes) {
    return "the socket's path must have at most " + std::to_string(kMaxPathBytes) + " bytes, got " +
           std::to_string(path.size());
  }
  return {};
}

}  // namespace idd::tools
