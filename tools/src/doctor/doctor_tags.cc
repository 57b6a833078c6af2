// SPDX-License-Identifier: Apache-2.0
//
// idctl doctor: checks of the tags. Each kind of problem is one finding for all affected tags, so
// that two thousand of them make one line.
#include "doctor/doctor_tags.h"

#include <cmath>
#include <limits>
#include <optional>

#include "idd/shm/ring_stats.h"
#include "terminal/output.h"

namespace idd::tools {
namespace {

constexpr double kWarnedDays = 90;
constexpr double kLastDays = 14;
constexpr std::uint64_t kWarnedLeases = 20;
constexpr std::uint64_t kLastLeases = 2;
// As a fraction of the ids of the newest leases: restarts alone do not explain a greater loss.
constexpr double kMuchWaste = 0.2;

// The tags with one kind of problem, and the one that the advice names.
struct Group {
  std::vector<std::string> items;
  std::string first;

  void Add(const std::string& tag, const std::string& what) {
    if (items.empty()) first = ShellWord(tag);
    items.push_back(what.empty() ? Quote(tag) : Quote(tag) + " (" + what + ")");
  }
};

// An older idd reports no mode here, and has no snowflake tags.
bool IsOfSnowflake(const Fields& tag) { return tag.Has("mode") && tag.Text("mode") == "snowflake"; }

// "orders#3": the store's counter of one worker of a snowflake tag. Other tags have no such names.
bool IsCounterName(const std::string& name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  return digits > 1 && digits < name.size() && name[digits - 1] == '#';
}

void AddGroup(const Group& group, Finding finding, std::vector<Finding>& findings) {
  if (group.items.empty()) return;
  finding.found = ListSome(group.items, "tag") + finding.found;
  findings.push_back(std::move(finding));
}

std::string Percent(double part) {
  return std::to_string(static_cast<int>(std::lround(part * 100))) + " %";
}

void CheckQuarantine(const std::vector<Fields>& tags, std::vector<Finding>& findings) {
  Group group;
  for (const Fields& tag : tags) {
    if (tag.Text("state") == "quarantined") group.Add(tag.Text("tag"), "");
  }
  AddGroup(group,
           {"quarantine", Health::kProblem,
            " quarantined: a client wrote into the ring what no claim writes; idd has made a new "
            "one and the old ids are a gap",
            "find the client in the log (ring.quarantined, access), and keep it out of the memory: "
            "idctl tag set " +
                group.first + " --access socket"},
           findings);
  AddOkUnlessFound(findings, "quarantine", "no ring was written into");
}

// The operator drained them and may have forgotten it, while claims fail. While the whole host is
// drained, no tag can be resumed alone, and there may be no tag yet.
void CheckDrained(const Fields& daemon, const std::vector<Fields>& tags,
                  std::vector<Finding>& findings) {
  if (daemon.Has("drained") && daemon.Flag("drained")) {
    findings.push_back({"drained", Health::kWarning, "the whole host is drained: every claim fails",
                        "if the maintenance is over: idctl resume"});
    return;
  }
  Group group;
  for (const Fields& tag : tags) {
    if (tag.Text("state") == "drained") group.Add(tag.Text("tag"), "");
  }
  AddGroup(group,
           {"drained", Health::kWarning, " drained: claims on this host fail",
            "if the maintenance is over: idctl resume " + group.first},
           findings);
  AddOkUnlessFound(findings, "drained", "no tag is out of use");
}

// Among the tags without ids, separates those whose last lease failed from those that are only
// waiting. A snowflake tag that no program uses has no ids either: the next claim leases time. If
// the last lease of a tag with ids failed while the store is up, the tag will be without ids soon.
void CheckDry(bool is_store_up, const std::vector<Fields>& tags, std::vector<Finding>& findings) {
  Group failing;
  Group refused;
  Group waiting;
  for (const Fields& tag : tags) {
    const std::string name = tag.Text("tag");
    const std::optional<std::string> error = tag.OptionalText("last_error");
    const bool is_idle = IsOfSnowflake(tag) && !error;
    if (tag.Text("state") != "dry") {
      if (error && is_store_up) refused.Add(name, *error);
    } else if (!is_idle) {
      (error ? failing : waiting).Add(name, error.value_or(""));
    }
  }
  AddGroup(failing,
           {"dry", Health::kProblem, " without ids, and the last lease failed",
            "what the error says; then idctl status " + failing.first},
           findings);
  AddGroup(refused,
           {"dry", Health::kWarning, " with ids for now, but the last lease failed",
            "what the error says; then idctl status " + refused.first},
           findings);
  AddGroup(
      waiting,
      {"dry", Health::kWarning, " without ids at this moment",
       "look again; if it stays, raise its step: idctl tag set " + waiting.first + " --step N"},
      findings);
  AddOkUnlessFound(findings, "dry", "every tag in use has ids");
}

struct Remaining {
  std::uint64_t ids = 0;  // not leased yet, or leased and unclaimed
  std::uint64_t leases = 0;
};

// Nothing until the store has reported the tag's position.
std::optional<Remaining> RemainingOf(const Fields& tag) {
  const std::optional<std::uint64_t> next_id = tag.OptionalCount("next_id");
  const std::optional<std::uint64_t> max_id = tag.OptionalCount("max_id");
  const std::uint64_t available = tag.Count("available");
  const std::uint64_t step = std::max<std::uint64_t>(tag.Count("step"), 1);
  if (!next_id || !max_id) return std::nullopt;
  // max_id itself can be handed out. For values that no store has, the sum saturates.
  std::uint64_t ids = *max_id < *next_id ? 0 : *max_id - *next_id;
  if (*max_id >= *next_id && __builtin_add_overflow(ids, 1, &ids)) --ids;
  if (__builtin_add_overflow(ids, available, &ids)) ids = std::numeric_limits<std::uint64_t>::max();
  return Remaining{.ids = ids, .leases = ids / step};
}

// Snowflake tags end at a time, however many ids are claimed.
void CheckEndOfTime(const std::vector<Fields>& tags, std::vector<Finding>& findings) {
  Group last;
  Group warned;
  for (const Fields& tag : tags) {
    const std::optional<double> days = tag.OptionalNumber("exhausted_in_days");
    if (!IsOfSnowflake(tag) || !days || *days >= kWarnedDays) continue;
    (*days < kLastDays ? last : warned)
        .Add(tag.Text("tag"), FormatDuration(*days * 86'400) + " left");
  }
  const std::string next =
      "a tag keeps its layout: create another tag with more time bits for the programs; if its ids "
      "go where these are, keep the unit, the epoch and the other bits";
  AddGroup(last, {"exhaustion", Health::kProblem, " whose time bits are nearly used up", next},
           findings);
  AddGroup(warned, {"exhaustion", Health::kWarning, " whose time bits are running out", next},
           findings);
}

void CheckExhaustion(const std::vector<Fields>& tags, std::vector<Finding>& findings) {
  CheckEndOfTime(tags, findings);
  Group last;
  Group warned;
  for (const Fields& tag : tags) {
    const std::optional<Remaining> left = RemainingOf(tag);
    const std::optional<double> days = tag.OptionalNumber("exhausted_in_days");
    if (IsOfSnowflake(tag)) continue;
    std::string what = left ? std::to_string(left->ids) + " ids left" : "";
    if (days && *days < kWarnedDays) {
      what += (what.empty() ? "" : ", ") + FormatDuration(*days * 86'400) + " at this rate";
    }
    const bool is_last = (days && *days < kLastDays) || (left && left->leases < kLastLeases);
    const bool is_warned = (days && *days < kWarnedDays) || (left && left->leases < kWarnedLeases);
    if (is_last) {
      last.Add(tag.Text("tag"), what);
    } else if (is_warned) {
      warned.Add(tag.Text("tag"), what);
    }
  }
  const auto next = [](const Group& group) {
    return "if the column that stores the ids is too narrow, widen it first; then raise the "
           "largest id that may be handed out: idctl tag set " +
           group.first + " --max-id N";
  };
  AddGroup(last, {"exhaustion", Health::kProblem, " nearly used up", next(last)}, findings);
  AddGroup(warned, {"exhaustion", Health::kWarning, " running out", next(warned)}, findings);
  AddOkUnlessFound(findings, "exhaustion", "no tag runs out of ids soon");
}

// A tag is short here when it is short in `status` and `top`. The promise grows with the load up to
// the outage tolerance; whether max_prefetch will limit it is known before it has grown.
void CheckPromise(const std::vector<Fields>& tags, std::vector<Finding>& findings) {
  Group limited;
  Group behind;
  std::uint64_t enough = 0;
  for (const Fields& tag : tags) {
    const double rate = tag.Number("reckoned_per_s");
    const double needed = rate * tag.Number("outage_tolerance_s");
    const std::uint64_t promised = tag.Count("promised_ids");
    const auto available = static_cast<double>(tag.Count("available"));
    const auto most = static_cast<double>(tag.Count("max_prefetch"));
    const bool is_judged = tag.Text("state") != "drained" && !IsOfSnowflake(tag);
    if (available >= needed || rate <= 0 || !is_judged) continue;
    const bool is_limited = needed > most;
    if (!is_limited && shm::IsPromiseKept(tag.Count("available"), promised)) continue;
    const double by_now = static_cast<double>(promised);
    const std::string covers = "covers " + FormatDuration(available / rate) + " of " +
                               FormatDuration((is_limited ? needed : by_now) / rate) + " at " +
                               FormatRate(rate) + " ids a second";
    if (!is_limited) {
      behind.Add(tag.Text("tag"), covers);
      continue;
    }
    if (limited.items.empty()) enough = static_cast<std::uint64_t>(std::min(needed * 2, 9e18));
    limited.Add(tag.Text("tag"),
                covers + ", may hold " + std::to_string(tag.Count("max_prefetch")));
  }
  AddGroup(limited,
           {"promise", Health::kProblem,
            " will not survive a store outage for as long as promised: max_prefetch is too small",
            "idctl tag set " + limited.first + " --max-prefetch " + std::to_string(enough) +
                ", or a shorter --outage-tolerance"},
           findings);
  AddGroup(behind,
           {"promise", Health::kWarning, " holding fewer ids than promised",
            "look again in some seconds, leases may be under way; if it stays, look at the store: "
            "idctl status " +
                behind.first},
           findings);
  AddOkUnlessFound(findings, "promise",
                   "every tag in use survives a store outage for as long as promised");
}

// No finding without a tag of order cpu, which an older idd does not have.
void CheckLanes(const std::vector<Fields>& tags, bool has_rseq, std::vector<Finding>& findings) {
  Group group;
  for (const Fields& tag : tags) {
    if (tag.Has("order") && tag.Text("order") == "cpu") group.Add(tag.Text("tag"), "");
  }
  if (group.items.empty()) return;
  if (has_rseq) {
    findings.push_back({"lanes", Health::kOk, "programs can claim from the CPUs' lanes", ""});
    return;
  }
  AddGroup(group,
           {"lanes", Health::kWarning,
            " of order cpu, but there are no restartable sequences here: programs claim from the "
            "ring, which is slower and as safe",
            "a kernel with CONFIG_RSEQ and glibc 2.35 or later, without "
            "GLIBC_TUNABLES=glibc.pthread.rseq=0; or: idctl tag set " +
                group.first + " --order host"},
           findings);
}

}  // namespace

void CheckTags(const Fields& facts, bool has_rseq, std::vector<Finding>& findings) {
  const std::vector<Fields> tags = facts.Objects("tags");
  CheckQuarantine(tags, findings);
  CheckDrained(facts.Object("daemon"), tags, findings);
  CheckDry(facts.Object("store").Text("state") == "up", tags, findings);
  CheckExhaustion(tags, findings);
  CheckPromise(tags, findings);
  CheckLanes(tags, has_rseq, findings);
}

void CheckStoredTags(const Fields& look, std::vector<Finding>& findings) {
  Group behind;
  for (const Fields& tag : look.Objects("behind")) {
    behind.Add(tag.Text("tag"), "the store is at " + tag.CountText("next_id") +
                                    ", this host was granted all below " + tag.CountText("mark"));
  }
  AddGroup(behind,
           {"marks", Health::kProblem, ": the store went backwards",
            "was a backup restored, max_id edited, a replica promoted? idd lifts the store before "
            "it leases, so no id comes twice; restart idd to have it lifted now"},
           findings);
  AddOkUnlessFound(findings, "marks", "the store is not behind what this host was granted");
  Group waste;
  for (const Fields& tag : look.Objects("waste")) {
    const std::string name = tag.Text("tag");
    const auto ids = static_cast<double>(tag.Count("ids"));
    const auto abandoned = static_cast<double>(tag.Count("abandoned"));
    // A crash gives up a window of time, of which most ids would never have been claimed.
    if (IsCounterName(name)) continue;
    if (ids > 0 && abandoned / ids > kMuchWaste) {
      waste.Add(name, Percent(abandoned / ids) + " of " + tag.CountText("ids"));
    }
  }
  AddGroup(waste,
           {"waste", Health::kWarning, " with many abandoned ids in their newest leases",
            "which hosts are killed, or run without a service manager? idctl lease list --state "
            "abandoned --tag " +
                waste.first},
           findings);
  AddOkUnlessFound(findings, "waste", "few ids of the newest leases were given up");
}

}  // namespace idd::tools
