// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_SHARED_ADMIN_CONTEXT_H_
#define IDD_DAEMON_ADMIN_SHARED_ADMIN_CONTEXT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "access/client_ledger.h"
#include "access/peer_facts.h"
#include "admin/shared/cluster_reader.h"
#include "admin/shared/drain_notes.h"
#include "admin/shared/report_queue.h"
#include "admin/shared/tag_lister.h"
#include "exporter/metrics_collector.h"
#include "idd/base/clock.h"
#include "leasing/lease_worker.h"
#include "platform/event_loop.h"
#include "tags/tag_service.h"

namespace idd::daemon {

class TagImport;  // admin/import/tag_import.h

// The facts about the daemon itself that `status` shows.
struct DaemonInfo {
  std::string version;
  std::string host_id;
  std::string socket;
  std::string database_url;  // without a password
  std::string database;      // with it, if there is one: for connections, never shown
  MonotonicTime started{};
  std::string state_dir{};
  bool has_manager = false;  // a service manager that keeps descriptors
  std::optional<std::chrono::microseconds> watchdog{};
  std::string host_name{};  // of the machine
  std::string host_address{};
};

// A setting in force. The database has no password.
struct SettingInForce {
  std::string key;
  std::string value;
  std::string source;  // "default", "file", "environment" or "command line"
  std::string where;   // "path:line" or the variable; empty for the other sources
};

// The parts of the daemon that Admin works with; all of them outlive Admin.
struct AdminParts {
  LeaseWorker& worker;
  TagService& tags;
  MetricsCollector& metrics;
  const ClientLedger& clients;
  ReportQueue::OpenReader open_reader;
  std::function<PeerFacts()> count_peers{};  // none: the doctor knows of no peers
  std::function<std::vector<SettingInForce>()> list_settings{};  // none: no settings are known
  // Whether this host keeps the journal of all hosts, and so samples the store for metrics.
  std::function<bool()> is_keeper{};
};

// Everything that the operations use, and their state from one request to the next.
//
// Thread safety: none; event loop.
struct AdminContext {
  AdminContext(EventLoop& event_loop, DaemonInfo daemon_info, AdminParts parts)
      : loop(event_loop),
        info(std::move(daemon_info)),
        worker(parts.worker),
        tags(parts.tags),
        metrics(parts.metrics),
        clients(parts.clients),
        count_peers(std::move(parts.count_peers)),
        list_settings(std::move(parts.list_settings)),
        drains(worker, tags),
        lister(worker),
        audit_pause(event_loop),
        cluster(reports,
                [this](std::function<void(Result<ClusterView>)> done) {
                  Read<ClusterView>(
                      [](StoreReader& store) { return ReadCluster(store, std::nullopt); },
                      std::move(done));
                }),
        reports(event_loop, std::move(parts.open_reader)) {}
  AdminContext(const AdminContext&) = delete;
  AdminContext& operator=(const AdminContext&) = delete;

  // Calls ReportQueue::Read() on the database in use.
  template <typename T>
  void Read(std::function<Result<T>(StoreReader&)> read, std::function<void(Result<T>)> done) {
    reports.Read<T>(tags.store_health(), info.database, std::move(read), std::move(done));
  }

  EventLoop& loop;
  DaemonInfo info;
  LeaseWorker& worker;
  TagService& tags;
  MetricsCollector& metrics;
  const ClientLedger& clients;
  const std::function<PeerFacts()> count_peers;
  const std::function<std::vector<SettingInForce>()> list_settings;
  DrainNotes drains;
  TagLister lister;
  Timer audit_pause;
  std::weak_ptr<TagImport> import;  // the one under way
  ClusterReader cluster;
  // Last, because their threads must end before the rest is destroyed. A report or the doctor's
  // look at a disk may take minutes, so each has its own thread and delays no other.
  ReportQueue reports;
  WorkThread documents;                // of `status` and `metrics`
  std::unique_ptr<WorkThread> doctor;  // made when it is first asked for
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_ADMIN_CONTEXT_H_
