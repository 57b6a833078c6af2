// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_AGREEMENT_CEILINGS_H_
#define IDD_DAEMON_AGREEMENT_CEILINGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "store/term_store.h"

namespace idd::daemon {

// Room for leases of a tag: the first id and the size of the next one.
struct CeilingNeed {
  std::string tag{};
  std::uint64_t base = 0;
  std::uint64_t count = 0;
  std::uint64_t last = 0;     // the tag ends with this id
  std::uint64_t ceiling = 0;  // active
  std::uint64_t wanted = 0;
  // Windows of a snowflake tag go with the time, and a gap is time for which a worker id rests: a
  // few of them suffice.
  bool is_window = false;
  [[nodiscard]] bool Waits() const { return ceiling <= base && base <= last; }
};

// When this host asks for a higher ceiling of a tag, and for how much more: an hour of the rate at
// which all hosts together have leased it, so that no claim ever waits for a ceiling. A ceiling
// that is too high costs a gap if the data set is replaced, and one that is too low costs time;
// neither costs an id that comes twice.
//
// Pure. Thread safety: none.
class Ceilings {
 public:
  // The raise that the tag needs; nothing: what is wanted suffices.
  [[nodiscard]] std::optional<CeilingRaise> RaiseFor(const CeilingNeed& need, std::int64_t now_ms);
  // Another term: what was leased before says nothing of how fast ids go now.
  void Forget() { growth_.clear(); }

 private:
  struct Growth {
    std::uint64_t base = 0;   // at the last raise, or the first need
    std::int64_t at_ms = 0;   // time of that
    std::uint64_t ahead = 0;  // by how much the last raise was
  };
  std::map<std::string, Growth, std::less<>> growth_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_AGREEMENT_CEILINGS_H_
