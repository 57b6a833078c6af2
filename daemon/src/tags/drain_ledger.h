// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_DRAIN_LEDGER_H_
#define IDD_DAEMON_TAGS_DRAIN_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "idd/base/status.h"
#include "leasing/high_water.h"
#include "store/store.h"
#include "tags/tag_ring.h"

namespace idd::daemon {

// The fate of ids that were unclaimed when their tags were drained.
struct DrainCount {
  std::uint64_t ids_returned = 0;   // the store has them back
  std::uint64_t ids_abandoned = 0;  // of a forged ring, or refused by the store
  std::uint64_t ids_pending = 0;    // the store has not taken them yet
  std::uint64_t leases_pending = 0;

  DrainCount& operator+=(const DrainCount& other) noexcept;
};

// Which scopes are drained on this host, and how far each drain has come. A scope is a tag's name
// or kWholeHost.
//
// Pure. Thread safety: none; event loop. Memory: a count for each tag that had ids when it was
// drained, and a token for each lease on its way back.
class DrainLedger {
 public:
  using Scopes = std::set<std::string, std::less<>>;

  void Begin(const std::string& scope) { scopes_.insert(scope); }
  void End(const std::string& scope);

  [[nodiscard]] bool Has(std::string_view scope) const { return scopes_.contains(scope); }
  // Whether the tag is drained, by its name or with the whole host.
  [[nodiscard]] bool IsDrained(std::string_view tag) const {
    return !scopes_.empty() && (Has(kWholeHost) || Has(tag));
  }
  // The answer to a claim of the tag. Precondition: IsDrained(tag).
  [[nodiscard]] Status Refusal(const std::string& tag) const;
  // Every scope that is drained.
  [[nodiscard]] const Scopes& scopes() const noexcept { return scopes_; }
  // The tags that are drained by name, in order.
  [[nodiscard]] std::vector<std::string> Tags() const;

  // The unclaimed ids of a drained lease go back ...
  void OnClosed(const LeaseUse& use);
  // ... or are given up.
  void OnSpoilt(const LeaseUse& use);
  // The store's answer to a hand-back, of a drain or not.
  void OnAnswered(const LeaseUse& use, const Result<ReturnOutcome>& outcome);
  // While true, nothing may be leased for the tag: its drained tails are below the ids of a new
  // lease.
  [[nodiscard]] bool IsReturning(std::string_view tag) const;
  // The tag was deleted; nothing waits for its leases on their way back.
  void Forget(const std::string& tag);

  [[nodiscard]] DrainCount CountOf(const std::string& scope) const;
  // Whether ids of the scope are on their way back. Costs the same for any number of tags.
  [[nodiscard]] bool HasPending(const std::string& scope) const {
    return scope == kWholeHost ? pending_ != 0 : IsReturning(scope);
  }

 private:
  struct Account {
    DrainCount count;
    std::set<std::string, std::less<>> pending;  // tokens
  };
  void Tidy();

  Scopes scopes_;
  std::map<std::string, Account, std::less<>> accounts_;  // by tag
  std::size_t pending_ = 0;                               // tokens of all accounts
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_DRAIN_LEDGER_H_
