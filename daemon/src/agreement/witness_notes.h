// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_AGREEMENT_WITNESS_NOTES_H_
#define IDD_DAEMON_AGREEMENT_WITNESS_NOTES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "idd/base/status.h"
#include "store/lease.h"
#include "store/term.h"

namespace idd::daemon {

// What a host keeps on its disk as a witness, beside the ceilings.
struct WitnessState {
  std::string disk{};         // random: another disk is another witness
  Term promise{};             // it takes part in no lower term
  std::uint64_t noted = 0;    // every wanted ceiling up to this epoch of `promise` is noted
  std::uint64_t beat = 0;     // its row in that term had at least this beat
  WitnessList active{};       // the newest list of witnesses that it has seen active ...
  WitnessList list{};         // ... and the newest one at all ...
  std::string incarnation{};  // ... in this data set, or a copy of it
  friend bool operator==(const WitnessState&, const WitnessState&) = default;
};

// A witness's disk. Thread safety: none; the lease worker's thread.
class WitnessNotes {
 public:
  WitnessNotes() = default;
  virtual ~WitnessNotes() = default;
  WitnessNotes(const WitnessNotes&) = delete;
  WitnessNotes& operator=(const WitnessNotes&) = delete;

  // Makes `disk` on first use.
  [[nodiscard]] virtual Result<WitnessState> GetWitnessState() = 0;
  // Durable on return.
  [[nodiscard]] virtual Status SetWitnessState(const WitnessState& state) = 0;
  // The highest noted ceiling of each tag.
  [[nodiscard]] virtual Result<std::vector<TagMark>> Ceilings() = 0;
  // Durable on return. A note never falls.
  [[nodiscard]] virtual Status NoteCeilings(const std::vector<TagMark>& ceilings) = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_AGREEMENT_WITNESS_NOTES_H_
