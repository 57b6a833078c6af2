// SPDX-License-Identifier: Apache-2.0
//
// What the hosts of one data set agree on, as the fence (fence.h) sees it: who is a member, and up
// to where each tag may be leased. Only a store that can be replaced under its hosts has this.
#ifndef IDD_DAEMON_STORE_FENCE_STORE_H_
#define IDD_DAEMON_STORE_FENCE_STORE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idd/base/status.h"

namespace idd::daemon {

// How long a host may be silent before the others go on without it.
inline constexpr std::chrono::seconds kDefaultFenceAfter(600);
inline constexpr std::chrono::seconds kMinFenceAfter(5);
inline constexpr std::chrono::seconds kMaxFenceAfter(7 * 24 * 3600);

// kLive: no ceiling is activated that this host has not noted. The others are not waited for:
// kWaiting: it has come, and does not lease yet. kOut: it was silent for too long, or an operator
// has forgotten it. kLeft: it stopped.
enum class MemberState { kLive, kWaiting, kOut, kLeft };
[[nodiscard]] const char* MemberStateName(MemberState state) noexcept;  // "live", ...
[[nodiscard]] std::optional<MemberState> ParseMemberState(std::string_view name) noexcept;

// A host's row.
struct FenceMember {
  std::string host;
  std::string run;          // random, of one run of its idd
  std::uint64_t beat = 0;   // rises with every look
  std::uint64_t noted = 0;  // every ceiling of an epoch up to it is on the host's disk
  MemberState state = MemberState::kLeft;
  std::string server;               // on which it has confirmed what it knows; empty: on none yet
  std::chrono::seconds silence{0};  // after which others may put it out
};

// No lease of the tag ends above `active`. `wanted` becomes `active` once every live member has
// noted it. Neither ever falls.
struct Ceiling {
  std::string tag;
  std::uint64_t active = 0;
  std::uint64_t wanted = 0;
  std::uint64_t pushed = 0;  // a host that came to a replaced data set knew: all below may be used
};

struct FenceView {
  std::string server;  // that has answered: a server's name, or a cluster's
  std::vector<FenceMember> members;
  std::vector<Ceiling> ceilings;  // of the epochs above the one that was asked for
  // No raise of an epoch up to it is missing in `ceilings`, nor a member that came before it.
  std::uint64_t epoch = 0;
};

// Thread safety and errors: as Store. Every call needs an open store.
class FenceStore {
 public:
  virtual ~FenceStore() = default;
  FenceStore(const FenceStore&) = delete;
  FenceStore& operator=(const FenceStore&) = delete;

  // Raises this host's beat, and reads. kUnavailable, and the store has to be opened again, when
  // what answers is not what was opened, or the own row is not as this run left it.
  [[nodiscard]] virtual Result<FenceView> Look(std::uint64_t noted) = 0;
  // Rises with every Open() that found another data set, or one that may have been replaced.
  [[nodiscard]] virtual std::uint64_t data_set() const = 0;
  // Whether this run has made the data set: nothing was leased from it before.
  [[nodiscard]] virtual bool is_new() const = 0;
  // How long the server that was opened has been running, at least; nothing: that does not show
  // that it has lost nothing.
  [[nodiscard]] virtual std::optional<std::chrono::seconds> uptime() const = 0;
  // This host's row as it was before Open() took it over for this run; nothing: there was none.
  [[nodiscard]] virtual const std::optional<FenceMember>& found() const = 0;
  // Of the own row, as this run left it.
  [[nodiscard]] virtual std::uint64_t beat() const = 0;

  // The own row: state and silence; with no ceiling noted, and nothing confirmed.
  [[nodiscard]] virtual Status SetState(MemberState state, std::chrono::seconds silence) = 0;
  // Precondition: every ceiling of the epochs up to `epoch` is on this host's disk.
  [[nodiscard]] virtual Status SetNoted(std::uint64_t epoch) = 0;
  // From now on the own row says that this host has confirmed on this server what it knows.
  [[nodiscard]] virtual Status Confirm() = 0;
  // Makes live members of hosts that have no row, or one of a lower beat that is not in.
  [[nodiscard]] virtual Status Admit(const std::vector<FenceMember>& members) = 0;
  // Asks for ceilings, under an epoch of their own, which is taken if there are none as well. One
  // that is wanted higher already stays.
  [[nodiscard]] virtual Status Raise(const std::vector<Ceiling>& wanted) = 0;
  // Makes active what all live members have noted, of those tags; they as they stand then.
  [[nodiscard]] virtual Result<std::vector<Ceiling>> Activate(
      const std::vector<std::string>& tags) = 0;
  // Ends the membership of a host whose row is still as it is given here. Whether it was.
  [[nodiscard]] virtual Result<bool> PutOut(const FenceMember& member) = 0;

 protected:
  FenceStore() = default;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_FENCE_STORE_H_
