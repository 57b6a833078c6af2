// SPDX-License-Identifier: Apache-2.0
//
// idctl apply, tag export: tags as a file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "client/admin_client.h"
#include "commands/commands.h"
#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"
#include "tags/tag_changes.h"
#include "tags/tag_file.h"
#include "tags/tag_settings.h"
#include "terminal/progress_ticker.h"

namespace idd::tools {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;
constexpr std::uint64_t kApplyTimeoutMs = 60'000;

Failure ApplyUsage(std::string why, std::string todo) {
  return Failure{ExitStatus::kUsage, "apply", std::move(why), std::move(todo)};
}

// A wrong entry is wrong usage, whether idctl or idd finds it.
Failure EntryFailure(const Status& status, const std::string& where) {
  Failure failure = FailureFrom({status.code(), where + status.message()}, "apply");
  if (status.code() == Code::kInvalid) {
    failure.exit = ExitStatus::kUsage;
    failure.todo = "nothing was changed";
  }
  return failure;
}

Result<std::string> ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> piece{};
  while (text.size() <= kMaxFileBytes) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status(Code::kInvalid, std::generic_category().message(errno));
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  return Status(Code::kInvalid, "the file has more than 16 MiB");
}

Result<std::string> ReadTagFile(const std::string& path) {
  if (path == "-") return ReadAll(STDIN_FILENO);
  const ScopedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd.valid()) return Status(Code::kInvalid, std::generic_category().message(errno));
  return ReadAll(fd.get());
}

// Asks one daemon, over one connection, for one thing after the other.
class Asker {
 public:
  Asker(AdminClient& client, std::uint64_t timeout_ms) : client_(client), timeout_ms_(timeout_ms) {}

  [[nodiscard]] Result<JsonDocument> Ask(const AdminRequest& request) {
    return client_.Request(request, Deadline::After(std::chrono::milliseconds(timeout_ms_)));
  }
  // For operations that answer with one tag.
  [[nodiscard]] Result<TagFields> AskForTag(const AdminRequest& request) {
    const Result<JsonDocument> document = Ask(request);
    if (!document.ok()) return document.status();
    Status error;
    TagFields tag = ReadTag(Fields(document.value().json(), "reply", &error).Object("tag"));
    if (!error.ok()) return error;
    return tag;
  }
  [[nodiscard]] Result<std::map<std::string, TagFields>> AskForAll() {
    const Result<JsonDocument> document = Ask(AdminRequest("tag.list"));
    if (!document.ok()) return document.status();
    Status error;
    std::map<std::string, TagFields> tags;
    for (const Fields& fields : Fields(document.value().json(), "reply", &error).Objects("tags")) {
      TagFields tag = ReadTag(fields);
      tags.emplace(tag.tag, std::move(tag));
    }
    if (!error.ok()) return error;
    return tags;
  }

 private:
  AdminClient& client_;
  const std::uint64_t timeout_ms_;
};

// The request that makes a change, or checks it: then `check` is the action's name.
AdminRequest RequestFor(TagAction action, const TagSettings& settings, bool is_check) {
  const bool is_new = action == TagAction::kCreate;
  const char* const name = is_new ? "create" : action == TagAction::kChange ? "set" : "delete";
  AdminRequest request(is_check ? "tag.check" : std::string("tag.") + name);
  if (is_check) request.Set("action", name);
  SetTagFields(settings, request);
  if (is_new) SetLayoutFields(settings, request);
  if (action == TagAction::kDelete && !is_check) request.Set("force", true);
  // All changes are made first; AwaitClaims() waits for all of them.
  if (action != TagAction::kDelete && !is_check) request.Set("wait_ms", std::uint64_t{0});
  return request;
}

// Compares the file with idd's tags, has idd check every change, and makes them.
class Applier {
 public:
  Applier(Asker asker, bool is_dry_run) : asker_(asker) { changes_.is_dry_run = is_dry_run; }

  // Nothing is changed. Fails if any entry is wrong.
  Outcome Plan(const std::vector<TagEntry>& entries, bool deletes);
  Outcome MakeChanges();
  // Waits for the tags of which no id could be claimed when they were changed.
  Outcome AwaitClaims(std::uint64_t wait_ms);
  [[nodiscard]] const TagChanges& changes() const noexcept { return changes_; }
  // For another thread.
  [[nodiscard]] std::size_t done() const noexcept { return done_; }
  [[nodiscard]] std::size_t planned() const noexcept { return planned_; }

 private:
  Outcome PlanEntry(const TagEntry& entry, const TagFields* existing);
  Outcome PlanDeletion(const TagFields& tag);

  Asker asker_;
  TagChanges changes_;
  std::vector<TagSettings> settings_;  // of each change
  std::vector<std::string> wheres_;    // of each change
  std::vector<std::string> waiting_;   // tags of which no id can be claimed yet
  std::atomic<std::size_t> done_ = 0;
  std::atomic<std::size_t> planned_ = 0;
};

Outcome Applier::Plan(const std::vector<TagEntry>& entries, bool deletes) {
  Result<std::map<std::string, TagFields>> tags = asker_.AskForAll();
  if (!tags.ok()) return FailureFrom(tags.status(), "apply");
  std::set<std::string> in_file;
  for (const TagEntry& entry : entries) {
    in_file.insert(entry.settings.tag);
    const auto existing = tags.value().find(entry.settings.tag);
    const TagFields* const tag = existing == tags.value().end() ? nullptr : &existing->second;
    if (Outcome wrong = PlanEntry(entry, tag)) return wrong;
    ++planned_;
  }
  for (const auto& [name, tag] : tags.value()) {
    if (in_file.contains(name)) continue;
    if (!deletes) {
      ++changes_.not_in_file;
    } else if (Outcome wrong = PlanDeletion(tag)) {
      return wrong;
    }
  }
  return std::nullopt;
}

Outcome Applier::PlanEntry(const TagEntry& entry, const TagFields* existing) {
  const TagSettings& settings = entry.settings;
  TagChange change;
  change.tag = settings.tag;
  change.action = existing == nullptr ? TagAction::kCreate : TagAction::kChange;
  if (existing != nullptr) {
    change.differences = Differences(*existing, settings);
    if (change.differences.empty()) {
      ++changes_.unchanged;
      return std::nullopt;
    }
    for (const Difference& one : change.differences) {
      if (!IsFixed(one.name)) continue;
      const std::string has = one.before.empty() ? "no " + one.name : one.name + " " + one.before;
      return EntryFailure({Code::kInvalid, "tag " + Quote(settings.tag) + " has " + has +
                                               ", which cannot be changed to " + one.after},
                          entry.where);
    }
  }
  const Result<TagFields> after = asker_.AskForTag(RequestFor(change.action, settings, true));
  if (!after.ok()) return EntryFailure(after.status(), entry.where);
  if (existing == nullptr) {
    for (const Setting& one : Given(settings)) {
      change.differences.push_back({one.name, "", one.value});
    }
  } else {
    change.differences = Differences(*existing, after.value());
  }
  changes_.changes.push_back(std::move(change));
  settings_.push_back(settings);
  wheres_.push_back(entry.where);
  return std::nullopt;
}

Outcome Applier::PlanDeletion(const TagFields& tag) {
  TagSettings settings;
  settings.tag = tag.tag;
  const Result<TagFields> found = asker_.AskForTag(RequestFor(TagAction::kDelete, settings, true));
  if (!found.ok()) {
    return FailureFrom(found.status(), "apply: delete " + Quote(tag.tag));
  }
  changes_.changes.push_back({TagAction::kDelete, tag.tag, {}, false});
  settings_.push_back(settings);
  wheres_.emplace_back();
  return std::nullopt;
}

Outcome Applier::MakeChanges() {
  for (std::size_t i = 0; i < changes_.changes.size(); ++i) {
    TagChange& change = changes_.changes[i];
    const Result<JsonDocument> reply = asker_.Ask(RequestFor(change.action, settings_[i], false));
    if (!reply.ok()) {
      Failure failure = FailureFrom({reply.status().code(), wheres_[i] + reply.status().message()},
                                    "apply: " + Quote(change.tag));
      failure.todo = std::to_string(i) + " of " + Counted(changes_.changes.size(), "change") +
                     " made, as shown; correct this and run the command again";
      return failure;
    }
    change.is_done = true;
    ++done_;
    if (WarnOfClaims("apply", reply.value().json())) waiting_.push_back(change.tag);
  }
  return std::nullopt;
}

// Each change has made room for the tag, so most of them are ready after the first wait.
Outcome Applier::AwaitClaims(std::uint64_t wait_ms) {
  const Deadline deadline = Deadline::After(std::chrono::milliseconds(wait_ms));
  std::size_t left = 0;
  Failure last;
  for (const std::string& tag : waiting_) {
    const auto rest = static_cast<std::uint64_t>(deadline.remaining().count());
    const Result<JsonDocument> reply =
        asker_.Ask(AdminRequest("tag.await").Set("tag", tag).Set("wait_ms", rest));
    if (!reply.ok()) return FailureFrom(reply.status(), "apply: " + Quote(tag));
    Outcome warning = WarnOfClaims("apply: " + Quote(tag), reply.value().json());
    if (!warning.has_value()) continue;
    ++left;
    last = *std::move(warning);
  }
  if (left == 0) return std::nullopt;
  if (left > 1) last.what = "apply: " + Counted(left, "tag");
  return last;
}

std::string ProgressOf(const Applier& applier, std::size_t entries, std::chrono::seconds passed) {
  const std::size_t done = applier.done();
  const std::string how_far =
      done == 0 ? "checked " + std::to_string(applier.planned()) + " of " + Counted(entries, "tag")
                : Counted(done, "change") + " made";
  return "idctl apply: " + how_far + ", " + FormatDuration(static_cast<double>(passed.count()));
}

Outcome CheckApply(const ApplyArguments& arguments) {
  if (!arguments.deletes || arguments.is_dry_run || arguments.is_forced) return std::nullopt;
  return ApplyUsage("--delete would delete tags for every host",
                    "add --force if that is meant, or --dry-run to see which tags");
}

Outcome Apply(const GlobalOptions& global, const ApplyArguments& arguments, Output& out) {
  if (Outcome wrong = CheckApply(arguments)) return wrong;
  const std::string path = arguments.file.value_or("-");
  const std::string name = path == "-" ? "standard input" : path;
  const Result<std::string> text = ReadTagFile(path);
  if (!text.ok()) {
    return ApplyUsage("cannot read " + Quote(name) + ": " + text.status().message(),
                      "name a file of tags, such as 'idctl tag export' prints, or - for standard "
                      "input");
  }
  const Result<std::vector<TagEntry>> entries = ParseTagFile(text.value(), name);
  if (!entries.ok()) return EntryFailure(entries.status(), "");
  if (arguments.deletes && entries.value().empty()) {
    return ApplyUsage(name + " has no tag, so that --delete would delete every tag",
                      "delete single tags with 'idctl tag delete'");
  }
  const std::uint64_t timeout_ms = global.timeout_ms.value_or(kApplyTimeoutMs);
  Result<AdminClient> client = AdminClient::Connect(
      global.socket_path, Deadline::After(std::chrono::milliseconds(timeout_ms)));
  if (!client.ok()) return FailureFrom(client.status(), "apply");
  Applier applier(Asker(client.value(), timeout_ms), arguments.is_dry_run);
  Outcome outcome;
  {
    const ProgressTicker ticker(global.progress_fd, [&](std::chrono::seconds passed) {
      return ProgressOf(applier, entries.value().size(), passed);
    });
    if (Outcome wrong = applier.Plan(entries.value(), arguments.deletes)) return wrong;
    if (!arguments.is_dry_run) outcome = applier.MakeChanges();
    if (!outcome.has_value()) outcome = applier.AwaitClaims(WaitMs(arguments.wait_s, timeout_ms));
  }
  out.Write(global.as_json ? JsonText(global, ChangesJson(applier.changes()))
                           : RenderChanges(applier.changes(), ProbeScreen(out.fd())));
  return outcome;
}

// The tags of the reply with these names, in their order; all of them without names.
Result<std::vector<Fields>> Chosen(const Fields& reply, const std::vector<std::string>& names) {
  std::vector<Fields> all = reply.Objects("tags");
  if (names.empty()) return all;
  std::vector<Fields> chosen;
  for (const std::string& name : names) {
    const auto it = std::find_if(all.begin(), all.end(), [&name](const Fields& fields) {
      return fields.Text("tag") == name;
    });
    if (it == all.end()) return Status(Code::kNoSuchTag, "there is no tag " + Quote(name));
    chosen.push_back(*it);
  }
  return chosen;
}

Result<std::string> RenderTagFile(const Json& document, const std::vector<std::string>& names,
                                  const GlobalOptions& global) {
  Status error;
  const Fields reply(document, "reply", &error);
  const Result<std::vector<Fields>> chosen = Chosen(reply, names);
  if (!error.ok()) return error;
  if (!chosen.ok()) return chosen.status();
  std::vector<TagFields> tags;
  for (const Fields& fields : chosen.value()) tags.push_back(ReadTag(fields));
  if (!error.ok()) return error;
  return global.as_json ? JsonText(global, TagFileJson(tags)) : FormatTagFile(tags);
}

Outcome ExportTags(const GlobalOptions& global, const TagArguments& arguments, Output& out) {
  AdminCall call("tag export", "tag.list");
  call.render = [&arguments, &global](const Json& document) {
    return RenderTagFile(document, arguments.tags, global);
  };
  // The document is that of the chosen tags, not the daemon's.
  GlobalOptions as_text = global;
  as_text.as_json = false;
  return RunAdminCall(as_text, call, out);
}

}  // namespace

void RegisterTagExport(Command tag, Invocation& invocation) {
  Command command = tag.AddCommand("export", "Print tags as a file for 'idctl apply'",
                                   "idctl tag export > tags.toml");
  command.AddTagNames("TAG", "The tags [all]", &invocation.tag.tags);
  SetAction(command, invocation, [&invocation](Output& out) {
    return ExportTags(invocation.global, invocation.tag, out);
  });
}

void RegisterApplyCommand(Command root, Invocation& invocation) {
  ApplyArguments& arguments = invocation.apply;
  Command apply = root.AddCommand("apply", "Create and change tags as a file says",
                                  "idctl apply -f tags.toml --dry-run");
  apply.AddText("-f,--file", "The file of tags, TOML; - is standard input", &arguments.file)
      .ValueName("FILE")
      .Required();
  AddWaitOption(apply, &arguments.wait_s);
  apply.AddFlag("--dry-run", "Show the changes without making them", &arguments.is_dry_run);
  apply.AddFlag("--delete", "Also delete the tags that the file lacks; needs --force",
                &arguments.deletes);
  apply.AddFlag("--force", "Confirm: the tags are deleted for every host", &arguments.is_forced);
  SetAction(apply, invocation,
            [&invocation](Output& out) { return Apply(invocation.global, invocation.apply, out); });
}

}  // namespace idd::tools
