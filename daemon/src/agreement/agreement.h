// SPDX-License-Identifier: Apache-2.0
//
// Keeps hosts from leasing ids again that a lost data set had granted to another host.
//
// A store can be replaced by one that lacks the last commits: a replica that lags is promoted, a
// dump is restored, two primaries are in use. A few hosts, the witnesses, keep a bound of all
// leases on their disks: every tag has a ceiling in the data set, no lease ends above it, and it is
// active only when a majority of the witnesses has it on disk, in the present term of the data set.
// Terms are those of Raft: a number that rises, promised on disk before it is used, and never
// returned to. docs/adr/0029 has the rules and why they suffice, tests/model/terms.pml the model.
#ifndef IDD_DAEMON_AGREEMENT_AGREEMENT_H_
#define IDD_DAEMON_AGREEMENT_AGREEMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agreement/ceilings.h"
#include "agreement/witness_choice.h"
#include "agreement/witness_notes.h"
#include "idd/base/status.h"
#include "store/term_store.h"

namespace idd::daemon {

struct AgreementSettings {
  std::string host;
  // Milliseconds of CLOCK_BOOTTIME, which continues while the machine is suspended.
  std::function<std::int64_t()> now_ms;
};
[[nodiscard]] std::int64_t BootTimeMs();

// A witness that something waits for.
struct WitnessWait {
  std::string host;
  std::uint64_t silent_s = 0;
  bool has_come = false;  // to the present term
  friend bool operator==(const WitnessWait&, const WitnessWait&) = default;
};

struct AgreementReport {
  std::string state = "none";  // "leasing", "waiting"; "none": the store has no terms
  std::string server;
  std::uint64_t term = 0;
  std::string begun_by;
  struct Witness {
    std::string host;
    std::uint64_t silent_s = 0;  // of a minute or more, in steps of ten seconds
    bool is_there = false;       // it has entered this term, and is not silent
    friend bool operator==(const Witness&, const Witness&) = default;
  };
  std::vector<Witness> witnesses;  // of the active list
  std::vector<std::string> next;   // hosts of the list that is to follow; empty: none is
  bool has_majority = false;
  bool is_witness = false;  // this host
  bool looks_soon = false;  // Look() is to be called five times a second
  std::string
      reason;  // why leasing waits, or ceilings cannot be raised, for people; empty: neither
  friend bool operator==(const AgreementReport&, const AgreementReport&) = default;
};

// One host's part in it. Any host leases below active ceilings, asks for higher ones, and checks in
// each lease's transaction that the term is the one it has read. A witness also begins terms,
// promises, pushes and notes, and activates what a majority has noted.
//
// A connection is proven when a witness's row was seen to move over it: a server may have been set
// back in place, with its identity, and a witness whose row is not as it left it never moves it.
//
// It has more members than a class should: the term, what is on the disk and what the row says are
// one invariant.
//
// Thread safety: none; the lease worker's thread.
class Agreement {
 public:
  Agreement() : Agreement(AgreementSettings{}) {}
  explicit Agreement(AgreementSettings settings);

  // The first step on a store that was opened, and whenever Look() says so: finds out the term and,
  // as a witness, begins, promises, pushes and enters. Ok does not mean that this host may lease.
  [[nodiscard]] Status Arrive(TermStore& store, WitnessNotes& notes,
                              const std::string& incarnation);
  // Looks at the data set if that is due. False: Arrive() must be called again.
  [[nodiscard]] Result<bool> Look(TermStore& store, WitnessNotes& notes);
  // Makes room for leases: asks for ceilings of tags that need them soon, and updates `ceiling` of
  // each need.
  [[nodiscard]] Status Cover(TermStore& store, WitnessNotes& notes,
                             std::vector<CeilingNeed>& needs);

  [[nodiscard]] bool may_lease() const noexcept { return is_current_ && is_proven_; }
  // Whether this host looked so long ago, because it was suspended, that the server may have been
  // set back meanwhile.
  [[nodiscard]] bool IsLate() const;
  // A lease was refused: the term may have changed.
  void LookSoon() { looks_soon_ = true; }
  // This host has found that the data set lacks what it had: the present term is to end.
  void Distrust() { distrusted_ = view_.row.term; }
  [[nodiscard]] const Term& term() const noexcept { return view_.row.term; }
  // For people: why this host may not lease, or why a ceiling is not active.
  [[nodiscard]] std::string Reason() const;
  // The witnesses that have not noted all that is wanted, or are silent.
  [[nodiscard]] std::vector<WitnessWait> Missing() const;
  [[nodiscard]] AgreementReport Report() const;
  // Of the data set, as it was written with the term.
  [[nodiscard]] const std::string& identity() const noexcept { return view_.row.identity; }

  // An operator names the witnesses, by host. The list follows once majorities of both agree.
  // kInvalid: not 1, 3 or 5 hosts, or one that does not run. `is_forced`: at once, without the
  // present ones, which are off for good.
  [[nodiscard]] Status SetWitnesses(TermStore& store, const std::vector<std::string>& hosts,
                                    bool is_forced);
  // This host stops. A witness hands over to another host, if there is one.
  void Leave(TermStore& store, WitnessNotes& notes);
  // The store was exchanged for another.
  void Reset();

 private:
  [[nodiscard]] Result<TermView> Read(TermStore& store, std::optional<std::uint64_t> noted);
  // One step of Arrive(). False: another look is needed.
  [[nodiscard]] Result<bool> Settle(TermStore& store, WitnessNotes& notes,
                                    const std::string& incarnation);
  [[nodiscard]] Result<bool> ShareList(TermStore& store, WitnessNotes& notes,
                                       const std::string& incarnation);
  [[nodiscard]] Result<bool> BeginTerm(TermStore& store, WitnessNotes& notes);
  [[nodiscard]] Status Promise(WitnessNotes& notes);
  [[nodiscard]] Result<bool> Enter(TermStore& store, WitnessNotes& notes);
  [[nodiscard]] bool IsDiskOlder() const;
  [[nodiscard]] Status TakeNewDisk(WitnessNotes& notes);
  // A witness's look. False: as Look().
  [[nodiscard]] Result<bool> Serve(TermStore& store, WitnessNotes& notes);
  [[nodiscard]] Status NoteWanted(WitnessNotes& notes);
  [[nodiscard]] Status NoteAtOnce(TermStore& store, WitnessNotes& notes);
  [[nodiscard]] Result<bool> FinishList(TermStore& store);
  [[nodiscard]] Status ChooseWitnesses(TermStore& store);
  [[nodiscard]] Result<bool> Ask(TermStore& store, std::vector<std::string> names);
  void Prove(const WitnessRow* own);
  [[nodiscard]] bool MustBegin() const;
  [[nodiscard]] std::string name() const { return WitnessName(settings_.host, disk_.disk); }
  [[nodiscard]] const WitnessRow* FindRow(const std::string& name) const;
  [[nodiscard]] std::int64_t LookAfterMs() const;
  // Epochs up to it are noted by a majority of each list that counts now.
  [[nodiscard]] std::uint64_t NotedByMajority() const;
  // Whether a majority of the list has, in this term, rows of which `is_so` holds.
  [[nodiscard]] bool HasMajority(const WitnessList& list,
                                 const std::function<bool(const WitnessRow&)>& is_so) const;

  AgreementSettings settings_;
  Ceilings ceilings_;
  CandidateWatch candidates_;
  WitnessState disk_;  // as it was read or written last
  TermView view_;      // the last look's
  std::uint64_t connection_ = 0;
  std::int64_t looked_ms_ = 0;                  // the last look was sent
  std::int64_t arrived_ms_ = 0;                 // first look over this connection
  std::int64_t saved_ms_ = 0;                   // the state was last written to the disk
  std::int64_t chose_ms_ = 0;                   // whether other witnesses are needed was last asked
  std::uint64_t beat_ = 0;                      // of this witness's row
  Term entered_{};                              // the term that `beat_` is of
  std::optional<std::int64_t> confirmed_ms_{};  // when that row was last written with a beat
  std::uint64_t activated_ = 0;                 // epochs up to it
  bool is_witness_ = false;
  bool is_current_ = false;     // the term is of this data set
  bool is_proven_ = false;      // the connection
  Term distrusted_{};           // the data set lacks what this host knows; none: of no term
  bool is_removed_ = false;     // its disk was not its own
  bool looks_soon_ = false;     // something waits
  bool arrives_again_ = false;  // other hosts have changed what the last look showed
  std::string refusal_;         // why the last raise was not done
  // Rows of other witnesses, when they were first seen over this connection.
  std::map<std::string, WitnessRow> seen_;
  std::map<std::string, std::uint64_t, std::less<>> bounded_;  // ceilings on disk, of own tags
};

// Epochs up to the result are noted by a majority of the list in the term.
[[nodiscard]] std::uint64_t NotedBy(const WitnessList& list, const Term& term,
                                    const std::vector<WitnessRow>& rows);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_AGREEMENT_AGREEMENT_H_
