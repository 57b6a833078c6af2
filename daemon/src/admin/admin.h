// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_ADMIN_H_
#define IDD_DAEMON_ADMIN_ADMIN_H_

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
#include <vector>

#include "access/access_rules.h"
#include "access/client_ledger.h"
#include "admin/doctor_facts.h"
#include "admin/import/tag_import.h"
#include "exporter/metrics_collector.h"
#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "leasing/lease_worker.h"
#include "platform/event_loop.h"
#include "store/store.h"
#include "tags/tag_service.h"

namespace idd::daemon {

struct AuditReport;  // ledger_audit.h

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
// Thread safety: none; event loop. Changes of the store go through the LeaseWorker. The journal is
// read on a thread of its own over a connection of its own, and documents of all of it are made
// there, one at a time: leases must not wait for them.
class Admin {
 public:
  // The document to answer with; on failure `status` is not ok and the document is {"error": ...}.
  using Done = std::function<void(const Status& status, const std::string& document)>;

  // A connection to the database of this URL, on the report thread.
  using OpenReader = std::function<Result<std::unique_ptr<StoreReader>>(const std::string& url)>;

  // What it works with; they outlive it.
  struct Parts {
    LeaseWorker& worker;
    TagService& tags;
    MetricsCollector& metrics;
    const ClientLedger& clients;
    OpenReader open_reader;
    std::function<PeerFacts()> count_peers{};  // none: the doctor knows of no peers
  };
  Admin(EventLoop& loop, DaemonInfo info, Parts parts);
  ~Admin();
  Admin(const Admin&) = delete;
  Admin& operator=(const Admin&) = delete;

  // The request is untrusted text; it is done as far as `rights` go: nothing of a tag that the peer
  // may not use is told or changed. `done` is called once, now or later on the loop. A large
  // request is parsed on a thread of its own, so that it may be overtaken by a later one.
  void Handle(std::string request, const PeerRights& rights, Done done);
  // From now on requests wait until GoOn(): what they would be told is not known yet.
  void Hold() { is_held_ = true; }
  void GoOn();
  // Another one is in use from now on.
  void SetDatabase(std::string display_url, std::string url);

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
  void Parse(std::string request, const PeerRights& rights, const Done& done);
  // Does what was parsed; `done` frees its place among those under way.
  void Do(const Result<Request>& request, const PeerRights& rights, const Done& done);
  // Whether the peer may have one more request under way.
  [[nodiscard]] bool HasRoomFor(const PeerRights& rights) const;
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
  // A `status` that waits for the store's list of tags, until its deadline.
  struct StatusCall;
  void ListForStatus();
  void OnListed(const Result<std::vector<TagRecord>>& records);
  void AnswerStatus(StatusCall& call, const Result<std::vector<TagRecord>>& records) const;
  void ListLeases(const Request& request, const PeerRights& rights, Done done);
  void ListHosts(const Request& request, const PeerRights& rights, Done done);
  void ForgetHost(const Request& request, const PeerRights& rights, Done done);
  void Audit(const Request& request, const PeerRights& rights, Done done);
  void WhoIs(const Request& request, const PeerRights& rights, Done done);
  void Import(const Request& request, const PeerRights& rights, Done done);
  void ShowImportProgress(const Request& request, const PeerRights& rights, Done done);

  struct AuditRun;
  void AuditNext(const std::shared_ptr<AuditRun>& run);
  void AuditTag(const std::shared_ptr<AuditRun>& run, const std::string& tag, Ledger ledger);
  void OnAudited(const std::shared_ptr<AuditRun>& run, const std::string& tag, AuditReport report);
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
  // Calls `read` on the report thread with a connection that is open, and then `done` on the loop;
  // reads of several operations take turns. The connection ends when there is nothing more to read.
  template <typename T>
  void Read(std::function<Result<T>(StoreReader&)> read, std::function<void(Result<T>)> done);
  [[nodiscard]] Result<StoreReader*> OpenToRead(const std::string& url);
  void OnRead();
  // Calls `make` on the report thread, and then `done` on the loop; for QueueReport's operations.
  void MakeReport(std::function<std::string()> make, Done done);

  [[nodiscard]] Json DaemonJson() const;
  [[nodiscard]] Json DatabaseJson() const;
  [[nodiscard]] static Json FenceJson(const FenceReport& fence);
  using Shows = std::function<bool(const std::string& tag)>;
  [[nodiscard]] Json TagsJson(const std::vector<TagRecord>& records, const Shows& shows) const;
  [[nodiscard]] Json StatusJson(Json tags) const;
  // They wait for the list that the worker is asked for now, and for the one after it: a call that
  // comes later than the question may know of a tag that the answer lacks. Never more than two
  // lists are asked for, however many ask for the status of a store that hangs.
  std::vector<std::shared_ptr<StatusCall>> listing_;
  std::vector<std::shared_ptr<StatusCall>> to_list_;
  bool is_listing_ = false;

  DaemonInfo info_;
  const double started_at_;  // Unix time, worked out once: a restart is seen by its change
  LeaseWorker& worker_;
  TagService& tags_;
  const ClientLedger& clients_;
  bool is_held_ = false;
  std::vector<std::function<void()>> held_;  // at most kMaxInFlight
  int in_flight_ = 0;
  std::map<uid_t, int> in_flight_of_;    // of those, by user
  int drain_changes_ = 0;                // on their way to the marks
  std::set<std::string> unsure_drains_;  // scopes of which the last change failed
  std::multiset<std::string> deleting_;  // tags whose deletion is on its way to the store
  EventLoop& loop_;
  std::weak_ptr<TagImport> import_;  // that is under way
  bool reporting_ = false;
  std::deque<std::function<void()>> waiting_reports_;  // at most kMaxInFlight
  const std::function<PeerFacts()> count_peers_;
  // Made when it is first asked for: an import keeps the other one for minutes, and a disk may.
  std::unique_ptr<WorkThread> doctor_thread_;
  MetricsCollector& metrics_;
  std::map<std::string, std::uint64_t, std::less<>> requests_;  // by operation, those unknown as ""
  Timer audit_pause_;
  const OpenReader open_reader_;
  int reads_under_way_ = 0;
  std::unique_ptr<StoreReader> reader_;  // the report thread's
  std::string reader_url_;               // the same
  WorkThread metrics_thread_;            // a report may take minutes
  WorkThread parse_thread_;
  WorkThread report_thread_;  // last: their threads end before the rest goes
};

template <typename T>
void Admin::Read(std::function<Result<T>(StoreReader&)> read, std::function<void(Result<T>)> done) {
  // A server that hangs would be tried for seconds, by one report after the other.
  if (const StoreHealth& health = tags_.store_health(); !health.up) {
    Status down(Code::kUnavailable, "the store is down; last error: " + health.last_error);
    return loop_.Post([done = std::move(done), down = std::move(down)] { done(down); });
  }
  ++reads_under_way_;
  report_thread_.Post([this, url = info_.database, read = std::move(read), done = std::move(done)] {
    const Result<StoreReader*> reader = OpenToRead(url);
    Result<T> result = reader.ok() ? read(*reader.value()) : Result<T>(reader.status());
    if (result.status().code() == Code::kUnavailable) reader_.reset();
    loop_.Post([this, result = std::move(result), done]() mutable {
      OnRead();
      done(std::move(result));
    });
  });
}

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_ADMIN_H_
