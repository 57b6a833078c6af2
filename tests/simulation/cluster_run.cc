// SPDX-License-Identifier: Apache-2.0
#include "cluster_run.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>

#include "simulated_store.h"
#include "snowflakes.h"
#include "stepped_store.h"
#include "store/sqlite/sqlite_store.h"

namespace idd::simulation {
namespace {

std::filesystem::path ScratchDir() {
  return std::filesystem::path("/dev/shm") / ("idd-simulation-" + std::to_string(::getpid()));
}

// How long the store still refuses a machine its name after the machine's clone was switched off.
constexpr Nanos kNameIsHeld = 60 * kSecond;
// How long two primaries stay in use after the last incident, if no host moves.
constexpr Nanos kApart = 150 * kSecond;
// After the last fault: for the witnesses to come to the term, and to note what is wanted.
constexpr Nanos kAgreeWithin = 30 * kSecond;
// The longest window of a snowflake tag in any seed: an outage tolerance of 30 s.
constexpr std::chrono::seconds kLongestWindow(30);
// A host that had no worker id to take until this long ago need not have ids yet.
constexpr Nanos kShortFor = 10 * kSecond;
// A clock that was set ahead by a day.
constexpr Nanos kFarAhead = 3600 * kSecond;

}  // namespace

ClusterRun::ClusterRun(std::uint64_t seed, const Tracer& tracer)
    : world_(seed),
      oracle_(world_),
      seed_(seed),
      setup_(seed ^ 0x2545f4914f6cdd1d),
      has_two_primaries_(HasTwoPrimaries(seed)),
      two_primaries_(seed ^ 0x74776f7072696d61) {
  world_.SetTracer(tracer);
  // A process with the same number was killed.
  std::filesystem::remove_all(ScratchDir());
  Setup();
}

// The folder has the number of this process, and a trace is the same in all.
std::string ClusterRun::WithoutFolder(std::string text) {
  const std::string folder = ScratchDir().string();
  for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) {
    text.erase(at, folder.size());
  }
  return text;
}

// None of the parts removes the folder that they share, so it is removed here, after them.
ClusterRun::~ClusterRun() {
  programs_.clear();
  machines_.clear();
  clone_.reset();
  machines_that_were_.clear();
  file_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(ScratchDir(), ignored);
}

void ClusterRun::Setup() {
  const auto access = static_cast<Access>(setup_.Below(3));
  const std::size_t drawn = 1 + setup_.Below(3);
  const std::size_t servers = has_two_primaries_ ? std::max<std::size_t>(drawn, 2) : drawn;
  cluster_ = std::make_unique<Cluster>(
      access, servers,
      [this](const Lease& lease, const std::string& host, const std::optional<std::string>& owner) {
        oracle_.OnLeased(lease, host, owner);
      });
  if (setup_.Percent(30)) file_ = std::make_unique<StoreFile>(ScratchDir() / "store");
  SetupTags();
  SetupSnowflakes();
  const std::size_t machines = 1 + setup_.Below(4);
  for (std::size_t i = 0; i < machines; ++i) {
    const std::string name = std::string("host-") + static_cast<char>('a' + i);
    Machine::Settings settings;
    settings.host_id = name;
    settings.has_manager = !setup_.Percent(25);
    static constexpr std::uint32_t kLeasesPerSecond[] = {5, 50, 1000, 1000};
    settings.leases_per_s = kLeasesPerSecond[setup_.Below(std::size(kLeasesPerSecond))];
    machines_.push_back(std::make_unique<Machine>(
        name, settings,
        [this](Machine& machine, daemon::HostIdentity host) {
          return MakeStore(machine, std::move(host));
        },
        ScratchDir() / name));
    Machine& machine = *machines_.back();
    AddClock(machine);
    machine.link().latency = setup_.Between(50, 2000) * kMicrosecond;
    // Some machines come later.
    Later(setup_.Percent(70) ? 0 : setup_.Between(0, 30) * kSecond,
          [&machine] { machine.StartIdd(); });
    const std::size_t programs = 1 + setup_.Below(3);
    for (std::size_t k = 0; k < programs; ++k) AddProgram(machine);
  }
  if (setup_.Percent(15)) AddHostileProgram(*machines_.front());
}

void ClusterRun::SetupTags() {
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
    oracle_.Allow(tag.tag, {.step = step, .max_prefetch = *tag.refill.max_prefetch});
    if (setup_.Percent(10)) tag.access = daemon::TagAccess::kSocket;
    if (setup_.Percent(15)) {
      tag.mode = daemon::TagMode::kTicket;
      tag.access = daemon::TagAccess::kSocket;
      // The ids of all claims that wait.
      oracle_.Allow(tag.tag, {.step = daemon::kMaxStep, .max_prefetch = daemon::kMaxStep});
      oracle_.RiseOverMachines(tag.tag);
    }
    MakeTag(tag);
  }
}

void ClusterRun::MakeTag(const daemon::NewTag& tag) {
  if (file_ != nullptr) {
    file_->CreateTag(tag);
  } else {
    cluster_->Commit(cluster_->primary(),
                     [tag](DataSet& data) { static_cast<void>(data.CreateTag(tag)); });
  }
}

void ClusterRun::SetupSnowflakes() {
  snowflakes_ = PlanSnowflakes(seed_);
  for (const daemon::NewTag& tag : snowflakes_) {
    tags_.push_back(tag.tag);
    oracle_.AddSnowflake(tag.tag, *tag.snowflake, kLongestWindow);
    MakeTag(tag);
  }
}

void ClusterRun::AddClock(Machine& machine) {
  machine.clock().SetError(ClockErrorOf(seed_, clocks_++));
  oracle_.AddClock(machine.host_id(), machine.clock());
}

std::unique_ptr<daemon::Store> ClusterRun::MakeStore(Machine& machine, daemon::HostIdentity host) {
  if (file_ == nullptr) {
    return std::make_unique<SimulatedStore>(*cluster_, machine.link(), std::move(host),
                                            [&machine] { machine.Step(); });
  }
  daemon::SqliteStoreOptions options;
  options.path = file_->path();
  options.host_id = host.id;
  return std::make_unique<SteppedStore>(
      std::make_unique<daemon::SqliteStore>(std::move(options)), host.id, machine.disk(),
      [&machine] { machine.Step(); },
      [this](const Lease& lease, const std::string& leased_by,
             const std::optional<std::string>& owner) {
        oracle_.OnLeased(lease, leased_by, owner);
      });
}

bool ClusterRun::HasTag(const std::string& tag) {
  return file_ == nullptr ? cluster_->primary().data.tags.contains(tag) : file_->HasTag(tag);
}

void ClusterRun::AddProgram(Machine& machine) {
  Random& random = world_.random();
  Program::Habits habits;
  habits.tags = tags_;
  static constexpr Nanos kPauses[] = {10 * kMillisecond, 100 * kMillisecond, 400 * kMillisecond};
  habits.pause = kPauses[random.Below(std::size(kPauses))];
  habits.most = random.Percent(70) ? 1 : 1 + random.Below(100);
  habits.stalls = random.Percent(50) ? 5 : 0;
  habits.loses_refills = random.Percent(20) ? 50 : 0;
  programs_.push_back(std::make_unique<Program>(
      machine.name() + "/p" + std::to_string(++programs_made_), machine, oracle_, habits));
}

// It overwrites the cursors of the first tag's rings.
void ClusterRun::AddHostileProgram(Machine& machine) {
  Program::Habits habits;
  habits.tags = {tags_.front()};
  habits.pause = 50 * kMillisecond;
  habits.is_hostile = true;
  programs_.push_back(
      std::make_unique<Program>(machine.name() + "/hostile", machine, oracle_, habits));
}

void ClusterRun::RemovePrograms(const Machine& machine) {
  std::erase_if(programs_, [&machine](const auto& p) { return &p->machine() == &machine; });
}

void ClusterRun::Later(Nanos delay, std::function<void()> undo) {
  world_.After(delay, [this, undo = std::move(undo)] {
    if (!is_healed_) undo();
  });
}

// All faults end, and every machine has a program.
void ClusterRun::Heal() {
  world_.Trace("all faults end");
  is_healed_ = true;
  cluster_->SetLag(0);
  cluster_->Start(cluster_->primary_number());
  cluster_->primary().hangs = false;
  cluster_->primary().is_read_only = false;
  for (std::size_t i = 0; i < cluster_->servers().size(); ++i) cluster_->Reseed(i);
  SwitchCloneOff();
  std::erase_if(programs_, [](const auto& program) { return program->habits().is_hostile; });
  for (const auto& program : programs_) program->process().Unsuspend();
  for (const auto& machine : machines_) {
    machine->link().is_cut = false;
    machine->link().cut_from.clear();
    machine->link().stays_at.reset();
    machine->link().lost = 0;
    machine->link().latency = kMillisecond;
    machine->disk().is_full = false;
    machine->SetClockRight();
    machine->PowerOn();
    machine->ContinueIdd();
    machine->KillIddAtStep(0);
    machine->KeepIddRunning();
    AddProgram(*machine);
  }
}

std::vector<WorkerRecord> ClusterRun::ListWorkers(const std::string& tag, const std::string& host) {
  return file_ == nullptr ? cluster_->primary().data.ListWorkers(tag, host)
                          : file_->ListWorkers(tag, host);
}

// ADR 0023: a host may take its own worker id, if the counter is not beyond max_ahead, or one that
// was never used, or one whose windows are over.
bool ClusterRun::IsShortOfWorkers(Machine& machine, const daemon::NewTag& tag) {
  const SnowflakeLayout& layout = *tag.snowflake;
  const std::uint64_t now = layout.FirstOf(layout.TimeAt(machine.clock().wall_ms()));
  const std::uint64_t ahead = layout.FirstOf(layout.max_ahead_units());
  std::set<std::uint32_t> mine;
  for (const WorkerRecord& worker : ListWorkers(tag.tag, machine.host_id())) {
    if (worker.is_mine) mine.insert(worker.worker);
  }
  for (std::uint32_t worker = 0; worker < layout.workers(); ++worker) {
    const std::uint64_t next = NextOf(daemon::CounterName(tag.tag, worker));
    if (next <= now + (mine.contains(worker) ? ahead : 0)) return false;
  }
  return true;
}

std::uint64_t ClusterRun::NextOf(const std::string& row) {
  if (file_ != nullptr) return file_->NextOf(row);
  const Result<TagRecord> record = cluster_->primary().data.FindTag(row, true);
  if (!record.ok()) return cluster_->primary().data.UsedLimit(row);
  return std::max(record.value().next_id, record.value().used_limit);
}

void ClusterRun::NoteShortages() {
  for (const daemon::NewTag& tag : snowflakes_) {
    for (const auto& machine : machines_) {
      if (IsShortOfWorkers(*machine, tag)) short_at_[{machine->name(), tag.tag}] = world_.now();
    }
  }
}

// For the reader of a failure.
void ClusterRun::TraceRows() {
  for (const daemon::NewTag& tag : snowflakes_) {
    for (const WorkerRecord& worker : ListWorkers(tag.tag, "")) {
      const std::string counter = daemon::CounterName(tag.tag, worker.worker);
      const std::uint64_t time = NextOf(counter) >> tag.snowflake->sequence_bits;
      world_.Trace(counter + " of " + worker.host + " is at " +
                   daemon::UtcText(tag.snowflake->UnixMsOf(time)));
    }
  }
  if (file_ != nullptr) return;
  const DataSet& data = cluster_->primary().data;
  for (const auto& [name, ceiling] : data.ceilings) {
    world_.Trace("ceiling of " + name + ": active " + std::to_string(ceiling.active) + " in " +
                 ceiling.active_in.Text() + ", wanted " + std::to_string(ceiling.wanted) +
                 ", epoch " + std::to_string(ceiling.epoch) + ", pushed " +
                 std::to_string(ceiling.pushed));
  }
  world_.Trace("term " + data.term.term.Text() + " of '" + data.term.identity + "', witnesses " +
               data.term.active.Text() + ", wanted " + data.term.wanted.Text());
  for (const auto& [name, row] : data.witnesses) {
    world_.Trace("witness " + name + ": in " + row.term.Text() + ", noted " +
                 std::to_string(row.noted) + ", list " + row.list.Text());
  }
}

// A host without a worker id to take waits for the counter that comes first. A file has no clock
// that a host's could be compared with, so ids may be as far ahead as the clock was.
bool ClusterRun::IsExcused(Program& program, const std::string& tag) {
  if (oracle_.LayoutOf(tag) == nullptr) return false;
  Machine& machine = program.machine();
  const auto short_at = short_at_.find({machine.name(), tag});
  if (short_at != short_at_.end() && world_.now() - short_at->second < kShortFor) return true;
  return file_ != nullptr &&
         machine.clock().greatest_ms() > machine.clock().wall_ms() + kFarAhead / kMillisecond;
}

bool ClusterRun::HaveAllClaimed(Nanos since) {
  for (const auto& machine : machines_) {
    if (!machine->store_is_up()) return false;
  }
  return std::all_of(tags_.begin(), tags_.end(), [&](const std::string& tag) {
    return !HasTag(tag) ||
           std::all_of(programs_.begin(), programs_.end(), [&](const auto& program) {
             return program->LastClaim(tag).value_or(0) > since || IsExcused(*program, tag);
           });
  });
}

void ClusterRun::CheckLiveness(Nanos since) {
  for (const auto& machine : machines_) {
    if (!machine->store_is_up()) oracle_.Fail("stuck: " + machine->name() + " has no store");
  }
  for (const auto& program : programs_) {
    for (const std::string& tag : tags_) {
      if (!HasTag(tag)) continue;
      if (program->LastClaim(tag).value_or(0) > since) continue;
      if (IsExcused(*program, tag)) {
        world_.Met("a host had no worker id to take until the end");
        world_.Trace(program->name() + " has no ids of " + tag + ": " +
                     program->LastStatus(tag).message());
        continue;
      }
      oracle_.Fail("stuck: " + program->name() + " has no ids of " + tag +
                   " long after all faults have ended: " + program->LastStatus(tag).message());
    }
  }
}

// Everything stops in good order.
void ClusterRun::StopAll() {
  for (const auto& machine : machines_) machine->StopIdd();
  RunUntil(world_.now() + 20 * kSecond);
  for (const auto& machine : machines_) {
    if (machine->idd_runs()) oracle_.Fail("stuck: idd on " + machine->name() + " does not stop");
  }
}

void ClusterRun::CheckSums() {
  programs_.clear();
  std::set<std::string> exact;
  for (const auto& machine : machines_) {
    if (machine->has_kept_its_list()) exact.insert(machine->host_id());
  }
  for (const std::string& host : cloned_) exact.erase(host);
  StopAll();
  if (oracle_.failure().has_value()) return;
  if (has_lost_data_) {
    // How much of a lease was claimed is not known to the start that ends it.
    if (file_ == nullptr) exact.clear();
    // If a restored copy lacks only the ends of leases, no id is lost and nothing shows that it was
    // restored. The next start of their host ends these leases again. It also ends those of a tag
    // that the database lacks now.
    for (const auto& machine : machines_) machine->StartIdd();
    RunUntil(world_.now() + 10 * kSecond);
    StopAll();
    if (oracle_.failure().has_value()) return;
  }
  world_.Met(has_lost_data_ ? "the journal was compared with the claims since all was healed"
                            : "the journal was compared with all claims");
  oracle_.CheckJournal(file_ == nullptr ? cluster_->primary().data.journal : file_->Journal(),
                       exact, has_lost_data_);
}

void ClusterRun::RunUntil(Nanos time) {
  while (world_.now() < time && !oracle_.failure().has_value()) {
    world_.RunUntil(std::min(time, world_.now() + 100 * kMillisecond));
  }
}

// Asks each idd, on its loop, what it holds.
void ClusterRun::LookAtHoldings() {
  for (const auto& machine : machines_) {
    machine->Post([this, name = machine->name()](const daemon::TagService& tags) {
      for (const daemon::TagSnapshot& tag : tags.Snapshot()) {
        std::uint64_t available = 0;
        for (const daemon::LeaseUse& use : tag.leases) available += use.available();
        oracle_.OnHeld(tag.tag, name, available);
      }
    });
  }
}

RunResult ClusterRun::Run(const std::vector<Incident>& incidents) {
  for (const Incident& incident : incidents) {
    RunUntil(incident.at);
    if (oracle_.failure().has_value()) break;
    world_.Met(IncidentName(incident.kind));
    Happen(incident);
    LookAtHoldings();
  }
  if (!oracle_.failure().has_value()) {
    RunUntil(world_.now() + (stay_apart() ? kApart : 5 * kSecond));
    Heal();
    // An idd that stops without its store takes ten seconds, and then begins again.
    const auto is_up = [](const auto& machine) { return machine->store_is_up(); };
    for (int second = 0; second < 5 || (second < 15 && !std::ranges::all_of(machines_, is_up));
         ++second) {
      RunUntil(world_.now() + kSecond);
      for (const auto& machine : machines_) {
        // A tag is not resumed while the whole host is drained.
        Resume(*machine, "", [this, &machine = *machine](bool /*ok*/, const std::string&) {
          for (const std::string& tag : tags_) Resume(machine, tag);
        });
      }
    }
    const Nanos healed = world_.now();
    const auto await_claims = [&](Nanos limit) {
      while (world_.now() < limit && !oracle_.failure().has_value() && !HaveAllClaimed(healed)) {
        LookAtHoldings();
        NoteShortages();
        RunUntil(world_.now() + kSecond);
      }
      return HaveAllClaimed(healed);
    };
    const Nanos held = cloned_.empty() ? 0 : kNameIsHeld;
    if (!await_claims(healed + kAgreeWithin + 70 * kSecond + held) && !cloned_.empty() &&
        !oracle_.failure().has_value()) {
      ForceWitnesses();
      static_cast<void>(await_claims(world_.now() + kAgreeWithin));
    }
    if (!oracle_.failure().has_value()) {
      TraceRows();
      CheckLiveness(healed);
    }
    if (!oracle_.failure().has_value()) {
      oracle_.Watch();
      RunUntil(world_.now() + 2 * kSecond);
    }
    if (!oracle_.failure().has_value()) CheckSums();
  }
  return {.failure = oracle_.failure(),
          .trace_hash = world_.trace_hash(),
          .events = world_.events(),
          .claimed = oracle_.claimed(),
          .leases = oracle_.leases(),
          .met = world_.met()};
}

}  // namespace idd::simulation
