// SPDX-License-Identifier: Apache-2.0
#include "scenario.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>

#include "machine.h"
#include "oracle.h"
#include "program.h"
#include "servers.h"
#include "simulated_store.h"
#include "stepped_store.h"
#include "store/sqlite/sqlite_store.h"
#include "store_file.h"

namespace idd::simulation {
namespace {

using Kind = Incident::Kind;

std::filesystem::path ScratchDir() {
  return std::filesystem::path("/dev/shm") / ("idd-simulation-" + std::to_string(::getpid()));
}

// The cluster of a seed: machines, servers, tags, programs.
class Scenario {
 public:
  Scenario(std::uint64_t seed, const Tracer& tracer);
  ~Scenario();
  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;
  RunResult Run(const std::vector<Incident>& incidents);

 private:
  void Setup();
  void SetupTags();
  [[nodiscard]] std::unique_ptr<daemon::Store> MakeStore(Machine& machine,
                                                         daemon::HostIdentity host);
  [[nodiscard]] bool HasTag(const std::string& tag);
  void AddProgram(Machine& machine);
  void Happen(const Incident& incident);
  void HappenToIdd(const Incident& incident);
  void HappenToProgram(const Incident& incident);
  void HappenToLink(const Incident& incident);
  void HappenToServer(const Incident& incident);
  void HappenToTag(const Incident& incident);
  void FailOver(const Incident& incident);
  void RestoreDump();
  void HappenToFile(const Incident& incident);
  void ForgetHost(const Incident& incident);
  void Heal();
  [[nodiscard]] bool HaveAllClaimed(Nanos since);
  void CheckLiveness(Nanos since);
  void CheckSums();
  [[nodiscard]] Nanos Duration(const Incident& incident, Nanos most) const;
  [[nodiscard]] Machine& MachineOf(const Incident& incident) {
    return *machines_[incident.who % machines_.size()];
  }
  [[nodiscard]] const std::string& TagOf(const Incident& incident) const {
    return tags_[incident.who % tags_.size()];
  }
  using OnAnswer = std::function<void(bool ok, const std::string& document)>;
  void Administer(Machine& machine, const std::string& request, OnAnswer on_answer = {});
  // An empty tag stands for the whole host.
  void Drain(const Incident& incident, Machine& machine, const std::string& tag);
  void Resume(Machine& machine, const std::string& tag);
  // Runs `undo` later, or when everything is healed.
  void Later(Nanos delay, std::function<void()> undo);
  void RunUntil(Nanos time);

  World world_;
  Oracle oracle_;
  Random setup_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<StoreFile> file_;  // the store is this one, and the cluster is not used
  std::vector<std::unique_ptr<Machine>> machines_;
  std::vector<std::string> tags_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::optional<DataSet> dump_;
  std::chrono::seconds fence_after_{0};
  unsigned programs_made_ = 0;
  std::uint64_t resumes_ = 0;  // so far
  bool is_healed_ = false;
  bool has_lost_data_ = false;  // the store, perhaps
};

Scenario::Scenario(std::uint64_t seed, const Tracer& tracer)
    : world_(seed), oracle_(world_), setup_(seed ^ 0x2545f4914f6cdd1d) {
  world_.SetTracer(tracer);
  Setup();
}

// The parts may not remove the folder that they share.
Scenario::~Scenario() {
  programs_.clear();
  machines_.clear();
  file_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(ScratchDir(), ignored);
}

void Scenario::Setup() {
  const auto access = static_cast<Access>(setup_.Below(3));
  const std::size_t servers = 1 + setup_.Below(3);
  cluster_ = std::make_unique<Cluster>(
      access, servers,
      [this](const Lease& lease, const std::string& host) { oracle_.OnLeased(lease, host); });
  if (setup_.Percent(30)) file_ = std::make_unique<StoreFile>(ScratchDir() / "store");
  fence_after_ = std::chrono::seconds(5 + setup_.Below(40));
  SetupTags();
  const std::size_t machines = 1 + setup_.Below(4);
  for (std::size_t i = 0; i < machines; ++i) {
    const std::string name = std::string("host-") + static_cast<char>('a' + i);
    Machine::Settings settings;
    settings.host_id = name;
    settings.has_manager = !setup_.Percent(25);
    settings.fence_after = fence_after_;
    machines_.push_back(std::make_unique<Machine>(
        name, settings,
        [this](Machine& machine, daemon::HostIdentity host) {
          return MakeStore(machine, std::move(host));
        },
        ScratchDir() / name));
    Machine& machine = *machines_.back();
    machine.link().latency = setup_.Between(50, 2000) * kMicrosecond;
    // Some machines come later.
    Later(setup_.Percent(70) ? 0 : setup_.Between(0, 30) * kSecond,
          [&machine] { machine.StartIdd(); });
    const std::size_t programs = 1 + setup_.Below(3);
    for (std::size_t k = 0; k < programs; ++k) AddProgram(machine);
  }
}

void Scenario::SetupTags() {
  const std::size_t tags = 1 + setup_.Below(3);
  static constexpr std::uint64_t kSteps[] = {5, 20, 100, 1000};
  for (std::size_t i = 0; i < tags; ++i) {
    tags_.push_back("tag" + std::to_string(i));
    const std::uint64_t step = kSteps[setup_.Below(std::size(kSteps))];
    daemon::NewTag tag;
    tag.tag = tags_.back();
    tag.step = step;
    tag.refill.max_prefetch = step * (2 + setup_.Below(50));
    tag.refill.outage_tolerance = std::chrono::seconds(1 + setup_.Below(30));
    if (setup_.Percent(10)) tag.access = daemon::TagAccess::kSocket;
    if (file_ != nullptr) {
      file_->CreateTag(tag);
    } else {
      cluster_->Commit(cluster_->primary(),
                       [tag](DataSet& data) { static_cast<void>(data.CreateTag(tag)); });
    }
  }
}

std::unique_ptr<daemon::Store> Scenario::MakeStore(Machine& machine, daemon::HostIdentity host) {
  if (file_ == nullptr) {
    return std::make_unique<SimulatedStore>(*cluster_, machine.link(), std::move(host));
  }
  daemon::SqliteStoreOptions options;
  options.path = file_->path();
  options.host_id = host.id;
  return std::make_unique<SteppedStore>(std::make_unique<daemon::SqliteStore>(std::move(options)),
                                        host.id, machine.disk(),
                                        [this](const Lease& lease, const std::string& leased_by) {
                                          oracle_.OnLeased(lease, leased_by);
                                        });
}

bool Scenario::HasTag(const std::string& tag) {
  return file_ == nullptr ? cluster_->primary().data.tags.contains(tag) : file_->HasTag(tag);
}

void Scenario::AddProgram(Machine& machine) {
  Random& random = world_.random();
  Program::Habits habits;
  habits.tags = tags_;
  static constexpr Nanos kPauses[] = {5 * kMillisecond, 50 * kMillisecond, 200 * kMillisecond};
  habits.pause = kPauses[random.Below(std::size(kPauses))];
  habits.most = random.Percent(70) ? 1 : 1 + random.Below(100);
  habits.stalls = random.Percent(50) ? 5 : 0;
  habits.loses_refills = random.Percent(20) ? 50 : 0;
  programs_.push_back(std::make_unique<Program>(
      machine.name() + "/p" + std::to_string(++programs_made_), machine, oracle_, habits));
}

Nanos Scenario::Duration(const Incident& incident, Nanos most) const {
  // Mostly short, sometimes as long as `most`.
  const std::uint64_t n = incident.how;
  const Nanos scale = (n >> 32) % 4 == 0 ? most : most / 20;
  return 1 + static_cast<Nanos>((n >> 8) % static_cast<std::uint64_t>(std::max<Nanos>(scale, 1)));
}

void Scenario::Later(Nanos delay, std::function<void()> undo) {
  world_.After(delay, [this, undo = std::move(undo)] {
    if (!is_healed_) undo();
  });
}

void Scenario::Administer(Machine& machine, const std::string& request, OnAnswer on_answer) {
  machine.Administer(request, [this, &machine, request, on_answer = std::move(on_answer)](
                                  bool ok, const std::string& document) {
    world_.Trace(machine.name() + ": " + request + (ok ? ": done" : ": " + document));
    if (on_answer) on_answer(ok, document);
  });
}

void Scenario::Drain(const Incident& incident, Machine& machine, const std::string& tag) {
  const std::string named = tag.empty() ? "" : R"(,"tag":")" + tag + '"';
  Administer(machine, R"({"op":"drain","wait_ms":1000)" + named + "}",
             [this, &machine, tag, resumes = resumes_](bool ok, const std::string&) {
               // Another operator's resume may have come first.
               if (ok && resumes == resumes_ && !machine.has_old_rings()) {
                 oracle_.OnDrained(machine.name(), tag);
               }
             });
  Later(Duration(incident, 20 * kSecond), [this, &machine, tag] { Resume(machine, tag); });
}

void Scenario::Resume(Machine& machine, const std::string& tag) {
  ++resumes_;
  oracle_.OnResumed(machine.name(), tag);
  Administer(machine,
             tag.empty() ? R"({"op":"resume"})" : R"({"op":"resume","tag":")" + tag + R"("})");
}

void Scenario::Happen(const Incident& incident) {
  switch (incident.kind) {
    case Kind::kKillIdd:
    case Kind::kKillIddAtStep:
    case Kind::kRestartIdd:
    case Kind::kStopIdd:
    case Kind::kSuspendIdd:
    case Kind::kPowerOff:
    case Kind::kDiskFull:
    case Kind::kDrainHost:
      return HappenToIdd(incident);
    case Kind::kNewProgram:
    case Kind::kKillProgram:
    case Kind::kSuspendProgram:
    case Kind::kForkProgram:
      return HappenToProgram(incident);
    case Kind::kCutLink:
    case Kind::kLossyLink:
    case Kind::kSlowLink:
      return HappenToLink(incident);
    case Kind::kKillServer:
    case Kind::kHangServer:
    case Kind::kFailOver:
    case Kind::kSetLag:
    case Kind::kDump:
    case Kind::kRestoreDump:
      return HappenToServer(incident);
    case Kind::kDeleteTag:
    case Kind::kCreateTag:
    case Kind::kSetStep:
    case Kind::kDrainTag:
    case Kind::kLeafTakes:
      return HappenToTag(incident);
    case Kind::kForgetHost:
      return ForgetHost(incident);
  }
}

void Scenario::HappenToIdd(const Incident& incident) {
  Machine& machine = MachineOf(incident);
  switch (incident.kind) {
    case Kind::kKillIdd:
      return machine.KillIdd();
    case Kind::kKillIddAtStep:
      return machine.KillIddAtStep(1 + incident.how % 100);
    case Kind::kRestartIdd:
      return machine.RestartIdd();
    case Kind::kStopIdd:
      machine.StopIdd();
      return Later(Duration(incident, 30 * kSecond), [&machine] { machine.StartIdd(); });
    case Kind::kSuspendIdd:
      machine.SuspendIdd();
      return Later(Duration(incident, 60 * kSecond), [&machine] { machine.ContinueIdd(); });
    case Kind::kPowerOff:
      if (!machine.is_on()) return;
      std::erase_if(programs_, [&machine](const auto& p) { return &p->machine() == &machine; });
      machine.PowerOff();
      return Later(Duration(incident, 90 * kSecond), [this, &machine] {
        machine.PowerOn();
        AddProgram(machine);
      });
    case Kind::kDiskFull:
      world_.Trace(machine.name() + ": the disk is full");
      machine.disk().is_full = true;
      return Later(Duration(incident, 20 * kSecond),
                   [&machine] { machine.disk().is_full = false; });
    default:
      return Drain(incident, machine, "");
  }
}

void Scenario::HappenToProgram(const Incident& incident) {
  if (incident.kind == Kind::kNewProgram || programs_.empty()) {
    Machine& machine = MachineOf(incident);
    if (machine.is_on() && programs_.size() < 12) AddProgram(machine);
    return;
  }
  const std::size_t which = incident.who % programs_.size();
  Program& program = *programs_[which];
  if (incident.kind == Kind::kKillProgram) {
    world_.Trace(program.name() + ": killed");
    programs_.erase(programs_.begin() + static_cast<std::ptrdiff_t>(which));
  } else if (incident.kind == Kind::kForkProgram) {
    if (programs_.size() >= 12) return;
    world_.Trace(program.name() + ": forks");
    programs_.push_back(std::make_unique<Program>(
        program.machine().name() + "/p" + std::to_string(++programs_made_), program.machine(),
        oracle_, program.habits(), program.attachments()));
  } else {
    program.process().Suspend();
    const std::string name = program.name();
    Later(Duration(incident, 60 * kSecond), [this, name] {
      for (const auto& other : programs_) {
        if (other->name() == name) other->process().Unsuspend();
      }
    });
  }
}

void Scenario::HappenToLink(const Incident& incident) {
  Machine& machine = MachineOf(incident);
  Link& link = machine.link();
  if (incident.kind == Kind::kCutLink) {
    world_.Trace(machine.name() + ": cut off from the servers");
    link.is_cut = true;
    Later(Duration(incident, 120 * kSecond), [&link] { link.is_cut = false; });
  } else if (incident.kind == Kind::kLossyLink) {
    world_.Trace(machine.name() + ": its link loses packets");
    link.lost = 1 + static_cast<unsigned>(incident.how % 30);
    Later(Duration(incident, 30 * kSecond), [&link] { link.lost = 0; });
  } else {
    const Nanos before = link.latency;
    link.latency = static_cast<Nanos>(1 + incident.how % 500) * kMillisecond;
    Later(Duration(incident, 20 * kSecond), [&link, before] { link.latency = before; });
  }
}

// What may happen to a file.
void Scenario::HappenToFile(const Incident& incident) {
  if (incident.kind == Kind::kDump) {
    file_->Dump();
  } else if (incident.kind == Kind::kRestoreDump && file_->has_dump()) {
    const bool is_in_place = incident.how % 2 == 0;
    world_.Met(is_in_place ? "a file was restored in place" : "a file was replaced by a copy");
    world_.Trace(is_in_place ? "the file is restored in place" : "the file is replaced by a copy");
    file_->Restore(is_in_place);
    has_lost_data_ = true;
  }
}

void Scenario::HappenToServer(const Incident& incident) {
  if (file_ != nullptr) return HappenToFile(incident);
  const std::size_t which = incident.who % cluster_->servers().size();
  Server& server = *cluster_->servers()[which];
  switch (incident.kind) {
    case Kind::kKillServer:
      world_.Trace(server.name + ": killed");
      cluster_->Kill(which);
      return Later(Duration(incident, 30 * kSecond), [this, which] { cluster_->Start(which); });
    case Kind::kHangServer:
      world_.Trace(server.name + ": hangs");
      server.hangs = true;
      return Later(Duration(incident, 20 * kSecond), [&server] { server.hangs = false; });
    case Kind::kFailOver:
      return FailOver(incident);
    case Kind::kSetLag:
      cluster_->SetLag(static_cast<Nanos>(incident.how % 10'000) * kMillisecond);
      return;
    case Kind::kDump:
      // An empty database is nothing to come back to.
      if (!cluster_->primary().is_up || cluster_->primary().data.incarnation.empty()) return;
      dump_ = cluster_->primary().data;
      return;
    default:
      return RestoreDump();
  }
}

// A replica becomes the primary, whatever it lacks. The old one is killed, is set read-only, or
// hangs until the manager of the failover has killed it.
void Scenario::FailOver(const Incident& incident) {
  if (cluster_->servers().size() < 2) return;
  const std::size_t old = cluster_->primary_number();
  const std::size_t next =
      (old + 1 + incident.who % (cluster_->servers().size() - 1)) % cluster_->servers().size();
  Server& before = *cluster_->servers()[old];
  const Server& after = *cluster_->servers()[next];
  // No operator promotes a server that has nothing yet.
  if (!after.is_up || after.hangs || after.data.incarnation.empty()) return;
  const char* how = "is killed";
  switch (incident.how % 3) {
    case 0:
      cluster_->Kill(old);
      break;
    case 1:
      how = "is read-only";
      before.is_read_only = true;
      break;
    default:
      how = "hangs";
      before.hangs = true;
      Later(std::chrono::nanoseconds(fence_after_).count() / 4, [this, old] {
        if (old != cluster_->primary_number()) cluster_->Kill(old);
      });
      break;
  }
  cluster_->Promote(next);
  has_lost_data_ = true;
  world_.Met("a failover");
  world_.Trace(cluster_->primary().name + ": is the primary; " + before.name + " " + how);
  Later(Duration(incident, 60 * kSecond), [this, old] {
    if (old == cluster_->primary_number()) return;
    world_.Trace(cluster_->servers()[old]->name + ": is a replica");
    cluster_->Reseed(old);
  });
}

void Scenario::RestoreDump() {
  if (!dump_.has_value()) return;
  Server& server = cluster_->primary();
  has_lost_data_ = true;
  world_.Met("a dump was restored");
  world_.Trace(server.name + ": a dump is restored");
  server.data = *dump_;
  ++server.tables;
  for (std::size_t i = 0; i < cluster_->servers().size(); ++i) cluster_->Reseed(i);
}

void Scenario::HappenToTag(const Incident& incident) {
  const std::string& tag = TagOf(incident);
  Machine& machine = *machines_[incident.how % machines_.size()];
  const std::string named = R"(,"tag":")" + tag + '"';
  switch (incident.kind) {
    case Kind::kDeleteTag:
      // That ends the drains of the name.
      ++resumes_;
      for (const auto& other : machines_) oracle_.OnResumed(other->name(), tag);
      return Administer(machine, R"({"op":"tag.delete","force":true)" + named + "}");
    case Kind::kCreateTag:
      return Administer(machine, R"({"op":"tag.create","if_absent":true,"step":50)" + named + "}");
    case Kind::kSetStep:
      return Administer(machine, R"({"op":"tag.set","step":)" +
                                     std::to_string(1 + (incident.how >> 8) % 500) +
                                     R"(,"max_prefetch":5000)" + named + "}");
    case Kind::kDrainTag:
      return Drain(incident, machine, tag);
    default: {
      if (file_ != nullptr) return;
      Server& server = cluster_->primary();
      if (!server.is_up || server.hangs || server.is_read_only) return;
      std::optional<shm::IdRange> taken;
      cluster_->Commit(server, [&server, &taken, tag, n = 1 + incident.how % 1000](DataSet& data) {
        const std::optional<shm::IdRange> ids = data.TakeAsLeaf(tag, n);
        if (&data == &server.data) taken = ids;
      });
      world_.Met("a Leaf server took ids");
      return;
    }
  }
}

void Scenario::ForgetHost(const Incident& incident) {
  for (const auto& off : machines_) {
    if (off->is_on()) continue;
    world_.Met("an operator forgot a host that is off");
    return Administer(MachineOf(incident),
                      R"({"op":"host.forget","host":")" + off->host_id() + R"("})");
  }
}

// All faults end, and every machine has a program.
void Scenario::Heal() {
  world_.Trace("all faults end");
  is_healed_ = true;
  cluster_->SetLag(0);
  cluster_->Start(cluster_->primary_number());
  cluster_->primary().hangs = false;
  cluster_->primary().is_read_only = false;
  for (std::size_t i = 0; i < cluster_->servers().size(); ++i) cluster_->Reseed(i);
  for (const auto& program : programs_) program->process().Unsuspend();
  for (const auto& machine : machines_) {
    machine->link().is_cut = false;
    machine->link().lost = 0;
    machine->link().latency = kMillisecond;
    machine->disk().is_full = false;
    machine->PowerOn();
    machine->ContinueIdd();
    machine->KillIddAtStep(0);
    machine->KeepIddRunning();
    AddProgram(*machine);
  }
}

bool Scenario::HaveAllClaimed(Nanos since) {
  for (const auto& machine : machines_) {
    if (!machine->store_is_up()) return false;
  }
  return std::all_of(tags_.begin(), tags_.end(), [this, since](const std::string& tag) {
    return !HasTag(tag) ||
           std::all_of(programs_.begin(), programs_.end(), [&tag, since](const auto& program) {
             return program->LastClaim(tag).value_or(0) > since;
           });
  });
}

void Scenario::CheckLiveness(Nanos since) {
  for (const auto& machine : machines_) {
    if (!machine->store_is_up()) oracle_.Fail("stuck: " + machine->name() + " has no store");
  }
  for (const auto& program : programs_) {
    for (const std::string& tag : tags_) {
      if (!HasTag(tag)) continue;
      if (program->LastClaim(tag).value_or(0) > since) continue;
      oracle_.Fail("stuck: " + program->name() + " has no ids of " + tag +
                   " long after all faults have ended: " + program->LastStatus(tag).message());
    }
  }
}

// Everything stops in good order.
void Scenario::CheckSums() {
  programs_.clear();
  for (const auto& machine : machines_) machine->StopIdd();
  RunUntil(world_.now() + 20 * kSecond);
  for (const auto& machine : machines_) {
    if (machine->idd_runs()) oracle_.Fail("stuck: idd on " + machine->name() + " does not stop");
  }
  if (oracle_.failure().has_value()) return;
  world_.Met("the journal was compared with all claims");
  oracle_.CheckJournal(file_ == nullptr ? cluster_->primary().data.journal : file_->Journal());
}

void Scenario::RunUntil(Nanos time) {
  while (world_.now() < time && !oracle_.failure().has_value()) {
    world_.RunUntil(std::min(time, world_.now() + 100 * kMillisecond));
  }
}

RunResult Scenario::Run(const std::vector<Incident>& incidents) {
  for (const Incident& incident : incidents) {
    RunUntil(incident.at);
    if (oracle_.failure().has_value()) break;
    world_.Met(IncidentName(incident.kind));
    Happen(incident);
  }
  if (!oracle_.failure().has_value()) {
    RunUntil(world_.now() + 5 * kSecond);
    Heal();
    for (int second = 0; second < 5; ++second) {
      RunUntil(world_.now() + kSecond);
      for (const auto& machine : machines_) {
        Resume(*machine, "");
        for (const std::string& tag : tags_) Resume(*machine, tag);
      }
    }
    const Nanos healed = world_.now();
    const Nanos limit = healed + std::chrono::nanoseconds(fence_after_).count() + 70 * kSecond;
    while (world_.now() < limit && !oracle_.failure().has_value() && !HaveAllClaimed(healed)) {
      RunUntil(world_.now() + kSecond);
    }
    if (!oracle_.failure().has_value()) CheckLiveness(healed);
    if (!oracle_.failure().has_value() && !has_lost_data_) CheckSums();
  }
  return {.failure = oracle_.failure(),
          .trace_hash = world_.trace_hash(),
          .events = world_.events(),
          .claimed = oracle_.claimed(),
          .leases = oracle_.leases(),
          .met = world_.met()};
}

// What kind of failure it is: "twice", "stuck" ...
std::string KindOf(const std::optional<std::string>& failure) {
  return failure.value_or("").substr(0, failure.value_or("").find(':'));
}

}  // namespace

RunResult RunScenario(std::uint64_t seed, const std::vector<Incident>& incidents,
                      const Tracer& tracer) {
  Scenario scenario(seed, tracer);
  return scenario.Run(incidents);
}

std::vector<Incident> Shrink(std::uint64_t seed, std::vector<Incident> incidents) {
  const std::string kind = KindOf(RunScenario(seed, incidents).failure);
  for (std::size_t part = std::max<std::size_t>(incidents.size() / 2, 1); part > 0; part /= 2) {
    for (std::size_t begin = 0; begin < incidents.size();) {
      std::vector<Incident> fewer = incidents;
      const std::size_t end = std::min(begin + part, fewer.size());
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(begin),
                  fewer.begin() + static_cast<std::ptrdiff_t>(end));
      if (KindOf(RunScenario(seed, fewer).failure) == kind) {
        incidents = std::move(fewer);
      } else {
        begin += part;
      }
    }
  }
  return incidents;
}

}  // namespace idd::simulation
