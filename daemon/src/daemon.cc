// SPDX-License-Identifier: Apache-2.0
#include "daemon.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "access/client_ledger.h"
#include "admin/admin.h"
#include "config/make_store.h"
#include "config/reload.h"
#include "exporter/metrics_collector.h"
#include "exporter/metrics_publisher.h"
#include "leasing/high_water.h"
#include "leasing/lease_worker.h"
#include "leasing/recovery.h"
#include "platform/event_loop.h"
#include "platform/host_id.h"
#include "platform/logging.h"
#include "platform/service_manager.h"
#include "platform/state_dir.h"
#include "restart/descriptor_names.h"
#include "restart/inheritance.h"
#include "server/listener.h"
#include "server/server.h"
#include "store/store.h"
#include "tags/tag_service.h"

namespace idd::daemon {
namespace {

// The slow poll, for changes that no wake-up has reported.
constexpr std::chrono::seconds kPollInterval(1);
// READY waits at most this long for a store that does not answer.
constexpr std::chrono::milliseconds kStartPatience(2500);
// A start that reports nothing for this many periods of the watchdog has failed.
constexpr int kPeriodsUntilFailed = 4;
// A stop waits at most this long for the store to take the tails back.
constexpr std::chrono::seconds kStopPatience(10);

// Two descriptors a served tag and one a connection: the default of 1024 would not do.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    log::Warning("limit.nofile", {{"error", Status::FromErrno(errno, "setrlimit").message()}});
  }
}

// Each tag takes two descriptors, and most descriptors are for clients and for tags that are asked
// for.
std::size_t MostTagsToWarm() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<std::size_t>(limit.rlim_cur / 8);
}

Result<std::string> ChooseHostId(const Options& options, HighWaterMarks& marks) {
  if (!options.host_id.empty()) return options.host_id;
  if (std::optional<std::string> id = HostIdFromMachineId(); id.has_value()) return *std::move(id);
  return marks.FallbackHostId();
}

// Identifies this host, even if another host was given the same name.
Result<HostIdentity> Identify(const Options& options, HighWaterMarks& marks) {
  HostIdentity host;
  Result<std::string> id = ChooseHostId(options, marks);
  if (!id.ok()) return id.status();
  Result<std::string> instance = marks.FallbackHostId();
  if (!instance.ok()) return instance.status();
  host.id = std::move(id).value();
  host.instance = std::move(instance).value();
  std::ifstream boot_id("/proc/sys/kernel/random/boot_id");
  if (!std::getline(boot_id, host.boot_id)) host.boot_id = "unknown";
  return host;
}

// The pieces, in the order in which they are made; destroyed in reverse.
class Daemon {
 public:
  struct Parts {
    std::unique_ptr<Store> store;
    std::unique_ptr<HighWaterMarks> marks;
    HostIdentity host;
    std::vector<std::string> drained;  // HighWaterMarks::Drained()
    Inheritance inheritance;
    ScopedFd listener;                        // of the service manager; none: idd binds its own
    MetricsServer* metrics_server = nullptr;  // outlives the daemon
  };
  Daemon(const Options& options, Parts parts);
  [[nodiscard]] int Run();

 private:
  void OnFirstContact(const Status& status);
  void WarmUp(const Result<std::vector<TagMark>>& marks);
  void Settle();
  void BecomeReady();
  [[nodiscard]] bool Listen();
  void OnSignal(int signal);
  void Leave();
  void Reload();
  [[nodiscard]] Status MoveDatabase(const Options& options);
  void Stop();
  void Fail(const Status& status);
  void SchedulePoll();
  void Inherit();
  void ScheduleWatchdog(std::chrono::microseconds period);

  Options options_;
  const HostIdentity host_;
  std::string database_url_;
  EventLoop loop_;
  ServiceManager manager_;
  Inheritance inheritance_;
  ScopedFd passed_listener_;
  LeaseWorker worker_;
  TagService tags_;
  MetricsCollector collector_;
  ClientLedger clients_;
  Admin admin_;
  Server server_;
  MetricsPublisher metrics_;
  Signals signals_;
  Timer poll_timer_;
  Timer patience_;
  Timer watchdog_timer_;
  bool listening_ = false;
  bool has_taken_over_ = false;  // what an earlier idd left
  bool has_settled_ = false;     // the store has answered, or had its time to
  bool is_ready_ = false;
  bool stopping_ = false;
  int exit_status_ = 0;
};

Daemon::Daemon(const Options& options, Parts parts)
    : options_(options),
      host_(std::move(parts.host)),
      database_url_(parts.store->DisplayUrl()),
      manager_(loop_),
      inheritance_(std::move(parts.inheritance)),
      passed_listener_(std::move(parts.listener)),
      worker_(std::move(parts.store), std::move(parts.marks),
              [this](std::function<void()> done) { loop_.Post(std::move(done)); }),
      tags_(loop_, worker_, {.leases = *inheritance_.held, .descriptors = manager_},
            options.lease_limit),
      collector_(loop_, tags_),
      admin_(loop_,
             {.version = IDD_VERSION,
              .host_id = host_.id,
              .socket = options.socket,
              .database_url = database_url_,
              .database = options.database,
              .started = MonotonicClock::now(),
              .state_dir = options.state_dir,
              .has_manager = manager_.keeps(),
              .watchdog = ServiceManager::WatchdogPeriod()},
             {.worker = worker_,
              .tags = tags_,
              .metrics = collector_,
              .clients = clients_,
              .open_reader =
                  [host = host_](const std::string& url) { return OpenStoreReader(url, host); },
              .count_peers = [this] { return server_.CountPeers(); }}),
      server_(loop_, tags_, admin_, clients_),
      metrics_(loop_, collector_, parts.metrics_server),
      signals_(loop_, {SIGTERM, SIGINT, SIGHUP, SIGUSR2}, [this](int signal) { OnSignal(signal); }),
      poll_timer_(loop_),
      patience_(loop_),
      watchdog_timer_(loop_) {
  server_.Configure(options.access, options.limits);
  collector_.AddSource([this](FamilyBuilder& families) { server_.AddFamilies(families); });
  tags_.LoadDrained(parts.drained);
}

int Daemon::Run() {
  if (const auto period = ServiceManager::WatchdogPeriod()) ScheduleWatchdog(*period / 2);
  admin_.Hold();
  Inherit();
  worker_.Start(Recover, [this](const StoreHealth& health) { tags_.OnStoreHealth(health); });
  worker_.Submit<bool>([](Store&, HighWaterMarks&) -> Result<bool> { return true; },
                       [this](const Result<bool>& opened) { OnFirstContact(opened.status()); });
  patience_.After(kStartPatience, [this] { Settle(); });
  loop_.Run();
  log::FlushSuppressed(true);
  return exit_status_;
}

// Runs before the worker starts, so that the worker knows its leases before it opens the store.
void Daemon::Inherit() {
  StoreSession session;
  session.fence = Fence(
      {.host = host_.id, .boot_id = host_.boot_id, .silence = options_.fence_after, .now_ms = {}});
  for (const LeftTag& tag : inheritance_.tags) {
    for (const HeldLease& held : tag.leases) session.held[held.lease.token] = held.lease;
  }
  for (const auto* ended : {&inheritance_.closing, &inheritance_.returning}) {
    for (const LeaseUse& use : *ended) session.held[use.lease.token] = use.lease;
  }
  for (const auto& [token, tag] : inheritance_.asked) session.unanswered.insert(token);
  worker_.Assume(std::move(session));
  for (const std::string& name : inheritance_.names) manager_.Drop(name);
  if (!inheritance_.held_is_kept) manager_.Keep(kHeldLeasesName, inheritance_.held->fd());
  // Claimers whose ring is about to be closed will ask for the next one and must not wait for the
  // store.
  if (!inheritance_.tags.empty() && !Listen()) return;
  tags_.Inherit(inheritance_, [this] {
    has_taken_over_ = true;
    BecomeReady();
  });
}

// The takeover of thousands of tags may last longer than the manager's timeout for a start.
void Daemon::ScheduleWatchdog(std::chrono::microseconds period) {
  manager_.Notify("WATCHDOG=1");
  if (!is_ready_) {
    manager_.Notify("EXTEND_TIMEOUT_USEC=" + std::to_string(kPeriodsUntilFailed * period.count()));
  }
  watchdog_timer_.After(period, [this, period] { ScheduleWatchdog(period); });
}

void Daemon::OnFirstContact(const Status& status) {
  // Another program's file, a newer schema or a corrupt file needs an operator, and is not touched
  // until then. An unavailable store may come back without one.
  if (status.code() == Code::kIncompatible && !has_settled_) {
    Fail(status);
    return;
  }
  if (!status.ok()) return Settle();
  // Lease for the tags that this host has served before, so that they have ids before a client can
  // ask. If that takes too long, the remaining tags get ids when they are asked for.
  worker_.Submit<std::vector<TagMark>>(
      [](Store&, HighWaterMarks& marks) { return marks.Own(); },
      [this](const Result<std::vector<TagMark>>& marks) { WarmUp(marks); });
}

void Daemon::WarmUp(const Result<std::vector<TagMark>>& marks) {
  if (!marks.ok() || stopping_ || has_settled_) return Settle();
  std::vector<std::string> known;
  for (const TagMark& mark : marks.value()) known.push_back(mark.tag);
  if (known.size() > MostTagsToWarm()) known.resize(MostTagsToWarm());
  tags_.Warm(known, [this] { Settle(); });
}

void Daemon::Settle() {
  if (has_settled_ || stopping_) return;
  has_settled_ = true;
  patience_.Cancel();
  tags_.StopWarming();
  BecomeReady();
}

bool Daemon::Listen() {
  if (listening_) return true;
  if (Status status = server_.Listen(options_.socket, std::move(passed_listener_)); !status.ok()) {
    Fail(status);
    return false;
  }
  listening_ = true;
  return true;
}

void Daemon::BecomeReady() {
  if (!has_settled_ || !has_taken_over_ || stopping_ || !Listen()) return;
  is_ready_ = true;
  admin_.GoOn();
  SchedulePoll();
  metrics_.KeepIn(options_.metrics_textfile);
  log::Info("idd.ready", {{"version", IDD_VERSION},
                          {"socket", options_.socket},
                          {"database", database_url_},
                          {"store", tags_.store_health().up ? "up" : "down"}});
  manager_.Notify("READY=1");
}

void Daemon::OnSignal(int signal) {
  if (signal == SIGHUP) {
    Reload();
    return;
  }
  if (signal == SIGUSR2 && manager_.keeps()) return Leave();
  log::Info("idd.stopping", {{"signal", signal}});
  Stop();
}

// Another idd follows at once and inherits the rings; meanwhile claims continue in them.
void Daemon::Leave() {
  if (stopping_) return;
  stopping_ = true;
  log::Info("idd.leaving", {{"action", "the rings stay open for the next idd"}});
  manager_.Notify("STOPPING=1");
  worker_.DropQueued();
  loop_.Stop();
}

void Daemon::Reload() {
  if (stopping_) return;  // tails must go back to the store that granted them
  const ParsedOptions parsed = ParseOptions(options_.arguments);
  ReloadPlan plan = PlanReload(options_, parsed.options.value_or(options_));
  Status status = parsed.options.has_value() ? Status::Ok() : Status(Code::kInvalid, parsed.output);
  // Without the file, the defaults would replace the rules and the database in use.
  if (status.ok() && plan.options.config_file.empty() && !options_.config_file.empty()) {
    status = Status(Code::kInvalid, "the configuration " + options_.config_file + " is gone");
  }
  if (status.ok() && plan.Changes("database")) status = MoveDatabase(plan.options);
  if (!status.ok()) {
    log::Error("config.reload_failed",
               {{"error", status.message()}, {"action", "nothing changed"}});
    return;
  }
  options_ = std::move(plan.options);
  log::SetLevel(options_.log_level);
  tags_.SetLeaseLimit(options_.lease_limit);
  if (is_ready_) metrics_.KeepIn(options_.metrics_textfile);
  // Also if these have not changed: the group names may stand for other groups by now.
  server_.Configure(options_.access, options_.limits);
  if (!plan.not_changed.empty()) {
    log::Warning("config.needs_restart", {{"keys", KeyList(plan.not_changed)}});
  }
  log::Info("config.reloaded",
            {{"file", options_.config_file}, {"changed", KeyList(plan.changed)}});
}

Status Daemon::MoveDatabase(const Options& options) {
  Result<std::unique_ptr<Store>> store = MakeStore(options.database, host_);
  if (!store.ok()) return store.status();
  database_url_ = store.value()->DisplayUrl();
  admin_.SetDatabase(database_url_, options.database);
  worker_.Replace(std::move(store).value());
  return Status::Ok();
}

void Daemon::Stop() {
  if (stopping_) return;
  stopping_ = true;
  manager_.Notify("STOPPING=1");
  server_.StopAccepting();
  poll_timer_.Cancel();
  patience_.After(kStopPatience, [this] {
    log::Error(
        "idd.stop_timeout",
        {{"action",
          "leases not handed back are abandoned, or handed back by an idd that inherits them"}});
    worker_.DropQueued();
    exit_status_ = 1;
    loop_.Stop();
  });
  tags_.Shutdown([this] {
    log::Info("idd.stopped", {});
    loop_.Stop();
  });
}

void Daemon::Fail(const Status& status) {
  log::Error("idd.failed", {{"error", status.message()}});
  exit_status_ = 1;
  loop_.Stop();
}

void Daemon::SchedulePoll() {
  poll_timer_.After(kPollInterval, [this] {
    metrics_.NoteDelay(MonotonicClock::now() - poll_timer_.expiry());
    tags_.Poll();
    server_.Poll();
    log::FlushSuppressed(false);
    SchedulePoll();
  });
}

// Takes the listening socket, if the service manager has bound one for us, out of `passed`.
Result<ScopedFd> TakeListener(std::vector<PassedDescriptor>& passed, const std::string& path) {
  ScopedFd listener;
  std::vector<PassedDescriptor> others;
  for (PassedDescriptor& descriptor : passed) {
    if (!Listener::IsListener(descriptor.fd.get())) {
      others.push_back(std::move(descriptor));
      continue;
    }
    if (!Listener::ListensAt(descriptor.fd.get(), path)) {
      return Status(Code::kUnavailable,
                    "the service manager listens elsewhere than at " + path +
                        "; make the socket option and ListenSequentialPacket= the same");
    }
    listener = std::move(descriptor.fd);
  }
  passed = std::move(others);
  return listener;
}

// Precondition: the locks are held, so that no other idd uses what is inherited.
Result<Inheritance> TakeInheritance(std::vector<PassedDescriptor> passed,
                                    const std::string& host_id, HighWaterMarks& marks) {
  const Result<std::string> list = marks.HeldList();
  if (!list.ok()) return list.status();
  Result<Inheritance> inheritance = Inherit(passed, host_id, list.value());
  if (!inheritance.ok()) return inheritance;
  for (const PassedDescriptor& descriptor : passed) {
    log::Warning("descriptor.unknown", {{"name", descriptor.name}, {"action", "closed"}});
    inheritance.value().names.push_back(descriptor.name);
  }
  const std::string id = inheritance.value().held->id();
  if (id == list.value()) return inheritance;
  // Before anything is recorded in the list: from here on no older list is valid.
  if (Status status = marks.SetHeldList(id); !status.ok()) return status;
  return inheritance;
}

// Runs before anything of an earlier idd is touched, because a port that is in use ends the start.
// Null if no address is configured.
Result<std::unique_ptr<MetricsServer>> ListenForScrapers(const Options& options) {
  if (options.metrics_listen.empty()) return std::unique_ptr<MetricsServer>();
  Result<std::unique_ptr<MetricsServer>> server = MetricsServer::Listen(options.metrics_listen);
  if (server.ok()) log::Info("metrics.listening", {{"address", options.metrics_listen}});
  return server;
}

int FailStart(const Status& status) {
  log::Error("idd.failed", {{"error", status.message()}});
  return 1;
}

}  // namespace

int RunDaemon(const Options& options) {
  log::Configure(options.log_level, options.log_format);
  RaiseDescriptorLimit();
  const Result<FileLock> lock = LockStateDir(options.state_dir);
  if (!lock.ok()) return FailStart(lock.status());
  const Result<FileLock> socket_lock = Listener::LockPath(options.socket);
  if (!socket_lock.ok()) return FailStart(socket_lock.status());
  if (Status status = Listener::CheckPath(options.socket); !status.ok()) return FailStart(status);
  Result<std::unique_ptr<HighWaterMarks>> marks = HighWaterMarks::Open(options.state_dir);
  if (!marks.ok()) return FailStart(marks.status());
  const Result<HostIdentity> host = Identify(options, *marks.value());
  if (!host.ok()) return FailStart(host.status());
  Result<std::unique_ptr<Store>> store = MakeStore(options.database, host.value());
  if (!store.ok()) return FailStart(store.status());
  const auto metrics_server = ListenForScrapers(options);
  if (!metrics_server.ok()) return FailStart(metrics_server.status());
  // Read before anything is inherited: a drained tag must not be published even for a moment.
  Result<std::vector<std::string>> drained = marks.value()->Drained();
  if (!drained.ok()) return FailStart(drained.status());
  std::vector<PassedDescriptor> passed = ServiceManager::TakePassed();
  Result<ScopedFd> listener = TakeListener(passed, options.socket);
  if (!listener.ok()) return FailStart(listener.status());
  Result<Inheritance> inheritance =
      TakeInheritance(std::move(passed), host.value().id, *marks.value());
  if (!inheritance.ok()) return FailStart(inheritance.status());
  Daemon daemon(options, {.store = std::move(store).value(),
                          .marks = std::move(marks).value(),
                          .host = host.value(),
                          .drained = std::move(drained).value(),
                          .inheritance = std::move(inheritance).value(),
                          .listener = std::move(listener).value(),
                          .metrics_server = metrics_server.value().get()});
  return daemon.Run();
}

}  // namespace idd::daemon
