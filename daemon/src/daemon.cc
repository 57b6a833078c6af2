// SPDX-License-Identifier: Apache-2.0
#include "daemon.h"

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
#include "engine.h"
#include "exporter/metrics_collector.h"
#include "exporter/metrics_publisher.h"
#include "leasing/high_water.h"
#include "leasing/host_reporter.h"
#include "platform/bounded_call.h"
#include "platform/descriptor_limit.h"
#include "platform/event_loop.h"
#include "platform/host_id.h"
#include "platform/logging.h"
#include "platform/service_manager.h"
#include "platform/state_dir.h"
#include "server/listener.h"
#include "server/server.h"

namespace idd::daemon {
namespace {

// A start that reports nothing for this many periods of watchdog_timer_ has failed.
constexpr int kPeriodsUntilFailed = 4;

// After a stop, the stores' last statements have this long.
constexpr std::chrono::seconds kEndLimit(10);

// Each tag takes two descriptors, and most descriptors are for clients and for tags that are asked
// for.
std::size_t MostTagsToWarm() { return DescriptorLimit() / 8; }

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
  // A full disk keeps idd from leasing, not from starting.
  const Result<std::uint64_t> number = marks.NextRunNumber();
  if (number.ok()) host.run_number = number.value();
  Result<WitnessState> witness = marks.GetWitnessState();
  if (witness.ok()) host.disk = std::move(witness).value().disk;
  return host;
}

JournalKeeper::OpenStore JournalOpener(const std::string& url, const HostIdentity& host) {
  return [url, host] { return OpenJournalStore(url, host); };
}

// A rule for one user takes the tag from the members of the group, which only a reader of the
// manual expects.
void ReportGroupsLeftOut(const Options& options) {
  const std::string tags = TagsWithoutGroups(options.access);
  if (tags.empty()) return;
  log::Info("access.group_left_out",
            {{"tags", tags},
             {"action",
              "members of group idd may not claim from these tags, because rules name the "
              "tags and none lets the group in"}});
}

// The pieces, in the order in which they are made; destroyed in reverse.
class Daemon {
 public:
  struct Parts {
    Engine::Parts engine;
    ScopedFd listener;                        // of the service manager; none: idd binds its own
    MetricsServer* metrics_server = nullptr;  // outlives the daemon
  };
  Daemon(const Options& options, Parts parts);
  [[nodiscard]] int Run();

 private:
  [[nodiscard]] Engine::Events EngineEvents();
  void OnReady();
  [[nodiscard]] bool Listen();
  void OnSignal(int signal);
  void Leave();
  void Reload();
  [[nodiscard]] Status MoveDatabase(const Options& options);
  [[nodiscard]] std::vector<SettingInForce> SettingsInForce() const;
  void Stop();
  void Fail(const Status& status);
  void ScheduleWatchdog(std::chrono::microseconds period);

  Options options_;
  std::string database_url_;
  EventLoop loop_;
  ServiceManager manager_;
  ScopedFd passed_listener_;
  Engine engine_;
  HostReporter reporter_;
  MetricsCollector collector_;
  ClientLedger clients_;
  Admin admin_;
  Server server_;
  MetricsPublisher metrics_;
  Signals signals_;
  Timer watchdog_timer_;
  bool listening_ = false;
  int exit_status_ = 0;
};

Daemon::Daemon(const Options& options, Parts parts)
    : options_(options),
      database_url_(parts.engine.store->DisplayUrl()),
      manager_(loop_),
      passed_listener_(std::move(parts.listener)),
      engine_(loop_, manager_,
              {.leases_per_s = options.lease_limit,
               .most_tags_to_warm = MostTagsToWarm(),
               .journal_retention = options.journal_retention},
              std::move(parts.engine), EngineEvents()),
      reporter_(
          loop_, engine_.worker(),
          {.name = MachineName(),
           .address = options.host_address,
           .version = IDD_VERSION,
           .boot_id = engine_.host().boot_id,
           .report = ""},
          [this](const std::string& after, std::size_t most, std::vector<TagSample>& samples) {
            return engine_.tags().SampleTags(after, most, samples);
          }),
      collector_(loop_, engine_.tags()),
      admin_(loop_,
             {.version = IDD_VERSION,
              .host_id = engine_.host().id,
              .socket = options.socket,
              .database_url = database_url_,
              .database = options.database,
              .started = MonotonicClock::now(),
              .state_dir = options.state_dir,
              .has_manager = manager_.keeps(),
              .watchdog = ServiceManager::WatchdogPeriod(),
              .host_name = MachineName(),
              .host_address = options.host_address},
             {.worker = engine_.worker(),
              .tags = engine_.tags(),
              .metrics = collector_,
              .clients = clients_,
              .open_reader = [host = engine_.host()](
                                 const std::string& url) { return OpenStoreReader(url, host); },
              .count_peers = [this] { return server_.CountPeers(); },
              .list_settings = [this] { return SettingsInForce(); },
              .is_keeper = [this] { return engine_.journal().is_keeper(); }}),
      server_(loop_, engine_.tags(), admin_, clients_),
      metrics_(loop_, collector_, parts.metrics_server),
      signals_(loop_, {SIGTERM, SIGINT, SIGHUP, SIGUSR2}, [this](int signal) { OnSignal(signal); }),
      watchdog_timer_(loop_) {
  engine_.journal().SetOpenStore(JournalOpener(options.database, engine_.host()));
  server_.Configure(options.access, options.limits);
  collector_.AddSource([this](FamilyBuilder& families) { server_.AddFamilies(families); });
  collector_.AddSource(
      [this](FamilyBuilder& families) { engine_.journal().AddFamilies(families); });
}

int Daemon::Run() {
  if (const auto period = ServiceManager::WatchdogPeriod()) ScheduleWatchdog(*period / 2);
  admin_.Hold();
  engine_.Start();
  loop_.Run();
  log::FlushSuppressed(true);
  return exit_status_;
}

// The engine calls none of them before Run().
Engine::Events Daemon::EngineEvents() {
  return {.listen = [this] { return Listen(); },
          .on_ready = [this] { OnReady(); },
          .on_failed = [this](const Status& status) { Fail(status); },
          .on_poll =
              [this](std::chrono::nanoseconds lateness) {
                metrics_.NoteDelay(lateness);
                server_.Poll();
                log::FlushSuppressed(false);
              }};
}

// The takeover of thousands of tags may last longer than the manager's timeout for a start.
void Daemon::ScheduleWatchdog(std::chrono::microseconds period) {
  manager_.Notify("WATCHDOG=1");
  if (!engine_.is_ready()) {
    manager_.Notify("EXTEND_TIMEOUT_USEC=" + std::to_string(kPeriodsUntilFailed * period.count()));
  }
  watchdog_timer_.After(period, [this, period] { ScheduleWatchdog(period); });
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

void Daemon::OnReady() {
  admin_.GoOn();
  reporter_.Start();
  metrics_.KeepIn(options_.metrics_textfile);
  log::Info("idd.ready", {{"version", IDD_VERSION},
                          {"socket", options_.socket},
                          {"database", database_url_},
                          {"store", engine_.tags().store_health().up ? "up" : "down"}});
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

void Daemon::Leave() {
  if (engine_.is_stopping()) return;
  log::Info("idd.leaving", {{"action", "the rings stay open for the next idd"}});
  manager_.Notify("STOPPING=1");
  reporter_.Stop();
  engine_.Leave();
  loop_.Stop();
}

void Daemon::Reload() {
  if (engine_.is_stopping()) return;  // tails must go back to the store that granted them
  // A private idd stays one, even if its user may read the file by now.
  const std::string file = options_.skipped_file.empty() ? kDefaultConfig : "";
  const ParsedOptions parsed = ParseOptions(options_.arguments, file);
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
  if (plan.Changes("access")) ReportGroupsLeftOut(plan.options);
  const std::string skipped = options_.skipped_file;
  options_ = std::move(plan.options);
  options_.skipped_file = skipped;
  log::SetLevel(options_.log_level);
  engine_.tags().SetLeaseLimit(options_.lease_limit);
  engine_.journal().SetRetention(options_.journal_retention);
  reporter_.SetAddress(options_.host_address);
  admin_.SetHostAddress(options_.host_address);
  if (engine_.is_ready()) metrics_.KeepIn(options_.metrics_textfile);
  // Also if these have not changed: the group names may stand for other groups by now.
  server_.Configure(options_.access, options_.limits);
  if (!plan.not_changed.empty()) {
    log::Warning("config.needs_restart", {{"keys", KeyList(plan.not_changed)}});
  }
  log::Info("config.reloaded",
            {{"file", options_.config_file}, {"changed", KeyList(plan.changed)}});
}

Status Daemon::MoveDatabase(const Options& options) {
  Result<std::unique_ptr<Store>> store = MakeStore(options.database, engine_.host());
  if (!store.ok()) return store.status();
  database_url_ = store.value()->DisplayUrl();
  admin_.SetDatabase(database_url_, options.database);
  engine_.worker().Replace(std::move(store).value());
  engine_.journal().SetOpenStore(JournalOpener(options.database, engine_.host()));
  reporter_.Renew();
  return Status::Ok();
}

std::vector<SettingInForce> Daemon::SettingsInForce() const {
  std::vector<SettingInForce> settings;
  for (const SettingSource& setting : options_.settings) {
    const bool is_database = setting.key == "database";
    settings.push_back(
        {setting.key, is_database ? database_url_ : setting.value, setting.source, setting.where});
  }
  return settings;
}

void Daemon::Stop() {
  if (engine_.is_stopping()) return;
  manager_.Notify("STOPPING=1");
  server_.StopAccepting();
  reporter_.Stop();
  engine_.Stop([this](bool is_clean) {
    if (is_clean) {
      log::Info("idd.stopped", {});
    } else {
      log::Error(
          "idd.stop_timeout",
          {{"action",
            "leases not handed back are abandoned, or handed back by an idd that inherits them"}});
      exit_status_ = 1;
    }
    loop_.Stop();
  });
}

void Daemon::Fail(const Status& status) {
  log::Error("idd.failed", {{"error", status.message()}});
  exit_status_ = 1;
  loop_.Stop();
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
  // Two descriptors a served tag and one a connection: the default of 1024 would not do.
  if (Status status = RaiseDescriptorLimit(); !status.ok()) {
    log::Warning("limit.nofile", {{"error", status.message()}});
  }
  if (Status status = CheckRoomToStart(0); !status.ok()) return FailStart(status);
  if (!options.skipped_file.empty()) {
    log::Warning("config.skipped",
                 {{"file", options.skipped_file},
                  {"action",
                   "this user may not read it; database, socket and state directory are "
                   "given, so idd runs without it"}});
  }
  ReportGroupsLeftOut(options);
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
  // Before a ring is closed: until idd has room for new ones, programs claim from those that they
  // have.
  if (Status status = CheckRoomToStart(passed.size()); !status.ok()) return FailStart(status);
  Result<Inheritance> inheritance =
      TakeInheritance(std::move(passed), host.value().id, *marks.value());
  if (!inheritance.ok()) return FailStart(inheritance.status());
  Daemon daemon(options, {.engine = {.store = std::move(store).value(),
                                     .marks = std::move(marks).value(),
                                     .host = host.value(),
                                     .drained = std::move(drained).value(),
                                     .inheritance = std::move(inheritance).value()},
                          .listener = std::move(listener).value(),
                          .metrics_server = metrics_server.value().get()});
  const int exit_status = daemon.Run();
  // Every lease is with the store, the next idd or abandoned by now.
  EndProcessWithin(kEndLimit, exit_status);
  return exit_status;
}

}  // namespace idd::daemon
