// SPDX-License-Identifier: Apache-2.0
#include "agreement/agreement.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <utility>

#include "platform/logging.h"
#include "platform/random.h"

namespace idd::daemon {
namespace {

// How often a witness looks, and any other host, and both while something waits.
constexpr std::int64_t kWitnessLooksMs = 1000;
constexpr std::int64_t kHostLooksMs = 2000;
constexpr std::int64_t kLooksSoonMs = 200;
// If this much passes between the sending of one look and the answer to the next, the server may
// have been set back in between, with its connections. What a look has shown is then no proof.
constexpr std::int64_t kUnprovenMs = 6000;
// How long a witness looks for another one whose connection is proven, before it begins a term.
// Three looks of the other one fit in.
constexpr std::int64_t kWatchMs = 3000;
// The disk's copy of the beat is at most so old.
constexpr std::int64_t kSaveBeatMs = 10'000;
constexpr std::int64_t kChooseEveryMs = 5000;
constexpr std::uint64_t kAnyEpoch = std::numeric_limits<std::int64_t>::max();
// Each begins with a new look. More are needed only if other hosts change the row all the time.
constexpr int kSteps = 12;
// Notes in one transaction.
constexpr std::size_t kAtOnce = 500;

Status TooManySteps() {
  return {Code::kUnavailable, "other hosts change the term or the witnesses at the same time"};
}

std::string InWords(const std::vector<WitnessWait>& waits) {
  std::string words;
  for (const WitnessWait& wait : waits) {
    words += (words.empty() ? "" : ", ") + wait.host;
    if (!wait.has_come) {
      words += " (has not come to this term)";
    } else if (wait.silent_s >= kSilentS) {
      words += " (silent for " + std::to_string(wait.silent_s) + " s)";
    }
  }
  return words;
}

// A running host renews its row every 20 s.
std::vector<Candidate> SeenLately(std::vector<Candidate> candidates) {
  constexpr std::uint64_t kLatelyS = 25;
  std::erase_if(candidates, [](const Candidate& one) { return one.silent_s >= kLatelyS; });
  return candidates;
}

}  // namespace

std::int64_t BootTimeMs() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

std::uint64_t NotedBy(const WitnessList& list, const Term& term,
                      const std::vector<WitnessRow>& rows) {
  std::vector<std::uint64_t> noted;
  for (const WitnessRow& row : rows) {
    if (row.term == term && list.Has(row.name)) noted.push_back(row.noted);
  }
  if (list.names.empty() || noted.size() < list.majority()) return 0;
  std::sort(noted.rbegin(), noted.rend());
  return noted[list.majority() - 1];
}

Agreement::Agreement(AgreementSettings settings) : settings_(std::move(settings)) {
  if (!settings_.now_ms) settings_.now_ms = BootTimeMs;
}

void Agreement::Reset() { *this = Agreement(std::move(settings_)); }

// --- arriving

Result<TermView> Agreement::Read(TermStore& store, std::optional<std::uint64_t> noted) {
  const std::int64_t sent_ms = settings_.now_ms();
  Result<TermView> view = store.ReadTerm(noted);
  if (!view.ok()) return view;
  if (settings_.now_ms() - looked_ms_ >= kUnprovenMs) connection_ = 0;  // what was seen is no proof
  looked_ms_ = sent_ms;
  return view;
}

Status Agreement::Arrive(TermStore& store, WitnessNotes& notes, const std::string& incarnation) {
  Result<WitnessState> disk = notes.GetWitnessState();
  if (!disk.ok()) return disk.status();
  disk_ = std::move(disk).value();
  is_current_ = false;
  arrives_again_ = false;
  for (int step = 0; step < kSteps; ++step) {
    Result<TermView> view = Read(store, std::nullopt);
    if (!view.ok()) return view.status();
    if (connection_ != store.connection()) {
      connection_ = store.connection();
      arrived_ms_ = settings_.now_ms();
      is_proven_ = false;
      seen_.clear();
    }
    if (view.value().row.term != view_.row.term) {
      activated_ = 0;
      ceilings_.Forget();
    }
    view_ = std::move(view).value();
    const Result<bool> settled = Settle(store, notes, incarnation);
    if (!settled.ok()) return settled.status();
    if (settled.value()) return is_witness_ ? NoteAtOnce(store, notes) : Status::Ok();
  }
  return TooManySteps();
}

Result<bool> Agreement::Settle(TermStore& store, WitnessNotes& notes,
                               const std::string& incarnation) {
  const Result<bool> shared = ShareList(store, notes, incarnation);
  if (!shared.ok() || !shared.value()) return shared;
  const TermRow& row = view_.row;
  const bool has_list = row.active.version != 0;
  is_witness_ = !is_removed_ && (!has_list || row.active.Has(name()) || row.wanted.Has(name()));
  is_current_ = row.is_current && row.term.number != 0 && row.term != distrusted_;
  if (!is_witness_) {
    if (row.is_current && !is_current_) {
      const Result<bool> is_void = store.VoidTerm(row);
      if (!is_void.ok()) return is_void;
    }
    Prove(nullptr);
    return true;
  }
  if (IsDiskOlder()) {
    if (Status status = TakeNewDisk(notes); !status.ok()) return status;
    return false;
  }
  if (!is_current_ || !has_list || row.term < disk_.promise) return BeginTerm(store, notes);
  if (row.term > disk_.promise) {
    if (Status status = Promise(notes); !status.ok()) return status;
  }
  const WitnessRow* const own = FindRow(name());
  if (own == nullptr) return Enter(store, notes);
  const bool is_set_back = own->beat < disk_.beat || (entered_ == row.term && own->beat < beat_);
  if (is_set_back) return BeginTerm(store, notes);
  Prove(own);
  if (entered_ != row.term) confirmed_ms_.reset();
  entered_ = row.term;
  beat_ = own->beat;
  return MustBegin() ? BeginTerm(store, notes) : Result<bool>(true);
}

// A list that was active in another copy of the data set suffices here, too, and is needed: the
// majority of an older one may know nothing of what it has noted. A newer list is wanted here, as
// it may be active elsewhere. The newest lists of the data set go to the disk. False: the data
// set's lists were changed.
Result<bool> Agreement::ShareList(TermStore& store, WitnessNotes& notes,
                                  const std::string& incarnation) {
  const TermRow& row = view_.row;
  if (row.active.version == 0) return true;  // BeginTerm() writes the one that is known
  const bool is_same = disk_.incarnation == incarnation;
  const bool is_in_it = disk_.active.Has(name()) || disk_.list.Has(name()) ||
                        row.active.Has(name()) || row.wanted.Has(name());
  WitnessState state = disk_;
  if (!is_same) state.active = state.list = WitnessList();
  if (row.active.IsNewerThan(state.active)) state.active = row.active;
  if (row.newest().IsNewerThan(state.list)) state.list = row.newest();
  state.incarnation = incarnation;
  const WitnessList wanted = state.list.IsNewerThan(state.active) ? state.list : WitnessList();
  if (is_in_it && (state.active != row.active || wanted != row.wanted)) {
    const Result<bool> set = store.SetLists(row, state.active, wanted, kAnyEpoch);
    if (!set.ok()) return set;
    return false;
  }
  if (state == disk_) return true;
  Status status = notes.SetWitnessState(state);
  if (!status.ok()) return status.WithContext("the list of witnesses cannot be kept");
  disk_ = std::move(state);
  return true;
}

// Rule 1. The number is on this disk before it is in a data set, and goes into one only: if the
// outcome is unknown, the next attempt takes another number. If another host was faster, the number
// is in no data set, and the promise is taken back: otherwise each of several hosts that begin at
// once would begin one term more.
Result<bool> Agreement::BeginTerm(TermStore& store, WitnessNotes& notes) {
  const TermRow& row = view_.row;
  const WitnessState before = disk_;
  disk_.promise = {.number = std::max(row.term.number, disk_.promise.number) + 1,
                   .witness = name()};
  disk_.noted = 0;
  disk_.beat = 0;
  if (Status status = notes.SetWitnessState(disk_); !status.ok()) {
    return status.WithContext("the next term cannot be promised");
  }
  WitnessList active = row.active;
  if (active.version == 0) active = disk_.active;
  if (active.version == 0) {
    active = {.version = 1, .asked_in = disk_.promise, .names = {name()}};
  }
  const Result<bool> begun = store.BeginTerm(row, disk_.promise, active);
  if (!begun.ok()) return begun;
  if (!begun.value()) {
    disk_ = before;
    Status status = notes.SetWitnessState(disk_);
    return status.ok() ? begun : Result<bool>(std::move(status));
  }
  is_proven_ = true;  // over this connection
  arrived_ms_ = settings_.now_ms();
  log::Warning("term.begun", {{"term", disk_.promise.number},
                              {"server", view_.server},
                              {"action", "every tag goes on above its ceiling, which is a gap"}});
  return false;
}

// Rule 2: the promise comes first, then the push, then the row.
Status Agreement::Promise(WitnessNotes& notes) {
  disk_.promise = view_.row.term;
  disk_.noted = 0;
  disk_.beat = 0;
  return notes.SetWitnessState(disk_).WithContext("the term cannot be promised");
}

Result<bool> Agreement::Enter(TermStore& store, WitnessNotes& notes) {
  const Result<std::vector<TagMark>> ceilings = notes.Ceilings();
  if (!ceilings.ok()) return ceilings.status();
  for (std::size_t begin = 0; begin < ceilings.value().size(); begin += kAtOnce) {
    const auto first = ceilings.value().begin() + static_cast<std::ptrdiff_t>(begin);
    const auto left = static_cast<std::size_t>(ceilings.value().end() - first);
    const auto count = static_cast<std::ptrdiff_t>(std::min(left, kAtOnce));
    const Result<bool> pushed = store.Push(view_.row, {first, first + count});
    if (!pushed.ok()) return pushed;
    if (!pushed.value()) return false;
  }
  const WitnessRow row = {.name = name(), .term = view_.row.term, .list = disk_.list, .beat = 1};
  const Result<bool> written = store.WriteWitness(view_.row, row, 0);
  if (!written.ok()) return written;
  if (written.value()) {
    entered_ = view_.row.term;
    beat_ = 1;
    confirmed_ms_.reset();
    log::Info("term.entered", {{"term", view_.row.term.number},
                               {"begun_by", HostOfWitness(view_.row.term.witness)},
                               {"notes", ceilings.value().size()}});
  }
  return false;
}

// The row, of whatever term, says more than the disk: the disk is a copy, or was restored.
bool Agreement::IsDiskOlder() const {
  return std::any_of(view_.witnesses.begin(), view_.witnesses.end(), [this](const auto& row) {
    const bool is_beyond =
        row.term > disk_.promise || (row.term == disk_.promise && row.noted > disk_.noted);
    return row.name == name() && is_beyond;
  });
}

// What an older disk lacks may be what a majority relied on, so it is not that witness any more.
Status Agreement::TakeNewDisk(WitnessNotes& notes) {
  log::Error("witness.disk_is_older",
             {{"witness", name()},
              {"noted", disk_.noted},
              {"action", "this host is no witness any more; after a restart it can be another"}});
  is_removed_ = true;
  WitnessState fresh = disk_;
  fresh.disk = RandomToken().substr(0, kDiskIdSize);
  return notes.SetWitnessState(fresh).WithContext("the witness's state");
}

// A server's machine that is set back to a snapshot has its identity and its connections. A witness
// that looks over a connection that is proven finds its row as it left it a moment ago, or does not
// move it. So a row that moves proves this connection, too. In a cluster, this witness's own row is
// proof whenever it was left.
void Agreement::Prove(const WitnessRow* own) {
  const bool was_a_moment_ago =
      confirmed_ms_.has_value() && settings_.now_ms() - *confirmed_ms_ < kUnprovenMs;
  const bool shows_all = was_a_moment_ago || view_.is_cluster;
  if (own != nullptr && entered_ == own->term && shows_all) is_proven_ = true;
  for (const WitnessRow& row : view_.witnesses) {
    if (row.term != view_.row.term || row.name == name()) continue;
    const auto [it, is_first] = seen_.try_emplace(row.name, row);
    if (it->second.term != row.term) it->second = row;
    if (row.beat > it->second.beat) is_proven_ = true;
  }
}

bool Agreement::MustBegin() const {
  if (is_proven_) return false;
  const bool is_alone = view_.row.active.names.size() == 1 && view_.row.active.Has(name());
  return is_alone || settings_.now_ms() - arrived_ms_ >= kWatchMs;
}

// --- looking

Result<bool> Agreement::Look(TermStore& store, WitnessNotes& notes) {
  if (IsLate() || arrives_again_) return false;
  if (settings_.now_ms() - looked_ms_ < LookAfterMs()) return true;
  const bool serves = is_witness_ && entered_ == view_.row.term;
  Result<TermView> view = Read(store, serves ? std::optional(disk_.noted) : std::nullopt);
  if (!view.ok()) return view.status();
  const TermRow& before = view_.row;
  const TermRow& row = view.value().row;
  const bool is_same = connection_ == store.connection() && row.term == before.term &&
                       row.is_current == before.is_current && row.active == before.active &&
                       row.wanted == before.wanted && is_current_ == row.is_current;
  if (!is_same) return false;  // Arrive() has to see what has changed
  view_ = std::move(view).value();
  looks_soon_ = false;
  if (serves) return Serve(store, notes);
  Prove(nullptr);
  return !is_witness_;
}

std::int64_t Agreement::LookAfterMs() const {
  if (looks_soon_ || !may_lease()) return kLooksSoonMs;
  return is_witness_ ? kWitnessLooksMs : kHostLooksMs;
}

bool Agreement::IsLate() const {
  return may_lease() && settings_.now_ms() - looked_ms_ >= kUnprovenMs;
}

Result<bool> Agreement::Serve(TermStore& store, WitnessNotes& notes) {
  const WitnessRow* const own = FindRow(name());
  if (own == nullptr || own->beat != beat_) return false;
  Prove(own);
  if (MustBegin()) return false;
  if (Status status = NoteWanted(notes); !status.ok()) return status;
  WitnessRow row = {.name = name(),
                    .term = view_.row.term,
                    .noted = disk_.noted,
                    .list = disk_.list,
                    .beat = beat_ + (is_proven_ ? 1 : 0)};
  const bool is_news = row.noted != own->noted || row.list != own->list || row.beat != own->beat;
  if (is_news) {
    const Result<bool> written = store.WriteWitness(view_.row, row, beat_);
    if (!written.ok() || !written.value()) return written;
    beat_ = row.beat;
    if (is_proven_) confirmed_ms_ = looked_ms_;
    for (WitnessRow& shown : view_.witnesses) {
      if (shown.name == row.name) shown = row;
    }
  }
  const std::uint64_t noted = NotedByMajority();
  if (noted > activated_) {
    const Result<bool> activated = store.Activate(view_.row, activated_, noted);
    if (!activated.ok() || !activated.value()) return activated;
    activated_ = noted;
  }
  const bool changes = view_.row.wanted.version != 0;
  looks_soon_ = activated_ < view_.epoch || changes;
  if (changes) return FinishList(store);
  Status status = ChooseWitnesses(store);
  return status.ok() ? Result<bool>(true) : Result<bool>(std::move(status));
}

// Rule 3: the disk first. The row, which says so, is written afterwards and checks the term.
Status Agreement::NoteWanted(WitnessNotes& notes) {
  WitnessState state = disk_;
  state.noted = std::max(state.noted, view_.epoch);
  if (view_.row.active.IsNewerThan(state.active)) state.active = view_.row.active;
  if (view_.row.newest().IsNewerThan(state.list)) state.list = view_.row.newest();
  if (settings_.now_ms() - saved_ms_ >= kSaveBeatMs) state.beat = beat_;
  if (state == disk_) return Status::Ok();
  if (!view_.wanted.empty()) {
    Status status = notes.NoteCeilings(view_.wanted);
    if (!status.ok()) return status.WithContext("ceilings cannot be noted");
  }
  Status status = notes.SetWitnessState(state);
  if (!status.ok()) return status.WithContext("ceilings cannot be noted");
  saved_ms_ = settings_.now_ms();
  disk_ = std::move(state);
  return Status::Ok();
}

// Rule 4. As long as another list is wanted, a ceiling needs a majority of both.
std::uint64_t Agreement::NotedByMajority() const {
  const TermRow& row = view_.row;
  const std::uint64_t noted = NotedBy(row.active, row.term, view_.witnesses);
  if (row.wanted.version == 0) return noted;
  return std::min(noted, NotedBy(row.wanted, row.term, view_.witnesses));
}

bool Agreement::HasMajority(const WitnessList& list,
                            const std::function<bool(const WitnessRow&)>& is_so) const {
  const auto count = static_cast<std::size_t>(
      std::count_if(list.names.begin(), list.names.end(), [&](const std::string& witness) {
        const WitnessRow* const row = FindRow(witness);
        return row != nullptr && is_so(*row);
      }));
  return !list.names.empty() && count >= list.majority();
}

// The wanted list becomes active once majorities of both know it, and one of its own has noted all
// that is wanted: what the old list alone has noted must be known to the new one. A list that was
// asked for in another term is asked for again first, once a majority of the active list is here
// and knows no newer one: so of two lists that were asked for in different copies of the data set,
// no witness takes the one that was not agreed for the newer one.
Result<bool> Agreement::FinishList(TermStore& store) {
  const TermRow& row = view_.row;
  if (row.wanted.asked_in != row.term) {
    const bool may_ask = HasMajority(
        row.active, [&row](const auto& one) { return !one.list.IsNewerThan(row.wanted); });
    if (!may_ask) return true;
    WitnessList again = row.wanted;
    again.asked_in = row.term;
    const Result<bool> set = store.SetLists(row, row.active, again, kAnyEpoch);
    if (!set.ok()) return set;
    return false;
  }
  const auto knows = [&row](const WitnessRow& one) { return one.list == row.wanted; };
  const bool is_agreed = HasMajority(row.active, knows) && HasMajority(row.wanted, knows) &&
                         NotedBy(row.wanted, row.term, view_.witnesses) >= view_.epoch;
  if (!is_agreed) return true;
  const Result<bool> set = store.SetLists(row, row.wanted, WitnessList(), view_.epoch);
  if (!set.ok()) return set;
  if (set.value()) log::Info("witness.list", {{"witnesses", row.wanted.Text()}});
  return false;
}

// --- the witnesses

Status Agreement::ChooseWitnesses(TermStore& store) {
  const WitnessList& active = view_.row.active;
  const std::int64_t now_ms = settings_.now_ms();
  if (!is_proven_ || !active.Has(name()) || now_ms - chose_ms_ < kChooseEveryMs) {
    return Status::Ok();
  }
  chose_ms_ = now_ms;
  const bool one_is_silent = std::any_of(
      view_.witnesses.begin(), view_.witnesses.end(),
      [&active](const auto& row) { return active.Has(row.name) && row.silent_s >= kSilentS; });
  if (active.names.size() >= kChosenWitnesses && !one_is_silent) return Status::Ok();
  const Result<std::vector<Candidate>> candidates = store.ListCandidates();
  if (!candidates.ok()) return candidates.status();
  candidates_.Note(candidates.value(), now_ms);
  const auto next = ChooseNext(active, view_.witnesses, candidates_.Steady(now_ms));
  return next.has_value() ? Ask(store, *next).status() : Status::Ok();
}

// A new list is asked for only if no other one is known to a majority of the present witnesses:
// that one may be active in another data set.
Result<bool> Agreement::Ask(TermStore& store, std::vector<std::string> names) {
  const TermRow& row = view_.row;
  const bool may_ask =
      is_current_ && row.wanted.version == 0 && HasMajority(row.active, [&row](const auto& one) {
        return one.silent_s < kSilentS && !one.list.IsNewerThan(row.active);
      });
  if (!may_ask || names == row.active.names) return false;
  const WitnessList next = {
      .version = row.active.version + 1, .asked_in = row.term, .names = std::move(names)};
  Result<bool> set = store.SetLists(row, row.active, next, kAnyEpoch);
  if (set.ok() && set.value()) log::Info("witness.list_wanted", {{"witnesses", next.Text()}});
  return set;
}

Status Agreement::SetWitnesses(TermStore& store, const std::vector<std::string>& hosts,
                               bool is_forced) {
  if (hosts.empty() || hosts.size() > kMostWitnesses || hosts.size() % 2 == 0) {
    return {Code::kInvalid, "name 1, 3 or 5 hosts: a majority of them must be there"};
  }
  const Result<std::vector<Candidate>> candidates = store.ListCandidates();
  if (!candidates.ok()) return candidates.status();
  std::vector<std::string> names;
  for (const std::string& host : hosts) {
    const auto found =
        std::find_if(candidates.value().begin(), candidates.value().end(),
                     [&host](const Candidate& one) { return HostOfWitness(one.name) == host; });
    if (found == candidates.value().end() || found->silent_s >= kSilentS) {
      return {Code::kInvalid,
              "host '" + host + "' does not run; 'idctl host list' shows the hosts"};
    }
    names.push_back(found->name);
  }
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) {
    return {Code::kInvalid, "a host is named twice"};
  }
  const TermRow& row = view_.row;
  if (row.term.number == 0) return {Code::kUnavailable, "no term was begun yet"};
  if (!is_forced) {
    if (names == row.newest().names) return Status::Ok();
    const Result<bool> asked = Ask(store, names);
    if (!asked.ok() || asked.value()) return asked.status();
    return {Code::kInvalid,
            "a majority of the present witnesses is not there, or another change is under way: " +
                InWords(Missing()) + "; if they are off for good, add --force"};
  }
  const WitnessList next = {
      .version = row.newest().version + 1, .asked_in = row.term, .names = std::move(names)};
  const Result<bool> set = store.SetLists(row, next, WitnessList(), kAnyEpoch);
  if (!set.ok()) return set.status();
  if (!set.value()) return TooManySteps();
  log::Warning("witness.list_forced", {{"was", row.active.Text()}, {"is", next.Text()}});
  return Status::Ok();
}

void Agreement::Leave(TermStore& store, WitnessNotes& notes) {
  if (!is_witness_ || !may_lease() || entered_ != view_.row.term) return;
  const Result<std::vector<Candidate>> candidates = store.ListCandidates();
  if (candidates.ok() && view_.row.active.Has(name())) {
    candidates_.Clear();
    candidates_.Note(SeenLately(candidates.value()), settings_.now_ms());
    const auto next = ChooseWithout(view_.row.active, name(), candidates_.There());
    if (next.has_value() && Ask(store, *next).ok()) {
      // The others can finish the change without this host once its row knows the list.
      Result<TermView> view = Read(store, disk_.noted);
      if (view.ok()) {
        view_ = std::move(view).value();
        static_cast<void>(Serve(store, notes));
      }
    }
  }
  disk_.beat = beat_;
  static_cast<void>(notes.SetWitnessState(disk_));
}

// --- ceilings

Status Agreement::Cover(TermStore& store, WitnessNotes& notes, std::vector<CeilingNeed>& needs) {
  const std::int64_t now_ms = settings_.now_ms();
  std::vector<CeilingRaise> raises;
  for (const CeilingNeed& need : needs) {
    std::optional<CeilingRaise> raise = ceilings_.RaiseFor(need, now_ms);
    if (raise.has_value()) raises.push_back(std::move(*raise));
  }
  refusal_.clear();
  if (!raises.empty()) {
    const Result<std::uint64_t> epoch = store.Raise(raises);
    if (epoch.status().code() == Code::kTimeout) {
      refusal_ = epoch.status().message();
    } else if (!epoch.ok()) {
      return epoch.status();
    } else if (!is_witness_) {
      looks_soon_ = true;
      view_.epoch = std::max(view_.epoch, epoch.value());  // who has not noted it is missing
    } else {
      looks_soon_ = true;
      if (Status status = NoteAtOnce(store, notes); !status.ok()) return status;
      for (CeilingNeed& need : needs) {
        const auto raise = std::find_if(raises.begin(), raises.end(),
                                        [&need](const auto& one) { return one.tag == need.tag; });
        const bool is_active = raise != raises.end() && activated_ >= epoch.value();
        if (is_active) need.ceiling = std::max(need.ceiling, raise->least);
      }
    }
  }
  // Also on a host that is no witness: if the database is lost and created again, this host lifts
  // it to what others may have been granted (Recover()).
  std::vector<TagMark> bounds;
  for (const CeilingNeed& need : needs) {
    std::uint64_t& bounded = bounded_[need.tag];
    if (need.ceiling <= bounded) continue;
    bounded = need.ceiling;
    bounds.push_back({.tag = need.tag, .mark = need.ceiling});
  }
  return bounds.empty() ? Status::Ok() : notes.NoteCeilings(bounds);
}

// A witness need not wait for its next look.
Status Agreement::NoteAtOnce(TermStore& store, WitnessNotes& notes) {
  if (entered_ != view_.row.term) return Status::Ok();
  Result<TermView> view = Read(store, disk_.noted);
  if (!view.ok()) return view.status();
  // What another data set wants must not be noted under this term, whose epochs are others.
  const TermRow& row = view.value().row;
  const bool is_same = row.term == view_.row.term && row.is_current && is_current_ &&
                       connection_ == store.connection();
  if (!is_same) {
    arrives_again_ = true;
    return Status::Ok();
  }
  view_.witnesses = std::move(view.value().witnesses);
  view_.wanted = std::move(view.value().wanted);
  view_.epoch = view.value().epoch;
  const Result<bool> served = Serve(store, notes);
  if (!served.ok()) return served.status();
  arrives_again_ = !served.value();
  return Status::Ok();
}

// --- for people

const WitnessRow* Agreement::FindRow(const std::string& name) const {
  const auto it = std::find_if(
      view_.witnesses.begin(), view_.witnesses.end(),
      [&](const WitnessRow& row) { return row.name == name && row.term == view_.row.term; });
  return it == view_.witnesses.end() ? nullptr : &*it;
}

std::vector<WitnessWait> Agreement::Missing() const {
  std::vector<std::string> names = view_.row.active.names;
  for (const std::string& name : view_.row.wanted.names) {
    if (!view_.row.active.Has(name)) names.push_back(name);
  }
  std::vector<WitnessWait> missing;
  for (const std::string& witness : names) {
    const WitnessRow* const row = FindRow(witness);
    const bool is_there =
        row != nullptr && row->noted >= view_.epoch && row->silent_s < kSilentS && is_current_;
    if (is_there) continue;
    missing.push_back({.host = HostOfWitness(witness),
                       .silent_s = row == nullptr ? 0 : row->silent_s,
                       .has_come = row != nullptr});
  }
  return missing;
}

std::string Agreement::Reason() const {
  if (view_.row.term.number == 0) return "no term was begun yet";
  const std::string missing = InWords(Missing());
  const std::string witnesses = missing.empty() ? "" : "; witnesses that are missing: " + missing;
  if (!is_current_) {
    return "the database has changed: its server was started again, another one answers, or tables "
           "were restored; leasing waits until a witness begins the next term" +
           witnesses;
  }
  if (!is_proven_) {
    return "idd has connected a moment ago and waits for a sign of life of a witness" + witnesses;
  }
  if (!refusal_.empty()) return "a ceiling cannot be raised: " + refusal_;
  return "the tag's next ceiling waits until a majority of the witnesses has noted it" + witnesses;
}

AgreementReport Agreement::Report() const {
  AgreementReport report;
  if (view_.row.term.number == 0) return report;
  report.state = may_lease() ? "leasing" : "waiting";
  report.server = view_.server;
  report.term = view_.row.term.number;
  report.is_witness = is_witness_;
  report.begun_by = HostOfWitness(view_.row.term.witness);
  for (const std::string& witness : view_.row.active.names) {
    const auto any = std::find_if(view_.witnesses.begin(), view_.witnesses.end(),
                                  [&witness](const auto& row) { return row.name == witness; });
    const bool is_known = any != view_.witnesses.end();
    const bool is_silent = is_known && any->silent_s >= kSilentS;
    report.witnesses.push_back({.host = HostOfWitness(witness),
                                .silent_s = is_silent ? any->silent_s / 10 * 10 : 0,
                                .is_there = is_known && !is_silent && any->term == view_.row.term});
  }
  for (const std::string& witness : view_.row.wanted.names) {
    report.next.push_back(HostOfWitness(witness));
  }
  report.looks_soon = LookAfterMs() == kLooksSoonMs;
  report.has_majority =
      HasMajority(view_.row.active, [](const auto& row) { return row.silent_s < kSilentS; });
  if (!may_lease() || !report.has_majority || !refusal_.empty()) report.reason = Reason();
  return report;
}

}  // namespace idd::daemon
