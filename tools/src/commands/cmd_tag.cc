// SPDX-License-Identifier: Apache-2.0
//
// idctl tag create, list, show, set, delete.
#include <algorithm>
#include <utility>
#include <vector>

#include "commands/commands.h"
#include "idd/shm/abi.h"

namespace idd::tools {
namespace {

// Ids are 0 .. kMaxId; the daemon checks a step further.
constexpr std::uint64_t kMaxId = shm::kMaxLimit - 1;
constexpr NumberRange kIdRange = {0, kMaxId};
constexpr NumberRange kStepRange = {1, kMaxId};
constexpr NumberRange kToleranceRange = {0, 604'800};

struct TagFields {
  std::string tag;
  std::string mode;
  std::string access;
  std::uint64_t step = 0;
  std::string refill;
  std::uint64_t max_step = 0;
  std::uint64_t max_prefetch = 0;
  std::uint64_t outage_tolerance_s = 0;
  std::uint64_t next_id = 0;
  std::uint64_t max_id = 0;
  std::string description;
  std::string update_time;
};

TagFields ReadTag(const Fields& fields) {
  TagFields tag;
  tag.tag = fields.Text("tag");
  tag.mode = fields.Text("mode");
  tag.access = fields.Text("access");
  tag.step = fields.Count("step");
  tag.refill = fields.Text("refill");
  tag.max_step = fields.Count("max_step");
  tag.max_prefetch = fields.Count("max_prefetch");
  tag.outage_tolerance_s = fields.Count("outage_tolerance_s");
  tag.next_id = fields.Count("next_id");
  tag.max_id = fields.Count("max_id");
  tag.description = fields.OptionalText("description").value_or("");
  tag.update_time = fields.Text("update_time");
  return tag;
}

// "  key:  value" lines, the values below each other.
std::string FormatPairs(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::size_t width = 0;
  for (const auto& pair : pairs) width = std::max(width, pair.first.size());
  std::string text;
  for (const auto& [key, value] : pairs) {
    text += key + ":" + std::string(width - key.size() + 2, ' ');
    text += (value.empty() ? "-" : EscapeText(value)) + "\n";
  }
  return text;
}

void SetTagFields(const TagArguments& arguments, AdminRequest& request) {
  request.Set("tag", arguments.tag);
  request.SetIfGiven("mode", arguments.mode);
  request.SetIfGiven("access", arguments.access);
  request.SetIfGiven("step", arguments.step);
  request.SetIfGiven("refill", arguments.refill);
  request.SetIfGiven("max_step", arguments.max_step);
  request.SetIfGiven("max_prefetch", arguments.max_prefetch);
  request.SetIfGiven("outage_tolerance_s", arguments.outage_tolerance_s);
  request.SetIfGiven("start", arguments.start);
  request.SetIfGiven("max_id", arguments.max_id);
  request.SetIfGiven("description", arguments.description);
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

Outcome CreateTag(const GlobalOptions& global, const TagArguments& arguments, Output& out) {
  if (arguments.start && arguments.max_id && *arguments.start > *arguments.max_id) {
    return TagUsage("tag create", "--start is above --max-id, so that there are no ids",
                    "give a larger --max-id");
  }
  AdminCall call("tag create " + Quote(arguments.tag), "tag.create");
  SetTagFields(arguments, call.request);
  // Always set: the reply says whether the tag is new, which decides the exit status.
  call.request.Set("if_absent", true);
  call.render = RenderCreatedTag;
  if (!arguments.is_exist_ok) {
    call.refuse = [what = call.what](const Json& document) {
      return IsNewTag(document) ? Outcome() : AlreadyExists(what);
    };
  }
  return RunAdminCall(global, call, out);
}

Outcome SetTag(const GlobalOptions& global, const TagArguments& arguments, Output& out) {
  AdminCall call("tag set " + Quote(arguments.tag), "tag.set");
  SetTagFields(arguments, call.request);
  // "op" and "tag" are always set; any other field is a change.
  if (call.request.size() == 2) {
    return TagUsage("tag set", "nothing to change",
                    "give --step, --max-id, --access, --refill, --max-step, --max-prefetch, "
                    "--outage-tolerance or --description");
  }
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

void AddTagOptions(Command command, TagArguments& arguments, Defaults defaults) {
  const auto show = [defaults](Argument argument, const char* value) {
    return defaults == Defaults::kShown ? argument.Default(value) : argument;
  };
  show(
      command.AddNumber("--step", "Smallest number of ids in a lease", kStepRange, &arguments.step),
      "1000");
  show(command.AddNumber("--max-id", "The largest id that may ever be handed out", kIdRange,
                         &arguments.max_id),
       "9223372036854775806");
  show(command.AddChoice("--access", "How clients claim; with socket they get no shared memory",
                         {"ring", "socket"}, &arguments.access),
       "ring")
      .ValueName("ACCESS");
  show(command.AddChoice("--refill", "Refill rule: promise or leaf", {"promise", "leaf"},
                         &arguments.refill),
       "promise")
      .ValueName("RULE");
  show(command.AddNumber("--outage-tolerance",
                         "Seconds that claims must survive a database outage, at the measured rate",
                         kToleranceRange, &arguments.outage_tolerance_s),
       "600")
      .ValueName("S");
  show(command.AddNumber("--max-prefetch",
                         "Largest number of unclaimed ids on one host, at least two steps",
                         kIdRange, &arguments.max_prefetch),
       "1000000000");
  show(command.AddNumber("--max-step", "Largest number of ids in a lease", kStepRange,
                         &arguments.max_step),
       "1000000000000");
  command.AddText("--description", "Purpose of the ids", &arguments.description);
}

}  // namespace

void RegisterTagCommands(Command root, Invocation& invocation) {
  Command tag =
      root.AddCommand("tag", "Create, list, show, change and delete tags", "idctl tag list");
  tag.RequireSubcommand();

  Command create = tag.AddCommand("create", "Create a tag, an id space of its own",
                                  "idctl tag create orders --step 10000 --description 'order ids'");
  AddTagOptions(create, invocation.tag, Defaults::kShown);
  create.AddNumber("--start", "The first id", kIdRange, &invocation.tag.start)
      .ValueName("ID")
      .Default("1");
  create
      .AddChoice("--mode", "Kind of ids", {"segment", "snowflake", "ticket"}, &invocation.tag.mode)
      .ValueName("MODE")
      .Default("segment");
  create.AddFlag("--if-absent", "Succeed without a change if the tag exists",
                 &invocation.tag.is_exist_ok);
  AddTagAction(create, invocation, CreateTag);

  Command list = tag.AddCommand("list", "List all tags", "idctl --json tag list");
  SetAction(list, invocation,
            [&invocation](Output& out) { return ListTags(invocation.global, out); });

  Command show = tag.AddCommand("show", "Show one tag in the allocator", "idctl tag show orders");
  AddTagAction(show, invocation, ShowTag);

  Command set = tag.AddCommand("set", "Change a tag", "idctl tag set orders --step 50000");
  AddTagOptions(set, invocation.tag, Defaults::kNone);
  AddTagAction(set, invocation, SetTag);

  Command remove = tag.AddCommand("delete", "Delete a tag", "idctl tag delete orders --force");
  remove.AddFlag("--force", "Confirm: the tag is deleted for every host",
                 &invocation.tag.is_forced);
  AddTagAction(remove, invocation, DeleteTag);
}

Result<std::string> RenderTag(const Json& document) {
  Status error;
  const Fields fields = Fields(document, "reply", &error).Object("tag");
  const TagFields tag = ReadTag(fields);
  std::string text =
      FormatPairs({{"tag", tag.tag},
                   {"mode", tag.mode},
                   {"access", tag.access},
                   {"step", std::to_string(tag.step)},
                   {"refill", tag.refill},
                   {"outage tolerance", std::to_string(tag.outage_tolerance_s) + " s"},
                   {"max prefetch", std::to_string(tag.max_prefetch)},
                   {"max step", std::to_string(tag.max_step)},
                   {"next id", std::to_string(tag.next_id)},
                   {"max id", std::to_string(tag.max_id)},
                   {"description", tag.description},
                   {"updated", tag.update_time}});
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
  return std::string(verb) + " tag " + Quote(tag.tag) + ": mode " + EscapeText(tag.mode) +
         ", access " + EscapeText(tag.access) + ", step " + std::to_string(tag.step) +
         ", next id " + std::to_string(tag.next_id) + ", max id " + std::to_string(tag.max_id) +
         "\n";
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
    table.AddRow({tag.tag, tag.mode, tag.access, std::to_string(tag.step),
                  std::to_string(tag.next_id), std::to_string(tag.max_id), tag.update_time,
                  tag.description});
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
