// SPDX-License-Identifier: Apache-2.0
//
// Tags as files: idctl apply and tag export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child_process.h"
#include "support/host.h"
#include "support/pseudo_terminal.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

class TagFiles : public ::testing::Test {
 protected:
  void SetUp() override { host_.daemon.Start(); }

  [[nodiscard]] std::string File(const std::string& text) const {
    const std::string path = dir_.File("tags.toml");
    WriteFile(path, text);
    return path;
  }
  [[nodiscard]] IdctlResult Apply(const std::string& text, const Words& options = {}) const {
    Words words = {"apply", "-f", File(text)};
    words.insert(words.end(), options.begin(), options.end());
    return host_.idctl.Run(words);
  }
  [[nodiscard]] nlohmann::json Tag(const std::string& name) const {
    return host_.idctl.Json({"tag", "show", name}).at("tag");
  }
  [[nodiscard]] Words Names() const {
    Words names;
    const nlohmann::json list = host_.idctl.Json({"tag", "list"});
    for (const auto& tag : list.at("tags")) names.push_back(tag.at("tag"));
    return names;
  }

  const TempDir dir_;
  Host host_{dir_};
};

constexpr const char* kTwoTags = R"([[tag]]
name = "orders"
step = "10k"
max_id = 9000000
outage_tolerance = "30m"
description = "order ids"

[[tag]]
name = "invoices"
mode = "ticket"
)";

TEST_F(TagFiles, ApplyCreatesWhatIsMissingAndASecondRunChangesNothing) {
  const IdctlResult dry = Apply(kTwoTags, {"--dry-run"});
  EXPECT_EQ(dry.exit_status, 0) << dry.err;
  EXPECT_THAT(Names(), ElementsAre());
  const IdctlResult first = Apply(kTwoTags);
  EXPECT_EQ(first.exit_status, 0) << first.err;
  EXPECT_EQ(first.out,
            "+ orders\n"
            "    description       'order ids'\n"
            "    step              10000\n"
            "    max_id            9000000\n"
            "    outage_tolerance  30m\n"
            "+ invoices\n"
            "    mode  ticket\n"
            "2 created, 0 changed, 0 deleted, 0 unchanged\n");
  EXPECT_EQ(dry.out, first.out.substr(0, first.out.rfind("2 created")) +
                         "dry run, nothing is changed: 2 created, 0 changed, 0 deleted, 0 "
                         "unchanged\n");
  EXPECT_EQ(Tag("orders").at("step"), 10'000);
  EXPECT_EQ(Tag("orders").at("outage_tolerance_s"), 1800);
  EXPECT_EQ(Tag("invoices").at("mode"), "ticket");
  EXPECT_EQ(Apply(kTwoTags).out, "0 created, 0 changed, 0 deleted, 2 unchanged\n");
}

TEST_F(TagFiles, ApplyChangesOnlyWhatTheFileSays) {
  host_.idctl.Do(
      {"tag", "create", "orders", "--step", "5", "--max-step", "1000000", "--start", "700"});
  const IdctlResult changed = Apply(kTwoTags);
  EXPECT_THAT(changed.out, StartsWith("~ orders\n"
                                      "    description       '' -> 'order ids'\n"
                                      "    step              5 -> 10000\n"
                                      "    max_id            9223372036854775806 -> 9000000\n"
                                      "    outage_tolerance  10m -> 30m\n"
                                      "+ invoices\n"));
  EXPECT_EQ(Tag("orders").at("max_step"), 1'000'000);
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 700U);
}

// Every setting of every mode survives.
TEST_F(TagFiles, ExportedTagsAreUnchangedAndCanBeMadeAgain) {
  host_.idctl.Do({"tag", "create", "orders", "--step", "10000", "--max-id", "5000000", "--refill",
                  "leaf", "--max-step", "20000", "--max-prefetch", "70000", "--outage-tolerance",
                  "90s", "--access", "socket", "--description", "a \"b\" \\ c\n\x01 \u6ce8"});
  host_.idctl.Do({"tag", "create", "lanes", "--order", "cpu", "--lane-block", "64"});
  host_.idctl.Do({"tag", "create", "two words, #", "--start", "40"});
  host_.idctl.Do({"tag", "create", "invoices", "--mode", "ticket", "--max-id", "99"});
  host_.idctl.Do({"tag", "create", "events", "--mode", "snowflake", "--layout", "39/16/8", "--unit",
                  "10ms", "--epoch", "2024-05-01T10:00:00Z", "--clock", "daemon", "--max-ahead",
                  "500ms", "--outage-tolerance", "1h"});
  host_.idctl.Do({"tag", "create", "plain events", "--mode", "snowflake"});
  static_cast<void>(host_.idctl.Claim("lanes", 10));
  const std::string file = host_.idctl.Run({"tag", "export"}).out;
  EXPECT_THAT(file, HasSubstr("step = 10000\n"));
  EXPECT_THAT(file, HasSubstr("outage_tolerance = \"90s\"\n"));
  EXPECT_EQ(Apply(file, {"--dry-run"}).out,
            "dry run, nothing is changed: 0 created, 0 changed, 0 deleted, 6 unchanged\n");
  const TempDir empty;
  Host copy(empty);
  copy.daemon.Start();
  const IdctlResult copied = copy.idctl.Run({"apply", "-f", File(file)});
  EXPECT_EQ(copied.exit_status, 0) << copied.err;
  EXPECT_EQ(copy.idctl.Run({"tag", "export"}).out, file);
  EXPECT_EQ(copy.idctl.Json({"tag", "show", "orders"}).at("tag").at("description"),
            Tag("orders").at("description"));
}

TEST_F(TagFiles, ExportPrintsTheNamedTagsInTheirOrder) {
  for (const char* tag : {"a", "b", "c"}) host_.idctl.Do({"tag", "create", tag});
  const std::string file = host_.idctl.Run({"tag", "export", "c", "a"}).out;
  EXPECT_LT(file.find("name = \"c\""), file.find("name = \"a\""));
  EXPECT_THAT(file, Not(HasSubstr("\"b\"")));
  const nlohmann::json tags = host_.idctl.Json({"tag", "export", "b"}).at("tags");
  ASSERT_EQ(tags.size(), 1U);
  EXPECT_EQ(tags[0].at("name"), "b");
  EXPECT_EQ(tags[0].at("step"), 1000);
  EXPECT_EQ(tags[0].at("outage_tolerance"), "10m");
  const IdctlResult unknown = host_.idctl.Run({"tag", "export", "a", "nobody"});
  EXPECT_EQ(unknown.exit_status, 3);
  EXPECT_EQ(unknown.out, "");
}

TEST_F(TagFiles, StandardInputIsAFileToo) {
  host_.idctl.Do({"tag", "create", "orders"});
  ChildOptions child;
  const std::string idctl = IdctlBinary() + " --socket " + host_.daemon.socket();
  child.argv = {"/bin/sh", "-c", idctl + " tag export | " + idctl + " apply -f - --dry-run"};
  ChildProcess process(child);
  EXPECT_EQ(process.WaitFor(Patience(30s)), 0) << process.stderr_text();
  EXPECT_THAT(process.stdout_text(), HasSubstr("1 unchanged"));
}

// One wrong entry among good ones: the line, exit status 2, and no change.
TEST_F(TagFiles, WrongEntryIsNamedWithItsLineAndNothingIsChanged) {
  host_.idctl.Do({"tag", "create", "old", "--step", "50"});
  const std::string good = "[[tag]]\nname = \"new\"\n[[tag]]\nname = \"old\"\nstep = 60\n";
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"[[tag]]\nname = \"x\"\nstpe = 5\n", ":8: unknown setting 'stpe'; did you mean 'step'?"},
      {"[[tag]]\nname = \"x\"\nstep = \"10h\"\n", ":8: step: '10h' is not a whole number"},
      {"[[tag]]\nname = \"x\"\nstep = 0\n", ":8: step: '0' is not a whole number from 1"},
      {"[[tag]]\nname = \"x\"\nstep = -5\n", ":8: step: '-5' is not a whole number"},
      {"[[tag]]\nname = \"x\"\nstep = 1.5\n", ":8: step must be a whole number"},
      {"[[tag]]\nname = \"x\"\nstep = true\n", ":8: step must be a whole number"},
      {"[[tag]]\nname = \"x\"\nmode = \"magic\"\n", ":8: mode: 'magic' is not one of segment"},
      {"[[tag]]\nname = \"x\"\noutage_tolerance = \"10k\"\n", ":8: outage_tolerance: '10k' is not"},
      {"[[tag]]\nname = \"x\"\ndescription = 5\n", ":8: description must be a text"},
      {"[[tag]]\nname = \"x\"\nepoch = \"yesterday\"\n", ":8: epoch: 'yesterday' is not a date"},
      {"[[tag]]\nname = \"\"\n", ":7: name: "},
      {"[[tag]]\nstep = 5\n", ":6: the tag has no name"},
      {"[[tag]]\nname = \"new\"\n", ":6: tag 'new' is already at line 1"},
      {"[tags]\nname = \"x\"\n", ":6: unknown key 'tags'"},
      {"[[tag]\n", ":6: "},
      {"step = 5\nstep = 6\n", ":6: "},
      // Only idd knows these.
      {"[[tag]]\nname = \"x\"\nmax_prefetch = 10\n",
       ":6: max_prefetch of tag 'x' must be from two"},
      {"[[tag]]\nname = \"x\"\nmode = \"ticket\"\nstep = 5\n", ":6: a tag of mode ticket"},
      {"[[tag]]\nname = \"x\"\nlayout = \"41/10/12\"\n", ":6: layout, unit, epoch"},
      {"[[tag]]\nname = \"x\"\nstart = 10\nmax_id = 5\n", ":6: the first id 10"},
      {"[[tag]]\nname = \"x#1\"\n", ":6: "},
  };
  for (const auto& [entry, message] : wrong) {
    const IdctlResult result = Apply(good + entry);
    EXPECT_EQ(result.exit_status, 2) << entry << result.err;
    EXPECT_THAT(result.err, HasSubstr("tags.toml" + message)) << entry;
    EXPECT_THAT(result.err, HasSubstr("nothing was changed")) << entry;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "") << entry;
    EXPECT_THAT(Names(), ElementsAre("old")) << entry;
    EXPECT_EQ(Tag("old").at("step"), 50) << entry;
  }
}

TEST_F(TagFiles, SettingsOfANewTagCannotBeChangedLater) {
  host_.idctl.Do({"tag", "create", "orders", "--start", "10"});
  host_.idctl.Do({"tag", "create", "events", "--mode", "snowflake"});
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"name = \"orders\"\nmode = \"ticket\"",
       "has mode segment, which cannot be changed to ticket"},
      {"name = \"orders\"\nstart = 11", "has start 10, which cannot be changed to 11"},
      {"name = \"orders\"\nclock = \"client\"", "has no clock, which cannot be changed to client"},
      {"name = \"events\"\nlayout = \"39/16/8\"", "has layout 41/10/12, which cannot be changed"},
      {"name = \"events\"\nmax_ahead = \"2s\"", "has max_ahead 1s, which cannot be changed to 2s"}};
  for (const auto& [entry, message] : wrong) {
    const IdctlResult result = Apply("[[tag]]\n" + entry + "\n");
    EXPECT_EQ(result.exit_status, 2) << entry;
    EXPECT_THAT(result.err, HasSubstr("tags.toml:1: tag '")) << entry;
    EXPECT_THAT(result.err, HasSubstr(message)) << entry;
  }
  EXPECT_EQ(Apply("[[tag]]\nname = \"orders\"\nstart = 5\n").exit_status, 0) << "it is above";
}

TEST_F(TagFiles, DeletesOnlyWithDeleteAndForce) {
  for (const char* tag : {"orders", "old", "older"}) host_.idctl.Do({"tag", "create", tag});
  const std::string file = "[[tag]]\nname = \"orders\"\n";
  EXPECT_EQ(Apply(file).out,
            "0 created, 0 changed, 0 deleted, 1 unchanged\n2 tags are not in the file and stay\n");
  const IdctlResult unforced = Apply(file, {"--delete"});
  EXPECT_EQ(unforced.exit_status, 2);
  EXPECT_THAT(unforced.err, HasSubstr("--force"));
  EXPECT_EQ(Names().size(), 3U);
  EXPECT_EQ(Apply(file, {"--delete", "--dry-run"}).out,
            "- old\n- older\n"
            "dry run, nothing is changed: 0 created, 0 changed, 2 deleted, 1 unchanged\n");
  EXPECT_EQ(Names().size(), 3U);
  for (const char* empty : {"", "# nothing\n"}) {
    const IdctlResult all = Apply(empty, {"--delete", "--force"});
    EXPECT_EQ(all.exit_status, 2);
    EXPECT_THAT(all.err, HasSubstr("would delete every tag"));
  }
  const nlohmann::json document =
      host_.idctl.Json({"apply", "-f", File(file), "--delete", "--force"});
  EXPECT_EQ(document.at("deleted"), 2);
  EXPECT_EQ(document.at("not_in_file"), 0);
  EXPECT_THAT(Names(), ElementsAre("orders"));
}

TEST_F(TagFiles, JsonHasEveryChange) {
  host_.idctl.Do({"tag", "create", "orders", "--step", "5"});
  for (const bool is_dry_run : {true, false}) {
    Words words = {"apply", "-f", File(kTwoTags)};
    if (is_dry_run) words.emplace_back("--dry-run");
    const nlohmann::json document = host_.idctl.Json(words);
    EXPECT_EQ(document.at("dry_run"), is_dry_run);
    EXPECT_EQ(document.at("created"), 1);
    EXPECT_EQ(document.at("changed"), 1);
    EXPECT_EQ(document.at("unchanged"), 0);
    const nlohmann::json& orders = document.at("tags").at(0);
    EXPECT_EQ(orders.at("tag"), "orders");
    EXPECT_EQ(orders.at("action"), "change");
    EXPECT_EQ(orders.at("done"), !is_dry_run);
    EXPECT_EQ(orders.at("settings").at(1),
              nlohmann::json({{"name", "step"}, {"before", "5"}, {"after", "10000"}}));
    const nlohmann::json& invoices = document.at("tags").at(1);
    EXPECT_EQ(invoices.at("action"), "create");
    EXPECT_EQ(invoices.at("settings").at(0),
              nlohmann::json({{"name", "mode"}, {"before", nullptr}, {"after", "ticket"}}));
  }
}

TEST_F(TagFiles, UnreadableFileExits2AndAbsentDaemonExits4) {
  const IdctlResult absent = host_.idctl.Run({"apply", "-f", dir_.File("none.toml")});
  EXPECT_EQ(absent.exit_status, 2);
  EXPECT_THAT(absent.err, HasSubstr("No such file"));
  EXPECT_EQ(host_.idctl.Run({"apply", "-f", "/"}).exit_status, 2);
  EXPECT_EQ(host_.idctl.Run({"apply"}).exit_status, 2);
  host_.daemon.Stop();
  EXPECT_EQ(Apply(kTwoTags).exit_status, 4);
  EXPECT_EQ(host_.idctl.Run({"tag", "export"}).exit_status, 4);
}

// No line is wider than the terminal, and no text is lost.
TEST_F(TagFiles, NarrowTerminalGetsNarrowLines) {
  host_.idctl.Do({"tag", "create", "orders", "--description",
                  "the ids of all orders of all shops in all countries since the beginning"});
  const std::string path =
      File(std::string(kTwoTags) + "[[tag]]\nname = \"" + std::string(90, 'x') + "\"\nstep = 5\n");
  for (const unsigned short columns : std::initializer_list<unsigned short>{40, 60, 80}) {
    const std::string seen = host_.idctl.OnTerminal({"apply", "-f", path, "--dry-run"}, columns);
    for (const std::string& line : ShownLines(seen)) {
      if (line.starts_with("+ xxx")) continue;  // a name is one word
      EXPECT_LE(line.size(), columns) << line;
    }
    EXPECT_THAT(seen, HasSubstr("~ orders"));
    EXPECT_THAT(seen, HasSubstr("9000000"));
    EXPECT_THAT(seen, HasSubstr("unchanged"));
  }
}

}  // namespace
}  // namespace idd::harness
