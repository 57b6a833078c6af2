// SPDX-License-Identifier: Apache-2.0
//
// idctl tag create, list, show, set, delete.
#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "commands/commands.h"
#include "tags/snowflake_layout.h"
#include "tags/tag_settings.h"

namespace idd::tools {
namespace {

constexpr const char* kCpuOrder =
    "cpu: ids rise in a CPU's lane only, not across CPUs, threads or processes";

using Pairs = std::vector<std::pair<std::string, std::string>>;

// "key:  value" lines after `indent`, the values below each other.
std::string FormatPairs(const Pairs& pairs, std::string_view indent = "") {
  std::size_t width = 0;
  for (const auto& pair : pairs) width = std::max(width, pair.first.size());
  std::string text;
  for (const auto& [key, value] : pairs) {
    text += std::string(indent) + key + ":" + std::string(width - key.size() + 2, ' ');
    text += (value.empty() ? "-" : EscapeText(value)) + "\n";
  }
  return text;
}

Failure TagUsage(const char* command, std::string why, std::string todo) {
  return Failure{ExitStatus::kUsage, command, std::move(why), std::move(todo)};
}

// An older idd has no such field, and answers with an error if the tag exists.
bool IsNewTag(const Json& document) {
  Status error;
  const Fields fields(document, "reply", &error);
  return !fields.Has("created") || fields.Flag("created");
}

Outcome AlreadyExists(const std::string& what) {
  return Failure{ExitStatus::kExists, what, "the tag exists already",
                 "see 'idctl tag show', change it with 'idctl tag set', or add --if-absent"};
}

// Refuses an existing tag that lacks a setting that was asked for.
Outcome RefuseOtherSettings(const std::string& what, const Json& document,
                            const TagSettings& asked) {
  Status error;
  const TagFields tag = ReadTag(Fields(document, "reply", &error).Object("tag"));
  if (!error.ok()) return FailureFrom(error, what);
  std::string list;
  for (const Difference& difference : Differences(tag, asked)) {
    list += (list.empty() ? "" : ", ") + difference.name + " is " +
            (difference.before.empty() ? "not set" : difference.before) + ", not " +
            difference.after;
  }
  if (list.empty()) return std::nullopt;
  return Failure{ExitStatus::kExists, what, "the tag exists already with other settings: " + list,
                 "see 'idctl tag show', or change it with 'idctl tag set'"};
}

struct GivenOption {
  const char* name;
  bool is_given;
};

// The first that is given, or null.
const char* FirstGiven(std::initializer_list<GivenOption> options) {
  for (const GivenOption& option : options) {
    if (option.is_given) return option.name;
  }
  return nullptr;
}

// Options that the mode of the new tag does not have.
Outcome CheckOptionsOfMode(const TagArguments& arguments) {
  if (IsSnowflake(arguments.mode.value_or(""))) {
    const char* const wrong = FirstGiven({{"--step", arguments.step.has_value()},
                                          {"--start", arguments.start.has_value()},
                                          {"--max-id", arguments.max_id.has_value()},
                                          {"--refill", arguments.refill.has_value()},
                                          {"--max-step", arguments.max_step.has_value()},
                                          {"--max-prefetch", arguments.max_prefetch.has_value()},
                                          {"--order", arguments.order == "cpu"},
                                          {"--lane-block", arguments.lane_block.has_value()}});
    if (wrong == nullptr) return std::nullopt;
    return TagUsage("tag create", std::string(wrong) + " has no meaning in mode snowflake",
                    "leave it out; --layout and --epoch define the ids");
  }
  const char* const wrong = FirstGiven({{"--layout", arguments.layout.has_value()},
                                        {"--unit", arguments.unit_ms.has_value()},
                                        {"--epoch", arguments.epoch.has_value()},
                                        {"--clock", arguments.clock.has_value()},
                                        {"--max-ahead", arguments.max_ahead_ms.has_value()}});
  if (wrong == nullptr) return std::nullopt;
  return TagUsage("tag create", std::string(wrong) + " is for mode snowflake only",
                  "add --mode snowflake");
}

Outcome CreateTag(const GlobalOptions& global, const TagArguments& arguments, Output& out) {
  if (arguments.start && arguments.max_id && *arguments.start > *arguments.max_id) {
    return TagUsage("tag create", "--start is above --max-id, so that there are no ids",
                    "give a larger --max-id");
  }
  if (Outcome wrong = CheckOptionsOfMode(arguments)) return wrong;
  AdminCall call("tag create " + Quote(arguments.tag), "tag.create");
  SetTagFields(arguments, call.request);
  SetLayoutFields(arguments, call.request);
  // Always set: the reply says whether the tag is new, which decides the exit status.
  call.request.Set("if_absent", true);
  SetWait(global, arguments.wait_s, call);
  call.render = RenderCreatedTag;
  call.refuse = [&arguments, what = call.what](const Json& document) -> Outcome {
    if (IsNewTag(document)) return std::nullopt;
    if (!arguments.is_exist_ok) return AlreadyExists(what);
    return RefuseOtherSettings(what, document, arguments);
  };
  return RunAdminCall(global, call, out);
}

Outcome SetTag(const GlobalOptions& global, const TagArguments& arguments, Output& out) {
  AdminCall call("tag set " + Quote(arguments.tag), "tag.set");
  SetTagFields(arguments, call.request);
  // "op" and "tag" are always set; any other field is a change.
  if (call.request.size() == 2) {
    return TagUsage("tag set", "nothing to change",
                    "give --step, --max-id, --access, --refill, --max-step, --max-prefetch, "
                    "--outage-tolerance, --order, --lane-block or --description");
  }
  SetWait(global, arguments.wait_s, call);
  call.render = [](const Json& document) { return RenderTagLine(document, "changed"); };
  return RunAdminCall(global, call, out);
}

Outcome DeleteTag(const GlobalOptions& global, const TagArguments& arguments, Output& out) {
  if (!arguments.is_forced) {
    return TagUsage("tag delete", Quote(arguments.tag) + " would be deleted for every host",
                    "add --force if that is meant");
  }
  AdminCall call("tag delete " + Quote(arguments.tag), "tag.delete");
  SetTagFields(arguments, call.request);
  call.request.Set("force", true);
  call.render = RenderDeletedTag;
  return RunAdminCall(global, call, out);
}

Outcome ShowTag(const GlobalOptions& global, const TagArguments& arguments, Output& out) {
  AdminCall call("tag show " + Quote(arguments.tag), "tag.show");
  SetTagFields(arguments, call.request);
  call.render = RenderTag;
  return RunAdminCall(global, call, out);
}

Outcome ListTags(const GlobalOptions& global, Output& out) {
  AdminCall call("tag list", "tag.list");
  call.render = ForScreen(out, RenderTagList);
  return RunAdminCall(global, call, out);
}

using TagAction = Outcome (*)(const GlobalOptions&, const TagArguments&, Output&);

// The common part of these five commands: the positional TAG and the action.
void AddTagAction(Command command, Invocation& invocation, TagAction action) {
  command.AddTagName("TAG", "The tag: 1 to 128 bytes of printable UTF-8", &invocation.tag.tag)
      .Required();
  SetAction(command, invocation, [&invocation, action](Output& out) {
    return action(invocation.global, invocation.tag, out);
  });
}

// Whether the help shows the defaults for a new tag; `tag set` has none, as it keeps the current
// values.
enum class Defaults { kShown, kNone };

Argument AddStepOption(Command command, TagArguments& arguments) {
  return command.AddCount("--step", "Smallest number of ids in a lease", kStepRange,
                          &arguments.step);
}

void AddDescriptionOption(Command command, TagArguments& arguments) {
  command.AddText("--description", "Purpose of the ids", &arguments.description);
}

void AddTagOptions(Command command, TagArguments& arguments, Defaults defaults) {
  const auto show = [defaults](Argument argument, const char* value) {
    return defaults == Defaults::kShown ? argument.Default(value) : argument;
  };
  show(command.AddCount("--max-id", "The largest id that may ever be handed out", kIdRange,
                        &arguments.max_id),
       "9223372036854775806");
  show(command.AddChoice("--access", "How clients claim; with socket they get no shared memory",
                         {"ring", "socket"}, &arguments.access),
       "ring")
      .ValueName("ACCESS");
  show(
      command.AddChoice("--order", "Ids rise on the host, or only in a CPU's lane, which is faster",
                        {"host", "cpu"}, &arguments.order),
      "host")
      .ValueName("ORDER");
  show(command.AddCount("--lane-block", "Order cpu: ids that a CPU takes at once; 0: idd chooses",
                        kLaneBlockRange, &arguments.lane_block),
       "0");
  show(command.AddChoice("--refill", "Refill rule: promise or leaf", {"promise", "leaf"},
                         &arguments.refill),
       "promise")
      .ValueName("RULE");
  show(command.AddTime("--outage-tolerance",
                       "How long claims must survive a database outage, at the measured rate; in "
                       "seconds without a unit",
                       kToleranceRange, &arguments.outage_tolerance_s),
       "600");
  show(command.AddCount("--max-prefetch",
                        "Largest number of unclaimed ids on one host, at least two steps", kIdRange,
                        &arguments.max_prefetch),
       "1000000000");
  show(command.AddCount("--max-step", "Largest number of ids in a lease", kStepRange,
                        &arguments.max_step),
       "1000000000000");
}

void AddLayoutOptions(Command command, TagArguments& arguments) {
  command
      .AddArgument("--layout", "Mode snowflake: bits of the time, the worker and the sequence",
                   [&arguments](const std::string& text) {
                     std::string why = CheckLayoutArgument(text);
                     if (why.empty()) arguments.layout = text;
                     return why;
                   })
      .ValueName("T/W/S")
      .Default("41/10/12");
  command
      .AddArgument("--unit", "Mode snowflake: unit of the time: 1ms, 10ms, 1s",
                   [&arguments](const std::string& text) {
                     return ParseUnitArgument(text, &arguments.unit_ms.emplace());
                   })
      .ValueName("UNIT")
      .Default("1ms");
  command
      .AddArgument("--epoch", "Mode snowflake: when the time is 0, in UTC",
                   [&arguments](const std::string& text) {
                     std::string why = CheckEpochArgument(text);
                     if (why.empty()) arguments.epoch = text;
                     return why;
                   })
      .ValueName("DATE")
      .Default("2024-01-01");
  command
      .AddChoice("--clock", "Mode snowflake: who reads the clock", {"client", "daemon"},
                 &arguments.clock)
      .ValueName("CLOCK")
      .Default("client");
  command.Explain(kTimeHelp);
  command
      .AddArgument("--max-ahead", "Mode snowflake: how far ids may be ahead of the clock",
                   [&arguments](const std::string& text) {
                     return ParseAheadArgument(text, &arguments.max_ahead_ms.emplace());
                   })
      .ValueName("TIME")
      .Default("1s");
}

// The settings of a tag that leases ranges of ids.
Pairs RangePairs(const TagFields& tag) {
  Pairs pairs = {{"tag", tag.tag}, {"mode", tag.mode}, {"access", tag.access}};
  if (tag.order == "cpu") {
    pairs.emplace_back("order", kCpuOrder);
    pairs.emplace_back("lane block",
                       tag.lane_block == 0 ? "chosen by idd" : std::to_string(tag.lane_block));
  } else {
    pairs.emplace_back("order", tag.order);
  }
  const Pairs rest = {{"step", std::to_string(tag.step)},
                      {"refill", tag.refill},
                      {"outage tolerance", std::to_string(tag.outage_tolerance_s) + " s"},
                      {"max prefetch", std::to_string(tag.max_prefetch)},
                      {"max step", std::to_string(tag.max_step)},
                      {"next id", std::to_string(tag.next_id)},
                      {"max id", std::to_string(tag.max_id)}};
  pairs.insert(pairs.end(), rest.begin(), rest.end());
  return pairs;
}

// The settings of a snowflake tag, which leases time.
Pairs TimePairs(const TagFields& tag) {
  Pairs pairs = {{"tag", tag.tag},
                 {"mode", tag.mode},
                 {"access", tag.access},
                 {"outage tolerance", std::to_string(tag.outage_tolerance_s) + " s"}};
  if (!tag.layout) return pairs;
  for (auto& pair : LayoutInWords(*tag.layout)) pairs.push_back(std::move(pair));
  return pairs;
}

// The worker ids that hosts have taken; empty if there are none.
std::string WorkersText(const Fields& tag) {
  Table table({{"WORKER", Align::kRight}, {"HOST"}, {"LEASED-UNTIL"}, {"STATE"}});
  const std::vector<Fields> workers = tag.Objects("workers");
  for (const Fields& worker : workers) {
    table.AddRow({worker.CountText("worker"), worker.Text("host"),
                  worker.OptionalText("until").value_or(""),
                  worker.Flag("is_over") ? "over" : "leased"});
  }
  return workers.empty() ? "" : "\n" + table.Format();
}

}  // namespace

void RegisterTagCommands(Command root, Invocation& invocation) {
  Command tag =
      root.AddCommand("tag", "Create, list, show, change and delete tags", "idctl tag list");
  tag.RequireSubcommand();

  Command create = tag.AddCommand("create", "Create a tag, an id space of its own",
                                  "idctl tag create orders --step 10000 --description 'order ids'");
  create.BeginGroup("Options people need first");
  AddStepOption(create, invocation.tag).Default("1000");
  create
      .AddChoice("--mode", "Kind of ids", {"segment", "snowflake", "ticket"}, &invocation.tag.mode)
      .ValueName("MODE")
      .Default("segment");
  AddDescriptionOption(create, invocation.tag);
  create.BeginGroup("More");
  AddTagOptions(create, invocation.tag, Defaults::kShown);
  create.AddCount("--start", "The first id", kIdRange, &invocation.tag.start)
      .ValueName("ID")
      .Default("1");
  AddLayoutOptions(create, invocation.tag);
  create.AddFlag("--if-absent", "Succeed without a change if the tag exists with these settings",
                 &invocation.tag.is_exist_ok);
  AddWaitOption(create, &invocation.tag.wait_s);
  AddTagAction(create, invocation, CreateTag);

  Command list = tag.AddCommand("list", "List all tags", "idctl --json tag list");
  SetAction(list, invocation,
            [&invocation](Output& out) { return ListTags(invocation.global, out); });

  Command show = tag.AddCommand("show", "Show one tag in the allocator", "idctl tag show orders");
  AddTagAction(show, invocation, ShowTag);

  Command set = tag.AddCommand("set", "Change a tag", "idctl tag set orders --step 50000");
  AddStepOption(set, invocation.tag);
  AddDescriptionOption(set, invocation.tag);
  AddTagOptions(set, invocation.tag, Defaults::kNone);
  AddWaitOption(set, &invocation.tag.wait_s);
  AddTagAction(set, invocation, SetTag);

  RegisterTagExport(tag, invocation);

  Command remove = tag.AddCommand("delete", "Delete a tag", "idctl tag delete orders --force");
  remove.AddFlag("--force", "Confirm: the tag is deleted for every host",
                 &invocation.tag.is_forced);
  AddTagAction(remove, invocation, DeleteTag);
}

Result<std::string> RenderTag(const Json& document) {
  Status error;
  const Fields fields = Fields(document, "reply", &error).Object("tag");
  const TagFields tag = ReadTag(fields);
  Pairs pairs = IsSnowflake(tag.mode) ? TimePairs(tag) : RangePairs(tag);
  pairs.emplace_back("description", tag.description);
  pairs.emplace_back("updated", tag.update_time);
  std::string text = FormatPairs(pairs);
  if (tag.layout) text += WorkersText(fields);
  Table returned({{"RETURNED BY"}, {"BASE", Align::kRight}, {"LIMIT", Align::kRight}});
  bool has_returned = false;
  for (const Fields& range : fields.Objects("returned")) {
    returned.AddRow({range.Text("host"), range.CountText("base"), range.CountText("limit")});
    has_returned = true;
  }
  if (!error.ok()) return error;
  return has_returned ? text + "\n" + returned.Format() : text;
}

Result<std::string> RenderTagLine(const Json& document, std::string_view verb) {
  Status error;
  const TagFields tag = ReadTag(Fields(document, "reply", &error).Object("tag"));
  if (!error.ok()) return error;
  const std::string line = std::string(verb) + " tag " + Quote(tag.tag) + ": mode " +
                           EscapeText(tag.mode) + ", access " + EscapeText(tag.access);
  if (tag.layout) return line + "\n" + FormatPairs(LayoutInWords(*tag.layout), "  ");
  const std::string order = tag.order == "cpu" ? ", order cpu" : "";
  const std::string given_up =
      tag.order == "cpu"
          ? "  ids rise in a CPU's lane only, not across CPUs, threads or processes;\n"
            "  a stop loses at most one lane block for each CPU\n"
          : "";
  return line + order + ", step " + std::to_string(tag.step) + ", next id " +
         std::to_string(tag.next_id) + ", max id " + std::to_string(tag.max_id) + "\n" + given_up;
}

Result<std::string> RenderCreatedTag(const Json& document) {
  if (IsNewTag(document)) return RenderTagLine(document, "created");
  return RenderTagLine(document, "kept existing");
}

Result<std::string> RenderTagList(const Json& document, std::size_t columns) {
  Status error;
  Table table({{"TAG"},
               {"MODE", Align::kLeft, 2},
               {"ACCESS", Align::kLeft, 3},
               {"STEP", Align::kRight},
               {"NEXT-ID", Align::kRight},
               {"MAX-ID", Align::kRight, 4},
               {"UPDATED", Align::kLeft, 5},
               {"DESCRIPTION", Align::kLeft, 1}});
  for (const Fields& fields : Fields(document, "reply", &error).Objects("tags")) {
    const TagFields tag = ReadTag(fields);
    const bool has_range = !IsSnowflake(tag.mode);
    table.AddRow({tag.tag, tag.mode, tag.access, has_range ? std::to_string(tag.step) : "",
                  has_range ? std::to_string(tag.next_id) : "",
                  has_range ? std::to_string(tag.max_id) : "", tag.update_time, tag.description});
  }
  if (!error.ok()) return error;
  return table.Format(columns);
}

Result<std::string> RenderDeletedTag(const Json& document) {
  Status error;
  const std::string tag = Fields(document, "reply", &error).Text("deleted");
  if (!error.ok()) return error;
  return "deleted tag " + Quote(tag) + "\n";
}

}  // namespace idd::tools
