// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_H_
#define IDD_DAEMON_ADMIN_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>

#include "access_rules.h"
#include "client_ledger.h"
#include "event_loop.h"
#include "health.h"
#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "lease_worker.h"
#include "metrics_collector.h"
#include "store/store.h"
#include "tag_import.h"
#include "tag_service.h"

namespace idd::daemon {

// What `status` says of the daemon itself.
struct DaemonInfo {
  std::string version;
  std::string host_id;
  std::string socket;
  std::string database_url;  // without a password
  std::string database;      // with it, if there is one: for connections, never for people
  MonotonicTime started{};
  std::string state_dir{};
  bool has_manager = false;  // a service manager that keeps descriptors
  std::optional<std::chrono::microseconds> watchdog{};
};

// The administration requests of docs/socket-protocol.md: JSON in, JSON out.
//
// Thread safety: none; event loop. Store work goes through the LeaseWorker, and documents of the
// whole journal are made on a thread of their own, one at a time: claims must not wait for them.
class Admin {
 public:
  // The document to answer with; on failure `status` is not ok and the document is {"error": ...}.
  using Done = std::function<void(const Status& status, const std::string& document)>;

  Admin(EventLoop& loop, DaemonInfo info, LeaseWorker& worker, TagService& tags);
  ~Admin();
  Admin(const Admin&) = delete;
  Admin& operator=(const Admin&) = delete;

  // The request is untrusted text; it is done as far as `rights` go: nothing of a tag that the peer
  // may not use is told or changed. `done` is called once, now or later on the loop.
  void Handle(const std::string& request, const PeerRights& rights, Done done);
  // Whose connections `client.list` tells of; it outlives this, or is taken away with nullptr.
  void SetClients(const ClientLedger* clients) { clients_ = clients; }
  // Another one is in use from now on.
  void SetDatabase(std::string display_url, std::string url);
  // Who is connected, for the doctor.
  void SetPeers(std::function<PeerFacts()> look) { look_at_peers_ = std::move(look); }
  // What `metrics` tells; whoever has something to tell adds himself.
  [[nodiscard]] MetricsCollector& metrics() noexcept { return metrics_; }

 private:
  using Request = nlohmann::json;
  using Json = nlohmann::ordered_json;
  using Operation = void (Admin::*)(const Request& request, const PeerRights& rights, Done done);
  // What a peer needs for an operation. Those of kSee tell only what is of tags that it may use.
  enum class Needs {
    kSee,
    kAdministerTag,
    kAdministerScope,  // the tag that is named or, without one, all
    kAdministerAll,
  };
  struct Entry {
    Operation operation;
    Needs needs;
  };
  [[nodiscard]] static Status CheckRights(const Request& request, Needs needs,
                                          const PeerRights& rights);
  static const std::map<std::string, Entry, std::less<>>& Operations();

  void CreateTag(const Request& request, const PeerRights& rights, Done done);
  void ListTags(const Request& request, const PeerRights& rights, Done done);
  void ShowTag(const Request& request, const PeerRights& rights, Done done);
  void ChangeTag(const Request& request, const PeerRights& rights, Done done);
  void DeleteTag(const Request& request, const PeerRights& rights, Done done);
  void ShowStatus(const Request& request, const PeerRights& rights, Done done);
  void ShowUnobserved(const PeerRights& rights, const Done& done) const;
  void ListLeases(const Request& request, const PeerRights& rights, Done done);
  void ListHosts(const Request& request, const PeerRights& rights, Done done);
  void Audit(const Request& request, const PeerRights& rights, Done done);
  void WhoIs(const Request& request, const PeerRights& rights, Done done);
  void Import(const Request& request, const PeerRights& rights, Done done);
  void ShowImportProgress(const Request& request, const PeerRights& rights, Done done);

  struct AuditRun;
  void AuditNext(const std::shared_ptr<AuditRun>& run);
  void AuditTag(const std::shared_ptr<AuditRun>& run, const std::string& tag, Ledger ledger);
  void EndAudit(AuditRun& run, const Status& status);
  void Diagnose(const Request& request, const PeerRights& rights, Done done);

  struct Diagnosis;
  void Conclude(Diagnosis& diagnosis, Result<StoreReport> look);
  void ShowMetrics(const Request& request, const PeerRights& rights, Done done);
  void AddFamilies(FamilyBuilder& families) const;
  void Drain(const Request& request, const PeerRights& rights, Done done);
  void Resume(const Request& request, const PeerRights& rights, Done done);
  void ListClients(const Request& request, const PeerRights& rights, Done done);

  // Calls `then` when the scope of a drain or resume is known to exist.
  void FindScope(const std::string& scope, std::function<void(const Status&)> then);
  // Notes it durably first.
  void SetDrained(const std::string& scope, bool is_drained,
                  std::function<void(const Status&)> then);
  struct DrainWait {
    std::string scope;
    bool was_drained = false;
    Deadline deadline;
    Done done;
  };
  void AwaitDrain(const DrainWait& wait);

  // Runs `start` now or, while another operation on the whole journal, or an import, is under way,
  // after it. `start` ends with FinishReport().
  void QueueReport(std::function<void()> start);
  void FinishReport();
  // Calls `make` on the report thread, and then `done` on the loop; for QueueReport's operations.
  void MakeReport(std::function<std::string()> make, Done done);

  [[nodiscard]] Json DaemonJson() const;
  [[nodiscard]] Json DatabaseJson() const;
  using Shows = std::function<bool(const std::string& tag)>;
  [[nodiscard]] Json TagsJson(const std::vector<TagRecord>& records, const Shows& shows) const;
  [[nodiscard]] Json StatusJson(Json tags) const;

  DaemonInfo info_;
  const double started_at_;  // Unix time, worked out once: a restart is seen by its change
  LeaseWorker& worker_;
  TagService& tags_;
  const ClientLedger* clients_ = nullptr;
  int in_flight_ = 0;
  int drain_changes_ = 0;                // on their way to the marks
  std::set<std::string> unsure_drains_;  // scopes of which the last change failed
  std::multiset<std::string> deleting_;  // tags whose deletion is on its way to the store
  EventLoop& loop_;
  std::weak_ptr<TagImport> import_;  // that is under way
  bool reporting_ = false;
  std::deque<std::function<void()>> waiting_reports_;  // at most kMaxInFlight
  std::function<PeerFacts()> look_at_peers_;
  // Made when it is first asked for: an import keeps the other one for minutes, and a disk may.
  std::unique_ptr<WorkThread> doctor_thread_;
  MetricsCollector metrics_;
  std::map<std::string, std::uint64_t, std::less<>> requests_;  // by operation, those unknown as ""
  WorkThread metrics_thread_;                                   // a report may take minutes
  WorkThread report_thread_;  // last: their threads end before the rest goes
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_H_
