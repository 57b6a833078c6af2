// SPDX-License-Identifier: Apache-2.0
#include "top/top_source.h"

#include <algorithm>
#include <utility>

namespace idd::tools {
namespace {

using std::chrono::milliseconds;

// The screen freezes for at most this long.
constexpr milliseconds kConnectPatience(200);
constexpr milliseconds kReplyPatience(2000);
constexpr std::chrono::seconds kBetweenTries(1);
// How often the daemon is asked for its own lines and for the tags that cannot be observed.
constexpr milliseconds kBetweenRequests(950);
// The list of all tags costs the daemon and the store some work. It is read soon after the daemon
// reports a change, otherwise now and then, as other hosts also create tags, and never so often
// that it takes more than one part in kListShare of the time.
constexpr std::chrono::seconds kBetweenChangedLists(5);
constexpr std::chrono::seconds kBetweenLists(60);
constexpr int kListShare = 200;

double Seconds(MonotonicTime from, MonotonicTime to) {
  return std::chrono::duration<double>(to - from).count();
}

std::uint64_t Nanoseconds(MonotonicTime time) {
  const std::chrono::nanoseconds since_boot = time.time_since_epoch();
  return static_cast<std::uint64_t>(since_boot.count());
}

const char* StateName(const shm::RingView& view, std::uint64_t now_ns) {
  if (view.state == shm::RingState::kDrained ||
      view.numbers.condition == shm::TagCondition::kDrained) {
    return "drained";
  }
  const bool was_quarantined = view.numbers.condition == shm::TagCondition::kQuarantined &&
                               now_ns < view.numbers.quarantined_until_ns;
  if (was_quarantined || view.state == shm::RingState::kQuarantined) return "quarantined";
  return view.available == 0 ? "dry" : "ok";
}

// An idd before ABI 1.4 reports no lanes.
std::uint64_t InLanes(const Fields& tag) {
  const std::optional<Fields> lanes = tag.Has("lanes") ? tag.OptionalObject("lanes") : std::nullopt;
  return lanes.has_value() ? lanes->Count("left") : 0;
}

}  // namespace

TagReading ReadingOf(const shm::RingView& view, std::uint64_t now_ns) {
  return {.state = StateName(view, now_ns),
          .claimed = view.claimed,
          .available = view.available,
          .step = view.numbers.step,
          .leases = view.numbers.leases,
          .fallbacks = view.numbers.fallbacks,
          .in_lanes = view.lanes.left,
          .outage_tolerance_s = static_cast<double>(view.numbers.outage_tolerance_s),
          .planning_rate_per_s = static_cast<double>(view.numbers.reckoned_per_1000_s) / 1000,
          .promised_ids = view.numbers.promised_ids,
          .is_observed = true};
}

Status TopSource::Start(Deadline deadline) {
  Result<AdminClient> client = AdminClient::Connect(socket_path_, deadline);
  if (!client.ok()) return client.status();
  client_.emplace(std::move(client).value());
  if (Status status = AskForTags("all", deadline, MonotonicClock::now()); !status.ok()) {
    return status;
  }
  if (!client_.has_value()) return {Code::kUnavailable, head_.gone_why.value_or("no reply")};
  ObserveWanted(MonotonicClock::now());
  ReadRings(MonotonicClock::now());
  return Status::Ok();
}

Status TopSource::Refresh() {
  const MonotonicTime now = MonotonicClock::now();
  if (Status status = Reconnect(now); !status.ok()) return status;
  if (client_.has_value()) {
    if (Status status = AskDaemon(now); !status.ok()) return status;
  }
  if (client_.has_value()) ObserveWanted(now);
  ReadRings(MonotonicClock::now());
  if (client_.has_value()) {
    head_.uptime_s = uptime_s_ + Seconds(asked_at_, now);
  } else {
    head_.gone_s = Seconds(gone_at_, MonotonicClock::now());
  }
  return Status::Ok();
}

std::vector<const TopTag*> TopSource::tags() const {
  std::vector<const TopTag*> tags;
  tags.reserve(tags_.size());
  for (const auto& [name, tag] : tags_) tags.push_back(&tag.shown);
  return tags;
}

Status TopSource::Reconnect(MonotonicTime now) {
  if (client_.has_value() || now < next_try_) return Status::Ok();
  next_try_ = now + kBetweenTries;
  Result<AdminClient> client =
      AdminClient::Connect(socket_path_, Deadline::After(kConnectPatience));
  if (!client.ok()) {
    head_.gone_why = client.status().message();
    return Status::Ok();
  }
  client_.emplace(std::move(client).value());
  head_.gone_why.reset();
  // It may be another daemon, with other rings: the earlier rings are no longer in use.
  is_listed_ = false;
  next_list_ = now;
  for (auto& [name, tag] : tags_) tag.is_wanted = true;
  return Status::Ok();
}

void TopSource::Lose(const Status& why, MonotonicTime now) {
  client_.reset();
  head_.gone_why = why.message();
  gone_at_ = now;
  next_try_ = now;
}

Status TopSource::AskDaemon(MonotonicTime now) {
  const bool has_changed = !is_listed_ || tags_version_ != listed_version_;
  const bool is_old = now - listed_at_ > (lacks_rings_ ? kBetweenChangedLists : kBetweenLists);
  if ((has_changed || is_old) && now >= next_list_) {
    return AskForTags("all", Deadline::After(kReplyPatience), now);
  }
  if (now - asked_at_ >= kBetweenRequests) {
    return AskForTags("unobserved", Deadline::After(kReplyPatience), now);
  }
  return Status::Ok();
}

Status TopSource::AskForTags(const char* which, Deadline deadline, MonotonicTime now) {
  AdminRequest request("status");
  request.Set("tags", which);
  const Result<JsonDocument> document = client_->Request(request, deadline);
  if (!document.ok()) {
    if (document.status().code() == Code::kIncompatible) return document.status();
    Lose(document.status(), now);
    return Status::Ok();
  }
  const bool is_whole = std::string_view(which) == "all";
  Status status = TakeDocument(document.value().json(), is_whole, MonotonicClock::now());
  if (status.ok() && is_whole) {
    const auto took = MonotonicClock::now() - now;
    next_list_ = now + std::max<MonotonicClock::duration>(kBetweenChangedLists, took * kListShare);
  }
  return status;
}

Status TopSource::TakeDocument(const Json& document, bool is_whole, MonotonicTime now) {
  Status error;
  const Fields reply(document, "reply", &error);
  const Fields daemon = reply.Object("daemon");
  head_.version = daemon.Text("version");
  head_.host_id = daemon.Text("host_id");
  head_.pid = daemon.Count("pid");
  uptime_s_ = daemon.Number("uptime_s");
  head_.uptime_s = uptime_s_;
  const Fields database = reply.Object("database");
  head_.database_state = database.Text("state");
  head_.database_url = database.Text("url");
  head_.database_since_s = database.OptionalNumber("since_s").value_or(0);
  head_.database_error = database.OptionalText("last_error");
  tags_version_ = reply.Has("tags_version") ? reply.Count("tags_version") : 0;
  asked_at_ = now;
  for (auto& [name, tag] : tags_) {
    tag.was_listed = !is_whole;
    tag.shown.last_error.reset();
  }
  for (const Fields& tag : reply.Objects("tags")) TakeTag(tag, is_whole, now);
  if (!error.ok()) return error;
  if (!is_whole) return Status::Ok();
  std::erase_if(tags_, [](const auto& item) { return !item.second.was_listed; });
  listed_at_ = now;
  listed_version_ = tags_version_;
  is_listed_ = true;
  lacks_rings_ = false;  // until the daemon refuses one of them again
  return Status::Ok();
}

void TopSource::TakeTag(const Fields& tag, bool is_whole, MonotonicTime now) {
  const std::string name = tag.Text("tag");
  Watched& watched = tags_[name];
  watched.shown.name = name;
  watched.shown.mode = tag.Text("mode");
  watched.was_listed = true;
  watched.shown.last_error = tag.OptionalText("last_error");
  const Fields promise = tag.Object("promise");
  TagReading reading{.state = tag.Text("state"),
                     .claimed = tag.Count("claimed"),
                     .available = tag.Count("available"),
                     .step = tag.Count("step"),
                     .leases = tag.Count("leases"),
                     .fallbacks = tag.Count("fallbacks"),
                     .in_lanes = InLanes(tag),
                     .outage_tolerance_s = promise.Number("outage_tolerance_s"),
                     .planning_rate_per_s = promise.Number("reckoned_per_s"),
                     .promised_ids = promise.Count("promised_ids"),
                     .is_observed = false};
  if (watched.ring.has_value()) return;
  // A tag that this daemon has never served has no ring. A ring that was refused is requested again
  // after a change.
  const bool is_served = reading.leases > 0 || !tag.Objects("segments").empty();
  watched.is_wanted = watched.is_wanted || (is_whole && is_served);
  Advance(watched, std::move(reading), now);
}

void TopSource::ObserveWanted(MonotonicTime now) {
  for (auto& [name, tag] : tags_) {
    if (!tag.is_wanted) continue;
    Result<std::optional<shm::RingObserver>> ring =
        client_->Observe(name, Deadline::After(kReplyPatience));
    const Code code = ring.ok() ? Code::kOk : ring.status().code();
    if (code == Code::kUnavailable || code == Code::kTimeout) return Lose(ring.status(), now);
    tag.is_wanted = false;
    // Without a ring, or if it cannot be mapped, the daemon's documents are used.
    tag.ring.reset();
    lacks_rings_ = lacks_rings_ || !ring.ok();
    if (ring.ok()) tag.ring = std::move(ring).value();
  }
}

void TopSource::ReadRings(MonotonicTime now) {
  for (auto& [name, tag] : tags_) {
    if (!tag.ring.has_value()) continue;
    const shm::RingView& view = tag.ring->Snapshot();
    // The tag has another ring by now, but the last claims from this one still count.
    if (view.is_over) tag.is_wanted = true;
    if (!view.has_numbers) {
      tag.ring.reset();
      continue;
    }
    Advance(tag, ReadingOf(view, Nanoseconds(now)), now);
  }
}

void TopSource::Advance(Watched& tag, TagReading reading, MonotonicTime now) {
  const double since_s = tag.read_at == MonotonicTime{} ? 0 : Seconds(tag.read_at, now);
  tag.read_at = now;
  tools::Advance(tag.shown, std::move(reading), since_s);
}

}  // namespace idd::tools
