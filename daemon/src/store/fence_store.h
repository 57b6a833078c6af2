// SPDX-License-Identifier: Apache-2.0
//
// The state that the hosts of one data set share for the fence (fence.h): which hosts are members,
// and up to where each tag may be leased. Only a store that can be replaced under its hosts has it.
#ifndef IDD_DAEMON_STORE_FENCE_STORE_H_
#define IDD_DAEMON_STORE_FENCE_STORE_H_

#include <chrono>
#include <cstddef>
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

// kLive: no ceiling is activated before this host has noted it; hosts in other states delay no
// activation. kWaiting: it has come, and does not lease yet. kOut: it was silent for too long, or
// an operator has forgotten it. kLeft: it stopped.
enum class MemberState { kLive, kWaiting, kOut, kLeft };
[[nodiscard]] const char* MemberStateName(MemberState state) noexcept;  // "live", ...
[[nodiscard]] std::optional<MemberState> ParseMemberState(std::string_view name) noexcept;

// A host numbers the states that it writes into its row, on its own disk, so that a row of an older
// copy can be told from a newer one. The rest of the run is random, and another one with each
// connection: only the host's present connection finds its row as it left it.
inline constexpr std::size_t kRunNumberSize = 16;  // the number comes first, and sorts as text
[[nodiscard]] std::string MakeRun(std::uint64_t number);
// A connection writes no state: it has the number of the row that it finds.
[[nodiscard]] std::string RunOfConnection(std::string_view found);
[[nodiscard]] std::uint64_t NumberOfRun(std::string_view run) noexcept;  // 0: of an older idd
// Whether the number of `run` is below that of `other`. Runs of an older idd have no number; they
// are older than all others.
[[nodiscard]] bool IsOlderRun(std::string_view run, std::string_view other) noexcept;

// A host's row.
struct FenceMember {
  std::string host;
  std::string run;          // MakeRun(): of the present connection and state
  std::uint64_t beat = 0;   // rises with every look
  std::uint64_t noted = 0;  // every ceiling up to this epoch is on the host's disk
  MemberState state = MemberState::kLeft;
  std::string server;               // the server that it has confirmed on; empty: none yet
  std::chrono::seconds silence{0};  // after which others may put it out
};

// No lease of the tag ends above `active`. `wanted` becomes `active` once every live member has
// noted it. Neither ever falls.
struct Ceiling {
  std::string tag;
  std::uint64_t active = 0;
  std::uint64_t wanted = 0;
  std::uint64_t pushed = 0;  // ids below it may be in use: a host pushed the ceiling it had noted
};

// What a host asks for. Hosts that need the same tag at the same time ask for about the same, and
// each raise that changes a ceiling makes all hosts note it again: so a ceiling stays as it is if
// at least `least` is wanted already.
struct CeilingRaise {
  std::string tag;
  std::uint64_t wanted = 0;
  std::uint64_t least = 0;   // at most `wanted`
  std::uint64_t pushed = 0;  // as in Ceiling; a higher one is always written
};

struct FenceView {
  std::string server;  // the name of the server or cluster that has answered
  std::vector<FenceMember> members;
  std::vector<Ceiling> ceilings;  // of epochs above the requested one
  // `ceilings` lacks no raise up to this epoch, and `members` no member that came before it.
  std::uint64_t epoch = 0;
};

// Thread safety and errors: as Store. Every call needs an open store.
class FenceStore {
 public:
  virtual ~FenceStore() = default;
  FenceStore(const FenceStore&) = delete;
  FenceStore& operator=(const FenceStore&) = delete;

  // Raises this host's beat and reads the state. kUnavailable, and the store must be opened again,
  // if another server or other tables answer, or this host's row is not as this run left it.
  [[nodiscard]] virtual Result<FenceView> ReadFence(std::uint64_t noted) = 0;
  // Rises with every Open() that found another data set, or one that may have been replaced.
  [[nodiscard]] virtual std::uint64_t data_set() const = 0;
  // Whether this run has made the data set: nothing was leased from it before.
  [[nodiscard]] virtual bool is_new() const = 0;
  // How long the open server has been running, at least; nothing if it may lose data without a
  // restart, so that its uptime proves nothing.
  [[nodiscard]] virtual std::optional<std::chrono::seconds> uptime() const = 0;
  // This host's row as it was before Open() took it over for this run; nothing: there was none.
  [[nodiscard]] virtual const std::optional<FenceMember>& found() const = 0;
  // The beat of this host's row, as this run left it.
  [[nodiscard]] virtual std::uint64_t beat() const = 0;

  // Writes state and silence into this host's row, with a run of that number, and resets what it
  // has noted and confirmed.
  [[nodiscard]] virtual Status SetState(MemberState state, std::chrono::seconds silence,
                                        std::uint64_t number) = 0;
  // Precondition: every ceiling of the epochs up to `epoch` is on this host's disk.
  [[nodiscard]] virtual Status SetNoted(std::uint64_t epoch) = 0;
  // Records in this host's row that it has confirmed on this server.
  [[nodiscard]] virtual Status Confirm() = 0;
  // Makes live members of those hosts that have no row, or one that is not live and has an older
  // run than the one given. The row gets the given run, so a host that has this row now has to come
  // again.
  [[nodiscard]] virtual Status Admit(const std::vector<FenceMember>& members) = 0;
  // Asks for ceilings under a new epoch, which is taken even if nothing is raised. A ceiling that
  // stays as it is keeps its epoch.
  [[nodiscard]] virtual Status Raise(const std::vector<CeilingRaise>& raises) = 0;
  // The same, unless another host is raising at this moment: false, and nothing is done.
  [[nodiscard]] virtual Result<bool> TryRaise(const std::vector<CeilingRaise>& raises) = 0;
  // Activates, for those tags, the ceilings that all live members have noted. Returns the tags'
  // ceilings afterwards.
  [[nodiscard]] virtual Result<std::vector<Ceiling>> Activate(
      const std::vector<std::string>& tags) = 0;
  // Ends the membership of a host if its row is still as given. Returns whether it was.
  [[nodiscard]] virtual Result<bool> PutOut(const FenceMember& member) = 0;

 protected:
  FenceStore() = default;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_FENCE_STORE_H_
