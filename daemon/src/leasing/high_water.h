// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_HIGH_WATER_H_
#define IDD_DAEMON_LEASING_HIGH_WATER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agreement/witness_notes.h"
#include "idd/base/status.h"
#include "store/store.h"

namespace idd::daemon {

// The scope of every tag of this host. Names of tags are never empty.
inline constexpr const char* kWholeHost = "";

// `high-water.db` in the state dir: what this host must remember. Per tag it has a mark; every id
// that this host ever handed out, or may be handing out, lies below the mark. It also has the
// incarnation of the allocator that granted the ids.
//
// So a mark is raised to a lease's limit before its segment is published.
//
// A mark may be lowered again to the first unclaimed id once the segment is drained. Lower it
// before the tail is handed back: drained ids are never handed out from that lease, whether or not
// the hand-back succeeds, and a crash between the two then leaves no mark above max_id.
//
// No id is ever handed out from this file: a mark only lifts the allocator (a cloned disk makes
// gaps).
//
// Thread safety: none; used on the lease worker's thread.
class HighWaterMarks : public WitnessNotes {
 public:
  // Opens or creates `<state_dir>/high-water.db`. kIncompatible when the file is corrupt or not
  // ours (it is left alone), kSystem otherwise. The member functions return kUnavailable when
  // the file cannot be written now (full, locked, replaced): nothing may be published that the mark
  // does not cover.
  [[nodiscard]] static Result<std::unique_ptr<HighWaterMarks>> Open(const std::string& state_dir);

  // 0 if there is none. kInvalid, naming tag and column, if the row is invalid.
  [[nodiscard]] virtual Result<std::uint64_t> Get(const std::string& tag) = 0;
  [[nodiscard]] virtual Result<std::vector<TagMark>> All() = 0;
  // Durable on return, all marks or none. A mark below the present one changes nothing.
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
  // The Store::DisplayUrl() of that data set; empty until SetDatabase was called.
  [[nodiscard]] virtual Result<std::string> Database() = 0;
  [[nodiscard]] virtual Status SetDatabase(const std::string& display_url) = 0;

  // A number for this run: higher than those of all earlier runs on this file. Durable on return.
  [[nodiscard]] virtual Result<std::uint64_t> NextRunNumber() = 0;

  // The list of held leases (HeldLeases::id) that belongs to these marks; empty until SetHeldList()
  // was called. A list with another id is from an earlier run and out of date.
  [[nodiscard]] virtual Result<std::string> HeldList() = 0;
  [[nodiscard]] virtual Status SetHeldList(const std::string& id) = 0;

  // The scopes that operators have drained on this host and not resumed: names of tags, and
  // kWholeHost. In no particular order.
  [[nodiscard]] virtual Result<std::vector<std::string>> Drained() = 0;
  // Durable on return. Idempotent.
  [[nodiscard]] virtual Status SetDrained(const std::string& scope, bool is_drained) = 0;

  // This host's random name, made on first use and kept: for machines without /etc/machine-id.
  [[nodiscard]] virtual Result<std::string> FallbackHostId() = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_HIGH_WATER_H_
