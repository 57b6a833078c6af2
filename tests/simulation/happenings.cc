// SPDX-License-Identifier: Apache-2.0
//
// ClusterRun: what each incident does.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

#include "cluster_run.h"
#include "snowflakes.h"

namespace idd::simulation {
namespace {

using Kind = Incident::Kind;

// How long a machine may be off, and a clone of it on.
constexpr Nanos kLongOff = 60 * kSecond;
// How long an old primary that hangs is there.
constexpr Nanos kHangs = 6 * kSecond;

}  // namespace

Nanos ClusterRun::Duration(const Incident& incident, Nanos most) const {
  // Mostly short, sometimes as long as `most`.
  const std::uint64_t n = incident.how;
  const Nanos scale = (n >> 32) % 4 == 0 ? most : most / 20;
  return 1 + static_cast<Nanos>((n >> 8) % static_cast<std::uint64_t>(std::max<Nanos>(scale, 1)));
}

void ClusterRun::Administer(Machine& machine, const std::string& request, OnAnswer on_answer) {
  machine.Administer(request, [this, &machine, request, on_answer = std::move(on_answer)](
                                  bool ok, const std::string& document) {
    world_.Trace(machine.name() + ": " + request +
                 (ok ? ": done" : ": " + WithoutFolder(document)));
    if (on_answer) on_answer(ok, document);
  });
}

void ClusterRun::Drain(const Incident& incident, Machine& machine, const std::string& tag) {
  // The kill may come while the ids that the drain hands back are on their way.
  if ((incident.how >> 44) % 3 == 0) machine.KillIddAtStep(1 + (incident.how >> 46) % 30);
  machine.NoteDrain(tag);
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

void ClusterRun::Resume(Machine& machine, const std::string& tag, OnAnswer on_answer) {
  ++resumes_;
  oracle_.OnResumed(machine.name(), tag);
  machine.NoteResume(tag);
  Administer(machine,
             tag.empty() ? R"({"op":"resume"})" : R"({"op":"resume","tag":")" + tag + R"("})",
             std::move(on_answer));
}

void ClusterRun::Happen(const Incident& incident) {
  switch (incident.kind) {
    case Kind::kKillIdd:
    case Kind::kKillIddAtStep:
    case Kind::kRestartIdd:
    case Kind::kStopIdd:
    case Kind::kSuspendIdd:
    case Kind::kPowerOff:
    case Kind::kDiskFull:
    case Kind::kDrainHost:
    case Kind::kRunByHand:
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
    case Kind::kCloneHost:
      return CloneHost(incident);
    case Kind::kSetWitnesses:
      return SetWitnesses(incident);
    case Kind::kClockBack:
    case Kind::kClockAhead:
    case Kind::kClockRight:
      return HappenToClock(incident);
  }
}

void ClusterRun::HappenToIdd(const Incident& incident) {
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
      RemovePrograms(machine);
      machine.PowerOff();
      return Later(Duration(incident, kLongOff), [this, &machine] {
        machine.PowerOn();
        AddProgram(machine);
      });
    case Kind::kRunByHand:
      machine.RunIddByHand();
      return Later(Duration(incident, 20 * kSecond), [&machine] { machine.KillIdd(); });
    case Kind::kDiskFull:
      world_.Trace(machine.name() + ": the disk is full");
      machine.disk().is_full = true;
      return Later(Duration(incident, 20 * kSecond),
                   [&machine] { machine.disk().is_full = false; });
    default:
      return Drain(incident, machine, "");
  }
}

void ClusterRun::HappenToProgram(const Incident& incident) {
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

void ClusterRun::HappenToLink(const Incident& incident) {
  Machine& machine = MachineOf(incident);
  Link& link = machine.link();
  if (incident.kind == Kind::kCutLink) {
    const Nanos duration = Duration(incident, 120 * kSecond);
    if ((incident.how >> 40) % 2 == 0) {
      world_.Trace(machine.name() + ": cut off from the servers");
      link.is_cut = true;
      return Later(duration, [&link] { link.is_cut = false; });
    }
    const Server& server = *cluster_->servers()[(incident.how >> 41) % cluster_->servers().size()];
    world_.Met("a host was cut off from one server");
    world_.Trace(machine.name() + ": cut off from " + server.name);
    link.cut_from.insert(server.number);
    Later(duration, [&link, number = server.number] { link.cut_from.erase(number); });
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

// The incidents of a store in a file.
void ClusterRun::HappenToFile(const Incident& incident) {
  if (incident.kind == Kind::kDump) {
    file_->Dump();
  } else if (incident.kind == Kind::kRestoreDump && file_->has_dump()) {
    LoseData();
    // The witness protects several hosts on one file. Without it, each host has its own marks only.
    if (incident.how % 3 == 2 && machines_.size() == 1) {
      world_.Met("a file was restored with its witness");
      world_.Trace("idd is killed, and the file and its witness are restored");
      machines_.front()->KillIdd();
      return file_->Restore(StoreFile::How::kWithWitness);
    }
    const bool is_in_place = incident.how % 2 == 0;
    world_.Met(is_in_place ? "a file was restored in place" : "a file was replaced by a copy");
    world_.Trace(is_in_place ? "the file is restored in place" : "the file is replaced by a copy");
    file_->Restore(is_in_place ? StoreFile::How::kInPlace : StoreFile::How::kByCopy);
  }
}

void ClusterRun::HappenToServer(const Incident& incident) {
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
      if (!cluster_->primary().is_up || cluster_->primary().data.term.term.number == 0) return;
      dump_ = Dump{.data = cluster_->primary().data,
                   .made_at = world_.now(),
                   .server = cluster_->primary_number(),
                   .life = cluster_->primary().life,
                   .connections = cluster_->primary().connections,
                   .tables = cluster_->primary().tables};
      return;
    default:
      return RestoreDump(incident);
  }
}

void ClusterRun::LoseData() {
  has_lost_data_ = true;
  oracle_.OnDataLost();
}

// A replica becomes the primary, whatever it lacks. The old one is killed, is set read-only, or
// hangs until the manager of the failover has killed it.
void ClusterRun::FailOver(const Incident& incident) {
  if (cluster_->servers().size() < 2) return;
  const std::size_t old = cluster_->primary_number();
  const std::size_t next =
      (old + 1 + incident.who % (cluster_->servers().size() - 1)) % cluster_->servers().size();
  Server& before = *cluster_->servers()[old];
  const Server& after = *cluster_->servers()[next];
  // No operator promotes a server that has nothing yet.
  if (!after.is_up || after.hangs || after.data.term.term.number == 0) return;
  if (has_two_primaries_) return LeaveInUse(next);
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
      Later(kHangs, [this, old] {
        if (old != cluster_->primary_number()) cluster_->Kill(old);
      });
      break;
  }
  cluster_->Promote(next, Cluster::OldPrimary::kEnds);
  LoseData();
  world_.Met("a failover");
  world_.Trace(cluster_->primary().name + ": is the primary; " + before.name + " " + how);
  Later(Duration(incident, 60 * kSecond), [this, old] {
    if (old == cluster_->primary_number()) return;
    world_.Trace(cluster_->servers()[old]->name + ": is a replica");
    cluster_->Reseed(old);
  });
}

// The old primary stays in use until all is healed, for the hosts that are connected to it and for
// those that come to it first. Now and then a host moves; in half of the seeds often, and in one of
// three never.
void ClusterRun::LeaveInUse(std::size_t server) {
  const std::uint64_t old = cluster_->primary_number();
  cluster_->Promote(server, Cluster::OldPrimary::kStaysInUse);
  LoseData();
  world_.Met("a failover");
  world_.Trace(cluster_->primary().name + ": is the primary; " + cluster_->servers()[old]->name +
               " stays in use");
  for (const auto& machine : machines_) {
    if (two_primaries_.Percent(50)) machine->link().stays_at = old;
  }
  if (!stay_apart()) MoveHost();
}

void ClusterRun::MoveHost() {
  const Nanos longest = seed_ % 2 == 0 ? 30 * kSecond : 3 * kSecond;
  Later(two_primaries_.Between(kMillisecond, longest), [this] {
    Machine& machine = *machines_[two_primaries_.Below(machines_.size())];
    const std::uint64_t server = two_primaries_.Below(cluster_->servers().size());
    world_.Trace(machine.name() + ": uses " + cluster_->servers()[server]->name + " if it can");
    machine.link().stays_at = server;
    ++machine.link().moves;
    // A step in which it begins a term there, or enters one, may be its last.
    if (two_primaries_.Percent(20)) machine.KillIddAtStep(1 + two_primaries_.Below(60));
    MoveHost();
  });
}

void ClusterRun::RestoreDump(const Incident& incident) {
  if (!dump_.has_value()) return;
  Server& server = cluster_->primary();
  LoseData();
  server.data = dump_->data;
  const bool is_of_this_life = dump_->server == server.number && dump_->life == server.life;
  // Nothing shows that a younger snapshot was restored.
  const bool is_old_enough = world_.now() - dump_->made_at >= 6 * kSecond;
  if (incident.how % 2 == 0 && is_of_this_life && is_old_enough) {
    world_.Met("a server's machine was set back to a snapshot");
    world_.Trace(server.name + ": its machine is set back to a snapshot of its memory");
    server.tables = dump_->tables;
    server.connections = dump_->connections;
    server.set_back_at = world_.now();
    server.set_back_to = dump_->made_at;
  } else {
    world_.Met("a dump was restored");
    world_.Trace(server.name + ": a dump is restored");
    server.tables = ++tables_made_;
  }
  for (const auto& other : cluster_->servers()) {
    if (!other->is_left_in_use) cluster_->Reseed(other->number);
  }
}

void ClusterRun::HappenToTag(const Incident& incident) {
  const std::string& tag = TagOf(incident);
  Machine& machine = *machines_[incident.how % machines_.size()];
  const std::string named = R"(,"tag":")" + tag + '"';
  const auto snowflake = std::find_if(snowflakes_.begin(), snowflakes_.end(),
                                      [&tag](const auto& other) { return other.tag == tag; });
  if (snowflake != snowflakes_.end()) {
    if (incident.kind == Kind::kCreateTag) return Administer(machine, CreateRequest(*snowflake));
    if (incident.kind == Kind::kLeafTakes) return MoveCounter(incident, *snowflake);
    if (incident.kind == Kind::kSetStep) {
      return Administer(machine, R"({"op":"tag.set","outage_tolerance_s":)" +
                                     std::to_string(1 + (incident.how >> 8) % 30) + named + "}");
    }
  }
  switch (incident.kind) {
    case Kind::kDeleteTag:
      // That ends the drains of the name.
      ++resumes_;
      for (const auto& other : machines_) oracle_.OnResumed(other->name(), tag);
      oracle_.OnDeleted(tag);
      return Administer(machine, R"({"op":"tag.delete","force":true)" + named + "}");
    case Kind::kCreateTag:
      oracle_.Allow(tag, {.step = 50, .max_prefetch = 2500});
      return Administer(
          machine,
          R"({"op":"tag.create","if_absent":true,"step":50,"max_prefetch":2500)" + named + "}");
    case Kind::kSetStep:
      oracle_.Allow(tag, {.step = 500, .max_prefetch = 5000});
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
      if (taken.has_value() && !has_lost_data_) oracle_.OnLeafTook(tag, *taken);
      world_.Met("a Leaf server took ids");
      return;
    }
  }
}

// An operator, or another program, moves the counter of a worker id ahead.
void ClusterRun::MoveCounter(const Incident& incident, const daemon::NewTag& tag) {
  if (file_ != nullptr) return;
  Server& server = cluster_->primary();
  if (!server.is_up || server.hangs || server.is_read_only) return;
  const std::vector<WorkerRecord> workers = ListWorkers(tag.tag, "");
  if (workers.empty()) return;
  const std::uint64_t ms = (incident.how >> 8) % 60'000;
  const std::string counter =
      daemon::CounterName(tag.tag, workers[incident.how % workers.size()].worker);
  const std::uint64_t numbers = tag.snowflake->FirstOf(ms / tag.snowflake->unit_ms);
  world_.Met("an operator moved a worker id's counter ahead");
  world_.Trace(counter + ": moved ahead by " + std::to_string(ms) + " ms");
  cluster_->Commit(server, [counter, numbers](DataSet& data) {
    static_cast<void>(data.TakeAsLeaf(counter, numbers));
  });
  oracle_.OnMoved(counter, NextOf(counter));
}

void ClusterRun::HappenToClock(const Incident& incident) {
  Machine& machine = MachineOf(incident);
  static constexpr Nanos kBack[] = {kMillisecond, kSecond, 3600 * kSecond};
  static constexpr Nanos kAhead[] = {kSecond, kSecond, 86'400 * kSecond};
  if (incident.kind == Kind::kClockRight) {
    machine.SetClockRight();
  } else if (incident.kind == Kind::kClockBack) {
    machine.StepClock(-kBack[incident.how % std::size(kBack)]);
  } else {
    machine.StepClock(kAhead[incident.how % std::size(kAhead)]);
  }
  world_.Trace(machine.name() + ": its clock is set to " +
               daemon::UtcText(machine.clock().wall_ms()));
}

void ClusterRun::ForgetHost(const Incident& incident) {
  for (const auto& off : machines_) {
    if (off->is_on()) continue;
    world_.Met("an operator forgot a host that is off");
    return Administer(MachineOf(incident),
                      R"({"op":"host.forget","host":")" + off->host_id() + R"("})");
  }
}

// An operator names one witness, or three.
void ClusterRun::SetWitnesses(const Incident& incident) {
  if (file_ != nullptr) return;
  std::vector<std::string> hosts;
  for (const auto& machine : machines_) hosts.push_back(machine->host_id());
  std::rotate(hosts.begin(),
              hosts.begin() + static_cast<std::ptrdiff_t>(incident.how % hosts.size()),
              hosts.end());
  hosts.resize(hosts.size() < 3 || (incident.how >> 8) % 4 == 0 ? 1 : 3);
  NameWitnesses(MachineOf(incident), std::move(hosts), false);
}

void ClusterRun::NameWitnesses(Machine& machine, std::vector<std::string> hosts, bool is_forced) {
  std::string list;
  for (const std::string& host : hosts) {
    list += (list.empty() ? "\"" : ",\"") + host + '"';
  }
  Administer(machine, std::string(R"({"op":"witness.set","wait_ms":1000,"force":)") +
                          (is_forced ? "true" : "false") + R"(,"hosts":[)" + list + "]}");
}

// Of two machines with the disk of one witness, one notices what the other has noted, and is no
// witness any more. After a restart it can be another. If there is no majority without it, an
// operator has to say so.
void ClusterRun::ForceWitnesses() {
  world_.Met("an operator had to name other witnesses");
  machines_.front()->KillIdd();
  RunUntil(world_.now() + 5 * kSecond);
  NameWitnesses(*machines_.front(), {machines_.front()->host_id()}, true);
}

// Another machine starts with a copy of this one's disk, and so with its name.
void ClusterRun::CloneHost(const Incident& incident) {
  Machine& original = MachineOf(incident);
  if (clone_ != nullptr || file_ != nullptr || !original.is_on()) return;
  world_.Met("a host was cloned");
  world_.Trace(original.name() + ": a clone of it is switched on");
  cloned_.insert(original.host_id());
  const std::string name =
      original.name() + "-clone" + std::to_string(machines_that_were_.size() + 1);
  oracle_.OnCloned(original.name(), name);
  // Each may have a primary of its own from the beginning.
  if (cluster_->is_any_left_in_use()) LoseData();
  clone_ = std::make_unique<Machine>(
      name, original.settings(),
      [this](Machine& machine, daemon::HostIdentity host) {
        return MakeStore(machine, std::move(host));
      },
      original.dir().parent_path() / name);
  AddClock(*clone_);
  clone_->CopyDiskFrom(original);
  clone_->StartIdd();
  AddProgram(*clone_);
  Later(Duration(incident, kLongOff), [this] { SwitchCloneOff(); });
}

void ClusterRun::SwitchCloneOff() {
  if (clone_ == nullptr) return;
  RemovePrograms(*clone_);
  clone_->PowerOff();
  // Requests to it may still be on their way.
  machines_that_were_.push_back(std::move(clone_));
}

}  // namespace idd::simulation
