// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_HIGH_WATER_H_
#define IDD_DAEMON_LEASING_HIGH_WATER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "idd/base/status.h"
#include "store/store.h"

namespace idd::daemon {

// Beside the names of tags, which are never empty: every tag of this host.
inline constexpr const char* kWholeHost = "";

// What this host has of its last membership in a data set (fence.h).
struct Membership {
  bool is_live = false;           // what is noted has every ceiling, as far as `confirmed` goes
  std::string incarnation;        // of the data set
  std::string server;             // on which it was confirmed
  std::string boot_id;            // of the kernel whose clock `confirmed` is of
  std::int64_t confirmed_ms = 0;  // CLOCK_BOOTTIME: it was confirmed then, or later
  std::uint64_t beat = 0;         // of the own row then, or lower
};

// What this host must remember: per tag, a mark below which every id lies that it ever handed out
// or may be handing out; and the incarnation of the allocator that granted them. `high-water.db` in
// the state dir.
//
// So a mark is raised to a lease's limit before its segment is published, and may be lowered again
// to the first unclaimed id once the segment is drained. That is best done before the tail is
// handed back: what was drained is never handed out from that lease, whether the hand-back comes
// through or not, and a crash between the two then leaves no mark above max_id.
//
// Nothing is ever handed out from it: a mark only lifts the allocator (a cloned disk makes gaps).
//
// Thread safety: none; used on the lease worker's thread.
class HighWaterMarks {
 public:
  virtual ~HighWaterMarks() = default;
  HighWaterMarks(const HighWaterMarks&) = delete;
  HighWaterMarks& operator=(const HighWaterMarks&) = delete;

  // Opens or creates `<state_dir>/high-water.db`. kIncompatible when the file is corrupt or not
  // ours (it is left alone), kSystem otherwise. The members answer kUnavailable when the file
  // cannot be written now (full, locked, replaced): nothing may be published that the mark does not
  // cover.
  [[nodiscard]] static Result<std::unique_ptr<HighWaterMarks>> Open(const std::string& state_dir);

  // 0 when there is none. kInvalid, naming tag and column, when it makes no sense.
  [[nodiscard]] virtual Result<std::uint64_t> Get(const std::string& tag) = 0;
  [[nodiscard]] virtual Result<std::vector<TagMark>> All() = 0;
  // Those of the tags that this host was granted ids of.
  [[nodiscard]] virtual Result<std::vector<TagMark>> Own() = 0;
  // Durable on return, all or none; a mark lower than the present one changes nothing.
  [[nodiscard]] virtual Status RaiseAll(const std::vector<TagMark>& marks) = 0;
  [[nodiscard]] Status Raise(const std::string& tag, std::uint64_t mark) {
    return RaiseAll({{.tag = tag, .mark = mark}});
  }
  // Precondition: no id of the tag at or above `mark` was handed out, or will be before the next
  // Raise(). Durable on return; a mark higher than the present one changes nothing.
  [[nodiscard]] virtual Status Lower(const std::string& tag, std::uint64_t mark) = 0;

  // Empty until SetIncarnation was called.
  [[nodiscard]] virtual Result<std::string> Incarnation() = 0;
  [[nodiscard]] virtual Status SetIncarnation(const std::string& incarnation) = 0;
  // Where that was, Store::DisplayUrl(); empty until SetDatabase was called.
  [[nodiscard]] virtual Result<std::string> Database() = 0;
  [[nodiscard]] virtual Status SetDatabase(const std::string& display_url) = 0;

  // The highest ceiling that was noted, of each tag. No host was ever granted an id at or above it
  // while this one was a live member.
  [[nodiscard]] virtual Result<std::vector<TagMark>> Ceilings() = 0;
  // Durable on return; they never fall.
  [[nodiscard]] virtual Status NoteCeilings(const std::vector<TagMark>& ceilings) = 0;
  // From now on a tag's mark is at least its ceiling as it stands now, whatever Lower() says: the
  // data set may have lost what lies below. Durable on return.
  [[nodiscard]] virtual Status RaiseToCeilings() = 0;
  // The hosts that were live members when this one last looked, by name: their silence, and the
  // beat at which they were first seen as such.
  struct NotedMember {
    std::int64_t silence_s = 0;
    std::uint64_t beat = 0;
    friend bool operator==(const NotedMember&, const NotedMember&) = default;
  };
  using MemberList = std::map<std::string, NotedMember, std::less<>>;
  [[nodiscard]] virtual Result<MemberList> Members() = 0;
  // Durable on return.
  [[nodiscard]] virtual Status SetMembers(const MemberList& members) = 0;
  [[nodiscard]] virtual Result<Membership> GetMembership() = 0;
  // Durable on return.
  [[nodiscard]] virtual Status SetMembership(const Membership& membership) = 0;

  // Which list of held leases (HeldLeases::id) belongs to these marks; empty until SetHeldList()
  // was called. A list of another id is of an earlier run that another has overtaken.
  [[nodiscard]] virtual Result<std::string> HeldList() = 0;
  [[nodiscard]] virtual Status SetHeldList(const std::string& id) = 0;

  // What operators have drained on this host, until it is resumed: names of tags, and kWholeHost.
  // In no order.
  [[nodiscard]] virtual Result<std::vector<std::string>> Drained() = 0;
  // Durable on return. What is so already stays so.
  [[nodiscard]] virtual Status SetDrained(const std::string& scope, bool is_drained) = 0;

  // This host's random name, made on first use and kept: for machines without /etc/machine-id.
  [[nodiscard]] virtual Result<std::string> FallbackHostId() = 0;

 protected:
  HighWaterMarks() = default;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_HIGH_WATER_H_
