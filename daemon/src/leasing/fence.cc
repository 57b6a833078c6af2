// SPDX-License-Identifier: Apache-2.0
#include "leasing/fence.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "platform/logging.h"

namespace idd::daemon {
namespace {

constexpr std::int64_t kLookEveryMs = 1000;
// The interval of looks while something waits for other hosts, which look once a second. It is
// longer beside many hosts, as a look reads the row of each.
constexpr std::int64_t kLookSoonMs = 200;
constexpr std::int64_t kLookSoonForEachMs = 4;
// How long a host that does not know all ceilings waits for a sign of a host that does, before it
// pushes its own. Three looks of the other host fit in; if it appears, no gap is made.
constexpr std::int64_t kWatchMs = 3000;
// If two connections are this far apart, the data set may have been set back to its state at the
// time of the first.
constexpr std::int64_t kContinuedMs = 3000;
// If this much passes between the sending of one packet of a connection and the answer to the next,
// the same holds: a server's machine that is set back to a snapshot of its memory has its
// connections again, too. A connection that does not answer for two seconds (kMysqlTimeout) is
// given up, so a server that is only slow hardly ever makes a host late: hosts look once a second.
constexpr std::int64_t kUnprovenMs = 6000;
// Raises that were tried in vain for so long, again and again, wait for more than those of other
// hosts.
constexpr std::int64_t kHeldUpMs = 20'000;
constexpr std::int64_t kAgainMs = 2000;
// A host that was seen within this time may be alive.
constexpr std::int64_t kAliveMs = 5000;
// A host that has been silent for so long may be off: its service manager would have started it.
constexpr std::int64_t kMayBeOffMs = 30'000;
// The marks' copy of the time of the last look is at most fence_after / kRememberedIn old.
constexpr std::int64_t kRememberedIn = 20;
// Tags in one statement.
constexpr std::size_t kAtOnce = 500;

std::vector<TagMark> MarksOf(const std::vector<Ceiling>& ceilings) {
  std::vector<TagMark> marks;
  marks.reserve(ceilings.size());
  for (const Ceiling& ceiling : ceilings) {
    marks.push_back({.tag = ceiling.tag, .mark = ceiling.wanted});
  }
  return marks;
}

const FenceMember* FindMember(const FenceView& view, const std::string& host) {
  const auto it = std::find_if(view.members.begin(), view.members.end(),
                               [&host](const FenceMember& member) { return member.host == host; });
  return it == view.members.end() ? nullptr : &*it;
}

}  // namespace

std::int64_t BootTimeMs() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

Fence::Fence(FenceSettings settings) : settings_(std::move(settings)) {
  if (!settings_.now_ms) settings_.now_ms = BootTimeMs;
}

void Fence::Reset() { *this = Fence(std::move(settings_)); }

// --- arriving

// Since this host was last live, at the data set that the marks tell of or at a later one.
std::int64_t Fence::SinceConfirmedMs(const Membership& membership) const {
  return settings_.now_ms() - std::max(membership.confirmed_ms, confirmed_ms_);
}

// Whether the marks have every ceiling that was ever active. No ceiling is activated without this
// host's note until another host has seen this host silent for `silence`. Only half of that time
// counts here, because a data set that hangs for only some of the hosts may be in use at the same
// time as another one.
bool Fence::IsComplete(const Membership& membership) const {
  if (was_put_out_ || !membership.is_live || membership.boot_id != settings_.boot_id ||
      membership.incarnation != incarnation_) {
    return false;
  }
  const std::int64_t elapsed_ms = SinceConfirmedMs(membership);
  return elapsed_ms >= 0 && 2 * elapsed_ms < SilenceMs();
}

// Whether these notes stay incomplete, whatever data set this host comes to, until it has joined
// again.
bool Fence::IsLost(const Membership& membership) const {
  if (!membership.is_live || membership.boot_id != settings_.boot_id) return true;
  const std::int64_t elapsed_ms = SinceConfirmedMs(membership);
  return 2 * elapsed_ms >= SilenceMs();
}

// Whether the server process that this host last used has run ever since, and still has this host's
// row exactly as this host left it.
bool Fence::IsUnchanged(const FenceStore& store, const Membership& membership) const {
  const std::optional<std::chrono::seconds> uptime = store.uptime();
  if (!uptime.has_value() || !store.found().has_value()) return false;
  const std::int64_t elapsed_ms = settings_.now_ms() - membership.confirmed_ms;
  return membership.server == server_ && membership.boot_id == settings_.boot_id &&
         elapsed_ms >= 0 &&
         std::chrono::milliseconds(*uptime).count() > elapsed_ms + 2 * kLookEveryMs &&
         store.found()->beat == membership.beat;
}

// Whether only the connection was lost, for a moment, and the same data set is open again.
bool Fence::IsContinued() const {
  return state_ == State::kLive && !was_replaced_ && !was_put_out_ &&
         settings_.now_ms() - confirmed_ms_ < kContinuedMs;
}

Result<Fence::Arrival> Fence::Arrive(FenceStore& store, HighWaterMarks& marks,
                                     const std::string& incarnation, bool is_replaced) {
  was_replaced_ = was_replaced_ || is_replaced;  // also for a second try, and after the watch
  const bool is_continued = IsContinued();
  // If an earlier try failed after it had begun the watch, this try continues that watch.
  const bool was_watching =
      (state_ == State::kWatching || state_ == State::kWaiting) && store.data_set() == data_set_;
  data_set_ = store.data_set();
  if (!was_watching && !is_continued) {
    others_.Clear();
    contact_ms_ = settings_.now_ms();
  }
  noted_ = 0;
  ceilings_.Forget();
  const Result<FenceView> view = ReadView(store);
  if (!view.ok()) return view.status();
  server_ = view.value().server;
  incarnation_ = incarnation;
  if (store.found().has_value() && store.found()->state == MemberState::kOut) was_put_out_ = true;
  const Result<Membership> membership = marks.GetMembership();
  if (!membership.ok()) return membership.status();
  const bool is_complete = is_continued || IsComplete(membership.value());
  if (!is_complete && was_watching && IsLost(membership.value())) {
    if (Status status = PutSelfOut(store, view.value()); !status.ok()) return status;
  }
  // If a live member was gone for kContinuedMs or longer, the data set may have been set back to
  // its state at that member's last look, without what others were granted since. A host that had
  // left asks the others anyway.
  const bool is_recent =
      settings_.now_ms() - membership.value().confirmed_ms < kContinuedMs || !is_complete;
  // A row that is as this host left it does not show what others were granted since.
  const bool is_unchanged =
      !was_replaced_ && (is_continued || (is_recent && IsUnchanged(store, membership.value())));
  // A new data set is one from which nothing was leased before. If it stands for another one, that
  // was used by hosts that only the marks know.
  const bool is_first = store.is_new() && !was_replaced_;
  const bool joins = is_complete || (others_.AreAllOut() && (is_unchanged || is_first));
  const std::int64_t known_ms = std::max(membership.value().confirmed_ms, confirmed_ms_);
  Arrival arrival{.pushes_ceilings = !is_unchanged,
                  .joins = joins,
                  .is_complete = is_complete,
                  .proven_ms = is_unchanged ? known_ms : looked_ms_};
  if (!arrival.joins && !was_watching) {
    // First find out whether there are other hosts, and whether one of them knows all ceilings.
    arrival.pushes_ceilings = false;
    state_ = State::kWatching;
    looks_soon_ = true;
    log::Info("fence.watching", {{"server", server_}, {"hosts", others_.seen().size()}});
  }
  if (arrival.pushes_ceilings) {
    if (Status status = marks.RaiseToCeilings(); !status.ok()) return status;
  }
  return arrival;
}

// For a host that comes again and again but cannot join, as when its own disk is full: its row
// moves, so no other host sees it silent, and all would wait for its notes.
Status Fence::PutSelfOut(FenceStore& store, const FenceView& view) {
  const FenceMember& own = *FindMember(view, settings_.host);
  if (own.state != MemberState::kLive || !others_.OneIsLiveOn(server_)) return Status::Ok();
  const Result<bool> put = store.PutOut(own);
  if (!put.ok() || !put.value()) return put.status();
  was_put_out_ = true;
  log::Warning("fence.put_self_out", {{"server", server_},
                                      {"reason", "its notes are too old, and it could not join"},
                                      {"action", "other hosts go on; joins again when it can"}});
  return Status::Ok();
}

Status Fence::Settle(FenceStore& store, HighWaterMarks& marks, const Arrival& arrival) {
  if (arrival.joins) return Join(store, marks, arrival);
  if (!HasWatched()) return Status::Ok();
  if (arrival.pushes_ceilings) {
    if (Status status = Push(store, marks); !status.ok()) return status;
  }
  // From now on this host's notes may be incomplete, because no other host waits for them.
  if (Status status = Remember(store, marks, false); !status.ok()) return status;
  Status status = WriteState(store, marks, MemberState::kWaiting);
  if (status.ok()) status = store.Confirm();
  if (!status.ok()) return status;
  state_ = State::kWaiting;
  log::Warning("fence.waiting", {{"server", server_}, {"reason", Reason()}});
  return Status::Ok();
}

// Makes the ceilings that this host has noted, and the members that the data set may lack, known to
// all hosts that come to this data set later.
Status Fence::Push(FenceStore& store, HighWaterMarks& marks) {
  const Result<std::vector<TagMark>> noted = marks.Ceilings();
  if (!noted.ok()) return noted.status();
  const Result<HighWaterMarks::MemberList> members = marks.Members();
  if (!members.ok()) return members.status();
  noted_ = 0;
  const Result<FenceView> view = ReadView(store);
  if (!view.ok()) return view.status();
  std::map<std::string, std::uint64_t> pushed;
  for (const Ceiling& ceiling : view.value().ceilings) pushed[ceiling.tag] = ceiling.pushed;
  std::vector<CeilingRaise> missing;
  for (const TagMark& ceiling : noted.value()) {
    if (pushed[ceiling.tag] >= ceiling.mark) continue;
    missing.push_back({.tag = ceiling.tag,
                       .wanted = ceiling.mark,
                       .least = ceiling.mark,
                       .pushed = ceiling.mark});
    if (missing.size() < kAtOnce) continue;
    if (Status status = store.Raise(missing); !status.ok()) return status;
    missing.clear();
  }
  if (!missing.empty()) {
    if (Status status = store.Raise(missing); !status.ok()) return status;
  }
  std::vector<FenceMember> unknown;
  for (const auto& [host, noted_member] : members.value()) {
    const FenceMember* const row = FindMember(view.value(), host);
    // The row is from before this host saw the member live, whatever it shows. A newer row shows
    // what became of the member after that.
    const bool is_older = row == nullptr || (row->state != MemberState::kLive &&
                                             IsOlderRun(row->run, noted_member.run));
    if (!is_older) continue;
    FenceMember& member = unknown.emplace_back();
    member.host = host;
    member.run = noted_member.run;
    member.silence = std::chrono::seconds(noted_member.silence_s);
  }
  return store.Admit(unknown);
}

// A raise that begins after the row says `live` waits for this host. This host notes earlier raises
// before it leases anything. Other hosts rely on this one once it has confirmed.
Status Fence::Join(FenceStore& store, HighWaterMarks& marks, const Arrival& arrival) {
  if (arrival.pushes_ceilings) {
    if (Status status = Push(store, marks); !status.ok()) return status;
  }
  if (Status status = WriteState(store, marks, MemberState::kLive); !status.ok()) return status;
  if (arrival.is_complete && arrival.pushes_ceilings) {
    // The marks were complete when this host came; they must also have been when others began to
    // wait for it.
    const Result<Membership> membership = marks.GetMembership();
    if (!membership.ok()) return membership.status();
    if (!IsComplete(membership.value())) {
      state_ = State::kWatching;
      contact_ms_ = settings_.now_ms();
      others_.Clear();
      return Status::Ok();
    }
  }
  // Takes an epoch of its own: a host that has noted it knows this member.
  if (Status status = store.Raise({}); !status.ok()) return status;
  noted_ = 0;
  was_put_out_ = false;
  const Result<FenceView> view = ReadView(store);
  if (!view.ok()) return view.status();
  if (was_put_out_) return {Code::kUnavailable, "this host was put out while it joined"};
  if (!arrival.pushes_ceilings && IsUnproven(arrival.proven_ms)) {
    return {Code::kUnavailable, "the server may have been set back while this host joined"};
  }
  joined_epoch_ = view.value().epoch;
  if (Status status = Note(marks, view.value()); !status.ok()) return status;
  is_known_ = others_.AllHaveNoted(joined_epoch_);
  if (Status status = Remember(store, marks, is_known_); !status.ok()) return status;
  confirmed_ms_ = looked_ms_;
  if (Status status = store.SetNoted(noted_); !status.ok()) return status;
  if (Status status = store.Confirm(); !status.ok()) return status;
  if (state_ == State::kWatching || state_ == State::kWaiting) {
    log::Info("fence.joined", {{"server", server_}});
  }
  state_ = State::kLive;
  looks_soon_ = false;
  was_replaced_ = false;
  return Status::Ok();
}

void Fence::Leave(FenceStore& store, HighWaterMarks& marks) {
  if (state_ != State::kLive) return;
  // The order matters: once no other host waits for this one, it must no longer trust its notes.
  if (!Remember(store, marks, false).ok()) return;
  static_cast<void>(WriteState(store, marks, MemberState::kLeft));
  state_ = State::kNone;
}

// The number is on the disk before the row has it: no two states of this host have the same one.
Status Fence::WriteState(FenceStore& store, HighWaterMarks& marks, MemberState state) const {
  const Result<std::uint64_t> number =
      marks.NextRunNumber(store.found().has_value() ? NumberOfRun(store.found()->run) : 0);
  if (!number.ok()) return number.status();
  return store.SetState(state, settings_.silence, number.value());
}

// --- looking

Result<FenceView> Fence::ReadView(FenceStore& store) {
  const std::int64_t sent_ms = settings_.now_ms();
  Result<FenceView> view = store.ReadFence(noted_);
  if (!view.ok()) return view;
  if (IsUnproven(looked_ms_)) others_.ForgetLooks();
  looked_ms_ = sent_ms;
  const FenceMember* const own = FindMember(view.value(), settings_.host);
  if (own == nullptr) {
    return Status(Code::kUnavailable,
                  "the row of host '" + settings_.host + "' is gone from the fence's members");
  }
  if (own->state == MemberState::kOut) was_put_out_ = true;
  others_.Track(view.value(), settings_.host, settings_.now_ms());
  return view;
}

// The notes go to the disk first: a row must not claim more than is on the disk.
Status Fence::Note(HighWaterMarks& marks, const FenceView& view) {
  if (!noted_members_.has_value()) {
    Result<HighWaterMarks::MemberList> known = marks.Members();
    if (!known.ok()) return known.status();
    noted_members_ = std::move(known).value();
  }
  HighWaterMarks::MemberList members;
  for (const FenceMember& member : view.members) {
    if (member.state != MemberState::kLive || member.host == settings_.host) continue;
    HighWaterMarks::NotedMember& noted = members[member.host];
    noted = {.silence_s = member.silence.count(), .run = member.run};
    const auto known = noted_members_->find(member.host);
    if (known != noted_members_->end() && !IsOlderRun(known->second.run, member.run)) {
      noted.run = known->second.run;
    }
  }
  if (*noted_members_ != members) {
    if (Status status = marks.SetMembers(members); !status.ok()) {
      return status.WithContext("the members of the fence cannot be noted");
    }
    noted_members_ = std::move(members);
  }
  if (!view.ceilings.empty()) {
    Status status = marks.NoteCeilings(MarksOf(view.ceilings));
    if (!status.ok()) return status.WithContext("ceilings cannot be noted");
  }
  ceilings_.Note(view);
  noted_ = view.epoch;
  return Status::Ok();
}

// For a member that is no longer live, the beat is the one that the next statement will leave.
Status Fence::Remember(const FenceStore& store, HighWaterMarks& marks, bool is_live) {
  Status status = marks.SetMembership({.is_live = is_live,
                                       .incarnation = incarnation_,
                                       .server = server_,
                                       .boot_id = settings_.boot_id,
                                       .confirmed_ms = looked_ms_,
                                       .beat = store.beat() + (is_live ? 0 : 1)});
  if (status.ok()) remembered_ms_ = looked_ms_;
  return status;
}

Result<bool> Fence::Refresh(FenceStore& store, HighWaterMarks& marks) {
  const std::int64_t now = settings_.now_ms();
  if (IsLate()) return false;
  if (now - looked_ms_ < LookAfterMs()) return true;
  if (Status status = marks.Flush(); !status.ok()) return status;
  const Result<FenceView> view = ReadView(store);
  if (!view.ok()) return view.status();
  if (state_ == State::kLive) return RefreshLive(store, marks, view.value());
  if (others_.OneIsLiveOn(server_) ||
      (state_ == State::kWaiting && others_.AllHaveComeTo(server_))) {
    if (Status status = Join(store, marks, {.proven_ms = looked_ms_}); !status.ok()) return status;
    return true;
  }
  return state_ == State::kWaiting || !HasWatched();
}

Result<bool> Fence::RefreshLive(FenceStore& store, HighWaterMarks& marks, const FenceView& view) {
  if (was_put_out_) {
    log::Error("fence.put_out", {{"server", server_}, {"action", "joins again"}});
    if (Status status = Remember(store, marks, false); !status.ok()) return status;
    return false;
  }
  if (IsLate()) return false;
  const std::uint64_t noted = noted_;
  if (Status status = Note(marks, view); !status.ok()) return status;
  if (noted_ != noted) {
    if (Status status = store.SetNoted(noted_); !status.ok()) return status;
  }
  confirmed_ms_ = looked_ms_;
  // Until all members know this host, its leases are below ceilings that all have noted, but
  // another data set may go on without it.
  const bool becomes_known = !is_known_ && others_.AllHaveNoted(joined_epoch_);
  if (becomes_known) is_known_ = true;
  if (becomes_known || confirmed_ms_ - remembered_ms_ > SilenceMs() / kRememberedIn) {
    if (Status status = Remember(store, marks, is_known_); !status.ok()) return status;
  }
  if (Status status = PutOutSilent(store); !status.ok()) return status;
  if (Status status = ActivatePending(store); !status.ok()) return status;
  return true;
}

std::int64_t Fence::LookAfterMs() const {
  if (!looks_soon_) return kLookEveryMs;
  const auto others = static_cast<std::int64_t>(others_.LiveMembers());
  return std::min(kLookSoonMs + kLookSoonForEachMs * others, kLookEveryMs);
}

bool Fence::IsLate() const {
  return state_ == State::kLive &&
         (IsUnproven(confirmed_ms_) || 2 * (settings_.now_ms() - confirmed_ms_) >= SilenceMs());
}

bool Fence::IsUnproven(std::int64_t proven_ms) const {
  return settings_.now_ms() - proven_ms >= kUnprovenMs;
}

bool Fence::HasWatched() const { return settings_.now_ms() - contact_ms_ >= kWatchMs; }

Status Fence::PutOutSilent(FenceStore& store) {
  const std::int64_t now = settings_.now_ms();
  for (auto& [host, seen] : others_.seen()) {
    // The longer of both hosts' settings, in case they differ.
    const std::int64_t silence_ms =
        std::chrono::milliseconds(std::max(seen.member.silence, settings_.silence)).count();
    if (!OtherHosts::IsMember(seen.member) || now - seen.since_ms < silence_ms) continue;
    const Result<bool> put = store.PutOut(seen.member);
    if (!put.ok()) return put.status();
    if (!put.value()) continue;
    seen.member.state = MemberState::kOut;
    log::Warning("fence.host_out", {{"host", host},
                                    {"silent_s", (now - seen.since_ms) / 1000},
                                    {"action", "ceilings are raised without it"}});
  }
  return Status::Ok();
}

// --- ceilings

Status Fence::ActivatePending(FenceStore& store) {
  const std::vector<std::string> tags = ceilings_.Activatable(others_);
  if (tags.empty()) return Status::Ok();
  const Result<std::vector<Ceiling>> rows = store.Activate(tags);
  if (!rows.ok()) return rows.status();
  ceilings_.TakeActive(tags, rows.value());
  if (ceilings_.pending() == 0) looks_soon_ = false;
  return Status::Ok();
}

Status Fence::RaiseAndNote(FenceStore& store, HighWaterMarks& marks,
                           const std::vector<CeilingRaise>& raises) {
  const Result<bool> raised = store.TryRaise(raises);
  if (!raised.ok()) return raised.status();
  if (!raised.value()) {
    // Hosts that start together need the same tags. The next look shows what was raised meanwhile.
    if (looked_ms_ - raises_after_ms_ > kAgainMs) vain_since_ms_ = looked_ms_;
    raises_after_ms_ = looked_ms_;
    looks_soon_ = true;
    return Status::Ok();
  }
  raises_after_ms_ = kNoLook;
  // The look also finds earlier raises of other hosts: a noted epoch stands for all epochs up to
  // it.
  const Result<FenceView> view = ReadView(store);
  if (!view.ok()) return view.status();
  if (was_put_out_) return {Code::kUnavailable, "this host was put out of the fence's members"};
  if (IsLate()) return {Code::kUnavailable, "this host was suspended; it joins again"};
  if (Status status = Note(marks, view.value()); !status.ok()) return status;
  for (const CeilingRaise& raise : raises) ceilings_.Await(raise);
  if (Status status = store.SetNoted(noted_); !status.ok()) return status;
  confirmed_ms_ = looked_ms_;
  return Status::Ok();
}

Status Fence::Cover(FenceStore& store, HighWaterMarks& marks, std::vector<Ceilings::Need>& needs) {
  const std::size_t pending = ceilings_.pending();
  const Ceilings::Horizon horizon = {
      .now_ms = settings_.now_ms(), .silence = settings_.silence, .others = others_.LiveMembers()};
  std::vector<CeilingRaise> raises;
  for (const Ceilings::Need& need : needs) {
    std::optional<CeilingRaise> raise = ceilings_.RaiseFor(need, horizon);
    if (raise.has_value()) raises.push_back(std::move(*raise));
  }
  if (looked_ms_ == raises_after_ms_) raises.clear();
  if (!raises.empty()) {
    if (Status status = RaiseAndNote(store, marks, raises); !status.ok()) return status;
  }
  if (!raises.empty() || ceilings_.pending() > pending) {
    if (Status status = ActivatePending(store); !status.ok()) return status;
  }
  for (Ceilings::Need& need : needs) {
    need.ceiling = std::max(need.ceiling, ceilings_.Active(need.tag));
    if (need.ceiling <= need.base && need.base <= need.last) looks_soon_ = true;
  }
  return Status::Ok();
}

// --- for people

bool Fence::IsHeldUp() const {
  return looked_ms_ - raises_after_ms_ <= kAgainMs &&
         raises_after_ms_ - vain_since_ms_ >= kHeldUpMs;
}

// Who is waited for, until when, and what to do. Only a host that may be off may be forgotten: a
// live one leases below ceilings that it has noted.
std::string Fence::AwaitedHosts() const {
  std::string hosts;
  std::int64_t left_ms = 0;
  bool may_be_off = false;
  for (const FenceWait& wait : Waits()) {
    hosts += (hosts.empty() ? "" : ", ") + wait.host;
    if (wait.silent_ms < kAliveMs) continue;
    hosts += " (silent for " + std::to_string(wait.silent_ms / 1000) + " s)";
    left_ms = std::max(left_ms, wait.left_ms.value_or(0));
    may_be_off |= wait.silent_ms >= kMayBeOffMs;
  }
  if (left_ms != 0) {
    hosts +=
        "; leasing goes on without silent hosts in " + std::to_string(left_ms / 1000 + 1) + " s";
  }
  if (may_be_off) {
    hosts += "; 'idctl host forget HOST' ends the wait for one that is off and stays off";
  }
  return hosts;
}

std::string Fence::Reason() const {
  const std::string hosts = AwaitedHosts();
  switch (state_) {
    case State::kWatching:
      return "this host is new, was stopped or cut off, or the database was replaced: idd looks "
             "for some seconds for hosts that know which ids are leased";
    case State::kWaiting:
      if (hosts.empty())
        return "the database may lack leases of other hosts; leasing waits for those hosts";
      return "the database may lack leases of other hosts; leasing waits for these hosts: " + hosts;
    case State::kNone:
      return "the fence has not been looked at yet";
    default:
      if (IsHeldUp()) {
        return "the ceilings cannot be raised, as another session holds a row of idd_ceiling "
               "locked; look for an open transaction on the server";
      }
      return "the tag's next ceiling waits until every host has noted it, which takes live hosts "
             "about a second; not noted yet by " +
             (hosts.empty() ? std::string("one that has just come") : hosts);
  }
}

FenceReport Fence::Report() const {
  FenceReport report;
  report.server = server_;
  report.state = state_ == State::kLive      ? "live"
                 : state_ == State::kWaiting ? "waiting"
                 : state_ == State::kNone    ? "none"
                                             : "watching";
  report.waits = Waits();
  const bool waits = state_ == State::kWatching || state_ == State::kWaiting;
  if (waits || !report.waits.empty() || IsHeldUp()) report.reason = Reason();
  return report;
}

std::vector<FenceWait> Fence::Waits() const {
  std::vector<FenceWait> waits;
  const std::int64_t now = settings_.now_ms();
  for (const auto& [host, seen] : others_.seen()) {
    const bool is_awaited =
        state_ == State::kLive
            ? ceilings_.pending() != 0 && seen.member.state == MemberState::kLive &&
                  seen.member.noted < noted_
            : OtherHosts::IsMember(seen.member) && !OtherHosts::HasComeTo(seen, server_);
    if (!is_awaited) continue;
    FenceWait& wait = waits.emplace_back();
    wait.host = host;
    wait.silent_ms = now - seen.since_ms;
    if (state_ == State::kLive) {
      wait.left_ms = std::max<std::int64_t>(SilenceMs() - wait.silent_ms, 0);
    }
  }
  return waits;
}

bool Fence::IsMember(const std::string& host) const {
  const auto it = others_.seen().find(host);
  return it != others_.seen().end() && OtherHosts::IsMember(it->second.member);
}

Status Fence::Forget(FenceStore& store, const std::string& host, bool is_forced) {
  if (host == settings_.host) {
    return {Code::kInvalid, "host '" + host + "' is this one; stop its idd instead"};
  }
  const auto it = others_.seen().find(host);
  if (it == others_.seen().end()) {
    return {Code::kInvalid, "host '" + host + "' is not known; 'idctl host list' shows the names"};
  }
  OtherHosts::Seen& seen = it->second;
  if (!OtherHosts::IsMember(seen.member)) {
    return {Code::kInvalid,
            "host '" + host + "' is not waited for: it " +
                (seen.member.state == MemberState::kLeft ? "has stopped" : "was put out before")};
  }
  const std::int64_t silent_ms = settings_.now_ms() - seen.since_ms;
  if (silent_ms < kAliveMs && !is_forced) {
    return {Code::kInvalid, "host '" + host + "' may be alive, it was seen " +
                                std::to_string(silent_ms / 1000) +
                                " s ago; stop it, or wait some seconds, or add --force"};
  }
  const Result<bool> put = store.PutOut(seen.member);
  if (!put.ok()) return put.status();
  if (!put.value()) return {Code::kInvalid, "host '" + host + "' is alive: it has just been seen"};
  seen.member.state = MemberState::kOut;
  log::Warning("fence.host_forgotten", {{"host", host}, {"silent_s", silent_ms / 1000}});
  return Status::Ok();
}

}  // namespace idd::daemon
