// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "access/access_rules.h"
#include "access/client_ledger.h"
#include "admin/admin.h"
#include "exporter/metrics_collector.h"
#include "idd/base/check.h"
#include "leasing/high_water.h"
#include "platform/random.h"

namespace idd::simulation {
namespace {

// How long a service manager takes to start a service again.
constexpr Nanos kRestartDelay = 100 * kMillisecond;

ScopedFd Duplicate(int fd) { return ScopedFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

}  // namespace

// A service manager's descriptor store, which outlives idd.
class Machine::Descriptors final : public daemon::DescriptorStore {
 public:
  Descriptors(Machine& machine, daemon::EventLoop& loop)
      : machine_(machine),
        loop_(loop),
        kept_(machine.kept_),
        keeps_(machine.settings_.has_manager && !machine.is_by_hand_) {}

  void Keep(const std::string& name, int fd) override {
    if (!keeps_ || Process::Current()->is_dead()) return;
    machine_.Step();
    kept_[name] = Duplicate(fd);
    machine_.Step();
    Thread::Current()->Sleep(World::Get().random().Between(1, 50) * kMicrosecond);
  }
  // Destructors call it, so no kill comes here.
  void Drop(const std::string& name) override {
    if (keeps_ && !Process::Current()->is_dead()) kept_.erase(name);
  }
  void WhenHandled(std::function<void()> done) override { loop_.Post(std::move(done)); }
  [[nodiscard]] bool keeps() const noexcept override { return keeps_; }

 private:
  Machine& machine_;
  daemon::EventLoop& loop_;
  std::map<std::string, ScopedFd>& kept_;
  const bool keeps_;
};

// The objects on the stack of idd's main thread.
struct Machine::Running {
  daemon::EventLoop& loop;
  daemon::Engine& engine;
  daemon::Admin& admin;
  std::uint64_t run = 0;
};

Machine::Machine(
    std::string name, Settings settings,
    std::function<std::unique_ptr<daemon::Store>(Machine&, daemon::HostIdentity)> make_store,
    std::filesystem::path dir)
    : name_(std::move(name)),
      settings_(std::move(settings)),
      make_store_(std::move(make_store)),
      dir_(std::move(dir)),
      clock_(World::Get().random().Between(1, 1'000'000) * kSecond),
      boot_id_(daemon::RandomToken()) {
  std::filesystem::create_directories(dir_ / "0");
}

Machine::~Machine() {
  LoseProcess();
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

// CLOCK_BOOTTIME begins with the boot.
std::int64_t Machine::BootTimeMs() const {
  return (World::Get().now() - booted_at_) / kMillisecond + 10'000;
}

void Machine::Main() {
  // As RunDaemon() and Daemon do it, without what needs the kernel.
  daemon::EventLoop loop;
  Descriptors descriptors(*this, loop);
  Result<std::unique_ptr<daemon::HighWaterMarks>> opened =
      daemon::HighWaterMarks::Open((dir_ / std::to_string(disk_version_)).string());
  IDD_CHECK(opened.ok());
  auto marks = std::make_unique<SteppedMarks>(std::move(opened).value(), disk_, [this] { Step(); });
  const Result<std::string> instance = marks->FallbackHostId();
  IDD_CHECK(instance.ok());
  const Result<daemon::WitnessState> witness = marks->GetWitnessState();
  IDD_CHECK(witness.ok());
  const Result<std::uint64_t> number = marks->NextRunNumber();
  const daemon::HostIdentity host{.id = settings_.host_id,
                                  .boot_id = boot_id_,
                                  .instance = instance.value(),
                                  .disk = witness.value().disk,
                                  .run_number = number.ok() ? number.value() : 0};
  Result<std::vector<std::string>> drained = marks->Drained();
  IDD_CHECK(drained.ok());
  std::vector<daemon::PassedDescriptor> passed;
  for (const auto& [name, fd] : kept_) {
    if (is_by_hand_) break;
    passed.push_back({.name = name, .fd = Duplicate(fd.get())});
  }
  Result<daemon::Inheritance> inheritance =
      daemon::TakeInheritance(std::move(passed), host.id, *marks);
  if (!inheritance.ok()) {
    World::Get().Trace(name_ + ": idd cannot start: " + inheritance.status().message());
    starts_again_ = true;
    return;
  }
  daemon::Admin* the_admin = nullptr;
  daemon::Engine engine(loop, descriptors,
                        {.leases_per_s = settings_.leases_per_s,
                         .most_tags_to_warm = 1000,
                         .boot_time_ms = [this] { return BootTimeMs(); }},
                        {.store = make_store_(*this, host),
                         .marks = std::move(marks),
                         .host = host,
                         .drained = std::move(drained).value(),
                         .inheritance = std::move(inheritance).value()},
                        {.listen = [this] { return listens_ = true; },
                         .on_ready =
                             [this, &the_admin] {
                               World::Get().Trace(name_ + ": idd is ready");
                               the_admin->GoOn();
                             },
                         .on_failed =
                             [this, &loop](const Status& status) {
                               World::Get().Trace(name_ + ": idd fails: " + status.message());
                               starts_again_ = true;
                               loop.Stop();
                             },
                         .on_poll = [](std::chrono::nanoseconds) {}});
  daemon::MetricsCollector collector(loop, engine.tags());
  const daemon::ClientLedger clients;
  daemon::DaemonInfo info;
  info.version = "simulated";
  info.host_id = host.id;
  info.has_manager = settings_.has_manager;
  daemon::Admin admin(
      loop, std::move(info),
      {.worker = engine.worker(),
       .tags = engine.tags(),
       .metrics = collector,
       .clients = clients,
       .open_reader = [this,
                       host](const std::string&) -> Result<std::unique_ptr<daemon::StoreReader>> {
         std::unique_ptr<daemon::Store> reader = make_store_(*this, host);
         if (Status status = reader->Open(); !status.ok()) return status;
         return std::unique_ptr<daemon::StoreReader>(std::move(reader));
       }});
  the_admin = &admin;
  Running running{.loop = loop, .engine = engine, .admin = admin, .run = run_};
  runs_ = &running;
  struct Ended {
    Machine& machine;
    ~Ended() { machine.runs_ = nullptr; }
  } const ended{*this};
  admin.Hold();
  engine.Start();
  NoteInherited(engine.tags());
  loop.Run();
}

// Leases that are used up are closed, and what they were is forgotten.
void Machine::NoteInherited(const daemon::TagService& tags) {
  std::map<std::string, Nanos> since;
  for (const daemon::TagSnapshot& tag : tags.Snapshot()) {
    const bool has_ids = std::any_of(tag.leases.begin(), tag.leases.end(),
                                     [](const auto& use) { return use.available() != 0; });
    if (has_ids) since[tag.tag] = BeganWithout(tag.tag);
  }
  remembers_since_ = std::move(since);
  run_began_ = World::Get().now();
}

// When the first idd began of those that inherited leases of the tag from each other.
Nanos Machine::BeganWithout(const std::string& tag) const {
  const auto it = remembers_since_.find(tag);
  return it == remembers_since_.end() ? run_began_ : it->second;
}

Nanos Machine::forgot_at(const std::string& tag) const {
  Nanos at = std::max(BeganWithout(tag), unseen_time_at_);
  for (const std::string& drained : {tag, std::string()}) {
    const auto it = drains_.find(drained);
    if (it != drains_.end()) at = std::max(at, it->second);
  }
  return at;
}

void Machine::StepClock(Nanos by) {
  const Nanos now = World::Get().now();
  clock_.Step(by);
  if (by > 10 * kSecond) clock_ahead_at_ = now;  // less is taken for a clock that went on
  if (by < 0) NoteClockBack();
}

void Machine::SetClockRight() {
  clock_.SetRight();
  NoteClockBack();
}

// If claims followed a time that idd has not seen, it takes their cursors for forged.
void Machine::NoteClockBack() {
  // How often idd looks at the rings of tags that are not used.
  constexpr Nanos kIdleLook = 4 * kSecond + 200 * kMillisecond;
  const Nanos now = World::Get().now();
  const bool is_suspended = idd_ != nullptr && idd_->is_suspended();
  const bool was_unseen = now - clock_ahead_at_ <= kIdleLook ||
                          (is_suspended && suspended_at_ <= clock_ahead_at_ + kIdleLook);
  if (was_unseen) unseen_time_at_ = now;
}

// A drain of the host ends with that of its last tag, and that of a tag with the host's.
void Machine::NoteResume(const std::string& tag) {
  for (auto& [drained, resumed_at] : drains_) {
    if (tag.empty() || drained.empty() || drained == tag) resumed_at = World::Get().now();
  }
}

void Machine::StartIdd() {
  if (idd_ != nullptr || !is_on_) return;
  World::Get().Trace(name_ + ": idd starts");
  starts_again_ = false;
  listens_ = false;
  ++run_;
  idd_ = std::make_unique<Process>(name_ + "/idd", clock_);
  idd_->Start([this] { Main(); }, [this] { EndIdd(); });
}

// idd has ended by itself.
void Machine::EndIdd() {
  World::Get().Trace(name_ + ": idd has ended");
  listens_ = false;
  idd_.reset();
  const bool was_by_hand = is_by_hand_;
  is_by_hand_ = false;
  if (!starts_again_) {
    // The manager drops the descriptors of a service that was stopped.
    if (was_by_hand) return;
    is_list_lost_ |= !kept_.empty();   // idd could not end its leases
    has_old_rings_ |= !kept_.empty();  // and its rings are still mapped
    kept_.clear();
    return;
  }
  World::Get().After(kRestartDelay, [this, boots = boots_] {
    if (boots == boots_) StartIdd();
  });
}

void Machine::StopIdd() {
  if (runs_ == nullptr) return;
  World::Get().Trace(name_ + ": systemctl stop idd");
  starts_again_ = false;
  runs_->loop.Post([this] {
    if (runs_ == nullptr || runs_->engine.is_stopping()) return;
    listens_ = false;
    runs_->engine.Stop([this](bool is_clean) {
      World::Get().Trace(name_ + (is_clean ? ": idd stopped" : ": idd stopped without the store"));
      if (!is_clean) World::Get().Met("a stop without the store");
      runs_->loop.Stop();
    });
  });
}

void Machine::RestartIdd() {
  if (runs_ == nullptr) return;
  if (!settings_.has_manager) {
    StopIdd();
    starts_again_ = true;
    return;
  }
  World::Get().Trace(name_ + ": systemctl restart idd");
  World::Get().Met("a restart with inherited rings");
  starts_again_ = true;
  runs_->loop.Post([this] {
    if (runs_ == nullptr || runs_->engine.is_stopping()) return;
    runs_->engine.Leave();
    runs_->loop.Stop();
  });
}

// The disk is left as it is at this moment: what destructors write goes to the old copy.
void Machine::CopyDisk() {
  const std::filesystem::path before = dir_ / std::to_string(disk_version_);
  std::filesystem::copy(before, dir_ / std::to_string(++disk_version_));
}

void Machine::LoseProcess() {
  if (idd_ == nullptr) return;
  if (!idd_->is_dead()) CopyDisk();
  idd_->Kill();
  idd_.reset();
  listens_ = false;
  steps_to_live_ = 0;
  std::filesystem::remove_all(dir_ / std::to_string(disk_version_ - 1));
}

void Machine::StartAgainLater() {
  if (!settings_.has_manager || is_by_hand_) has_old_rings_ = true;
  is_by_hand_ = false;
  World::Get().After(kRestartDelay, [this, boots = boots_] {
    if (boots == boots_) StartIdd();
  });
}

void Machine::RunIddByHand() {
  if (idd_ == nullptr) return;
  World::Get().Trace(name_ + ": kill -9 idd, and another one is started by hand");
  World::Get().Met("idd was run by hand");
  LoseProcess();
  has_old_rings_ = true;
  is_list_lost_ = true;
  is_by_hand_ = true;
  StartIdd();
}

void Machine::KillIdd() {
  if (idd_ == nullptr) return;
  World::Get().Trace(name_ + ": kill -9 idd");
  World::Get().Met("idd was killed");
  LoseProcess();
  StartAgainLater();
}

void Machine::Step() {
  if (steps_to_live_ == 0 || --steps_to_live_ != 0 || Process::Current() != idd_.get()) return;
  World::Get().Trace(name_ + ": kill -9 idd in the middle of a step");
  World::Get().Met("idd was killed in the middle of a step");
  CopyDisk();
  World::Get().After(0, [this, run = run_] {
    if (run != run_ || idd_ == nullptr) return;
    LoseProcess();
    StartAgainLater();
  });
  idd_->Die();
}

void Machine::SuspendIdd() {
  if (idd_ == nullptr || idd_->is_suspended()) return;
  suspended_at_ = World::Get().now();
  World::Get().Trace(name_ + ": kill -STOP idd");
  idd_->Suspend();
}

void Machine::ContinueIdd() {
  if (idd_ == nullptr || !idd_->is_suspended()) return;
  World::Get().Trace(name_ + ": kill -CONT idd");
  idd_->Unsuspend();
}

void Machine::KeepIddRunning() {
  starts_again_ = true;
  StartIdd();
}

void Machine::PowerOff() {
  if (!is_on_) return;
  World::Get().Trace(name_ + ": power off");
  World::Get().Met("a machine lost its power");
  LoseProcess();
  is_list_lost_ = true;
  kept_.clear();
  has_old_rings_ = false;
  is_by_hand_ = false;  // the service manager starts it after the boot
  is_on_ = false;
  ++boots_;
}

void Machine::PowerOn() {
  if (is_on_) return;
  World::Get().Trace(name_ + ": power on");
  is_on_ = true;
  booted_at_ = World::Get().now();
  boot_id_ = daemon::RandomToken();
  StartIdd();
}

// Precondition: it is off.
void Machine::CopyDiskFrom(const Machine& other) {
  const std::filesystem::path before = dir_ / std::to_string(disk_version_);
  const std::filesystem::path after = dir_ / std::to_string(++disk_version_);
  std::filesystem::copy(other.dir_ / std::to_string(other.disk_version_), after);
  std::filesystem::remove_all(before);
}

bool Machine::store_is_up() const {
  return runs_ != nullptr && runs_->engine.is_ready() && runs_->engine.tags().store_health().up;
}

void Machine::Post(std::function<void(daemon::TagService&)> request) {
  if (runs_ == nullptr) return;
  runs_->loop.Post([this, run = run_, request = std::move(request)] {
    if (runs_ != nullptr && runs_->run == run) request(runs_->engine.tags());
  });
}

void Machine::Administer(const std::string& request, std::function<void(bool, std::string)> done) {
  if (runs_ == nullptr || !listens_) return;
  runs_->loop.Post([this, request, done = std::move(done)] {
    const daemon::PeerRights root(std::make_shared<daemon::AccessRules>(), daemon::Peer{});
    runs_->admin.Handle(request, root, [done](const Status& status, const std::string& document) {
      World::Get().After(0, [done, ok = status.ok(), document] { done(ok, document); });
    });
  });
}

}  // namespace idd::simulation
