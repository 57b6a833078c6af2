// SPDX-License-Identifier: Apache-2.0
//
// What this host asks of the tags' ceilings (fence.h), and what it waits for. It decides when a
// ceiling is raised and by how much, so it holds no invariant of the fence: the store activates a
// ceiling only when all live members have noted it.
#ifndef IDD_DAEMON_LEASING_CEILINGS_H_
#define IDD_DAEMON_LEASING_CEILINGS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "leasing/other_hosts.h"
#include "store/fence_store.h"

namespace idd::daemon {

// Thread safety: none; the lease worker's thread.
class Ceilings {
 public:
  // Room for leases of a tag: the first id and the size of the next one.
  struct Need {
    std::string tag;
    std::uint64_t base = 0;
    std::uint64_t count = 0;
    std::uint64_t last = 0;  // the tag ends with this id
    std::uint64_t ceiling = 0;
  };
  struct Horizon {
    std::int64_t now_ms = 0;
    std::chrono::seconds silence{0};  // for which no ceiling is raised after a host has gone silent
    std::size_t others = 0;           // live members beside this host
  };

  // Another data set: what was wanted in the last one says nothing.
  void Forget();
  // What a look has shown, once it is noted.
  void Note(const FenceView& view);
  // The raise that the tag needs. Nothing: what is wanted already suffices; the tag is then pending
  // if what is active does not. A raise that is not done may be asked for again.
  [[nodiscard]] std::optional<CeilingRaise> RaiseFor(const Need& need, const Horizon& horizon);
  // The raise that RaiseFor() returned last for its tag is committed and noted.
  void Await(const CeilingRaise& raise);

  [[nodiscard]] std::size_t pending() const noexcept { return pending_.size(); }
  // The pending tags whose ceilings all live members have noted.
  [[nodiscard]] std::vector<std::string> Activatable(const OtherHosts& others) const;
  // `rows`: the ceilings of `tags` after an activation.
  void TakeActive(const std::vector<std::string>& tags, const std::vector<Ceiling>& rows);
  // The tag's active ceiling, as far as the last activation has shown.
  [[nodiscard]] std::uint64_t Active(const std::string& tag) const;

 private:
  struct Growth {
    std::uint64_t base = 0;   // at the last raise, or the first need of this data set
    std::int64_t at_ms = 0;   // time of that; 0: no need yet
    double rate = 0;          // ids per second before it
    std::uint64_t ahead = 0;  // by how much the last raise was
  };
  // A ceiling that this host has noted, and an epoch that is not below its own.
  struct Wanted {
    std::uint64_t ceiling = 0;
    std::uint64_t epoch = 0;
    std::uint64_t pushed = 0;
  };
  // What the tag's growth is if it is raised now.
  [[nodiscard]] Growth Grown(const Need& need, Growth growth, const Horizon& horizon) const;

  std::map<std::string, Growth, std::less<>> growth_;
  std::map<std::string, Growth, std::less<>> asked_;          // by raises that may be done next
  std::map<std::string, Wanted, std::less<>> wanted_;         // by any host, of each tag
  std::set<std::string, std::less<>> pending_;                // tags that need what is wanted
  std::map<std::string, std::uint64_t, std::less<>> active_;  // of tags that were pending
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_CEILINGS_H_
