// SPDX-License-Identifier: Apache-2.0
//
// What the hosts of one data set agree on there (agreement/agreement.h): its term, its witnesses,
// and up to where each tag may be leased. Only a store that can be replaced under its hosts has it.
#ifndef IDD_DAEMON_STORE_TERM_STORE_H_
#define IDD_DAEMON_STORE_TERM_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/status.h"
#include "store/lease.h"
#include "store/store.h"
#include "store/term.h"

namespace idd::daemon {

// The data set's own row.
struct TermRow {
  Term term{};
  std::string identity{};  // of the data set, as it was written with the term; empty: of none
  // The identity that was written with the term is that of this connection: the data set is the one
  // in which the term was begun, and has lacked no commit since.
  bool is_current = false;
  WitnessList active{};  // whose majority activates ceilings
  WitnessList wanted{};  // the list that is to follow; none: no change is under way
  [[nodiscard]] const WitnessList& newest() const {
    return wanted.IsNewerThan(active) ? wanted : active;
  }
};

// A witness's row.
struct WitnessRow {
  std::string name{};
  Term term{};              // it says nothing in any other
  std::uint64_t noted = 0;  // every wanted ceiling up to this epoch is on its disk
  WitnessList list{};       // the newest list on its disk
  std::uint64_t beat = 0;   // rises with every look whose connection is proven
  std::uint64_t silent_s = 0;
};

struct TermView {
  TermRow row;
  std::string server{};     // for people
  bool is_cluster = false;  // of several servers: no snapshot sets all of them back
  std::vector<WitnessRow> witnesses{};
  std::vector<TagMark> wanted{};  // ceilings of epochs above the requested one
  std::uint64_t epoch = 0;        // of the newest raise; `wanted` lacks none up to it
};

// What a host asks for. A ceiling stays as it is if at least `least` is wanted already: hosts that
// need the same tag at the same time ask for about the same.
struct CeilingRaise {
  std::string tag{};
  std::uint64_t wanted = 0;
  std::uint64_t least = 0;  // at most `wanted`
};

struct Ceiling {
  std::string tag{};
  std::uint64_t active = 0;  // in the present term
  std::uint64_t wanted = 0;
};

// A host that could be a witness.
struct Candidate {
  std::string name{};
  std::uint64_t silent_s = 0;
};

// Thread safety and errors: as Store. Every call needs an open store. Where it says "as found", the
// transaction checks that the data set still has the term, the identity and the lists of `found`;
// false: it has not, and nothing was done.
class TermStore {
 public:
  TermStore() = default;
  virtual ~TermStore() = default;
  TermStore(const TermStore&) = delete;
  TermStore& operator=(const TermStore&) = delete;

  // Differs for each connection.
  [[nodiscard]] virtual std::uint64_t connection() const = 0;
  // Ceilings above the epoch `noted`; nothing: none of them. From now on, leases are guarded by the
  // term that was read.
  [[nodiscard]] virtual Result<TermView> ReadTerm(std::optional<std::uint64_t> noted) = 0;
  // Writes a new term, with the identity of this connection, as found.
  [[nodiscard]] virtual Result<bool> BeginTerm(const TermRow& found, const Term& term,
                                               const WitnessList& active) = 0;
  // Says that the data set may lack commits: its identity becomes that of no connection, as found.
  [[nodiscard]] virtual Result<bool> VoidTerm(const TermRow& found) = 0;
  // Raises what may be in use of these tags, and their wanted ceilings, as found. No id below is
  // leased from now on.
  [[nodiscard]] virtual Result<bool> Push(const TermRow& found,
                                          const std::vector<TagMark>& notes) = 0;
  // Writes this host's row as a witness, as found, if the row is of an older term or has the beat
  // `was`. Preconditions: what the row says is on this host's disk.
  [[nodiscard]] virtual Result<bool> WriteWitness(const TermRow& found, const WitnessRow& row,
                                                  std::uint64_t was) = 0;
  // Asks for ceilings under a new epoch, and returns that. A ceiling that stays as it is keeps its
  // epoch. kTimeout: another session has a row locked.
  [[nodiscard]] virtual Result<std::uint64_t> Raise(const std::vector<CeilingRaise>& raises) = 0;
  // Of the tags that have one.
  [[nodiscard]] virtual Result<std::vector<Ceiling>> ReadCeilings(
      const std::vector<std::string>& tags) = 0;
  // Makes active what is wanted under the epochs above `after` up to `epoch`, as found.
  [[nodiscard]] virtual Result<bool> Activate(const TermRow& found, std::uint64_t after,
                                              std::uint64_t epoch) = 0;
  // Writes the lists, as found, unless a raise of an epoch above `epoch` is committed.
  [[nodiscard]] virtual Result<bool> SetLists(const TermRow& found, const WitnessList& active,
                                              const WitnessList& wanted, std::uint64_t epoch) = 0;
  // The hosts that run.
  [[nodiscard]] virtual Result<std::vector<Candidate>> ListCandidates() = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_TERM_STORE_H_
