// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_CLUSTER_RUN_H_
#define IDD_TESTS_SIMULATION_CLUSTER_RUN_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "incidents.h"
#include "machine.h"
#include "oracle.h"
#include "program.h"
#include "scenario.h"
#include "servers.h"
#include "store_file.h"
#include "world.h"

namespace idd::simulation {

// The cluster of a seed: machines, servers, tags, programs.
class ClusterRun {
 public:
  ClusterRun(std::uint64_t seed, const Tracer& tracer);
  ~ClusterRun();
  ClusterRun(const ClusterRun&) = delete;
  ClusterRun& operator=(const ClusterRun&) = delete;
  RunResult Run(const std::vector<Incident>& incidents);

 private:
  [[nodiscard]] static std::string WithoutFolder(std::string text);
  void Setup();
  void SetupTags();
  void SetupSnowflakes();
  void MakeTag(const daemon::NewTag& tag);
  void AddClock(Machine& machine);
  [[nodiscard]] std::unique_ptr<daemon::Store> MakeStore(Machine& machine,
                                                         daemon::HostIdentity host);
  [[nodiscard]] bool HasTag(const std::string& tag);
  void AddProgram(Machine& machine);
  void AddHostileProgram(Machine& machine);
  void RemovePrograms(const Machine& machine);
  void Happen(const Incident& incident);
  void HappenToIdd(const Incident& incident);
  void HappenToProgram(const Incident& incident);
  void HappenToLink(const Incident& incident);
  void HappenToServer(const Incident& incident);
  void HappenToTag(const Incident& incident);
  void HappenToClock(const Incident& incident);
  void MoveCounter(const Incident& incident, const daemon::NewTag& tag);
  void FailOver(const Incident& incident);
  void LeaveInUse(std::size_t server);
  void MoveHost();
  void SetWitnesses(const Incident& incident);
  void NameWitnesses(Machine& machine, std::vector<std::string> hosts, bool is_forced);
  void CloneHost(const Incident& incident);
  void SwitchCloneOff();
  void LoseData();
  void RestoreDump(const Incident& incident);
  void HappenToFile(const Incident& incident);
  void ForgetHost(const Incident& incident);
  void Heal();
  [[nodiscard]] bool HaveAllClaimed(Nanos since);
  // Whether the program need not get ids of the tag now.
  [[nodiscard]] bool IsExcused(Program& program, const std::string& tag);
  [[nodiscard]] std::vector<WorkerRecord> ListWorkers(const std::string& tag,
                                                      const std::string& host);
  // Where a row of leaf_alloc stands: no number below it is leased.
  [[nodiscard]] std::uint64_t NextOf(const std::string& row);
  // Whether the machine may take no worker id of the tag now.
  [[nodiscard]] bool IsShortOfWorkers(Machine& machine, const daemon::NewTag& tag);
  void NoteShortages();
  void TraceRows();
  void ForceWitnesses();
  void CheckLiveness(Nanos since);
  void StopAll();
  void CheckSums();
  void LookAtHoldings();
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
  void Resume(Machine& machine, const std::string& tag, OnAnswer on_answer = {});
  // Runs `undo` later, or when everything is healed.
  void Later(Nanos delay, std::function<void()> undo);
  void RunUntil(Nanos time);

  World world_;
  Oracle oracle_;
  const std::uint64_t seed_;
  Random setup_;
  const bool has_two_primaries_;  // an old primary stays in use
  Random two_primaries_;          // who uses which
  // Each host keeps its primary, for minutes.
  [[nodiscard]] bool stay_apart() const { return has_two_primaries_ && seed_ % 3 == 0; }
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<StoreFile> file_;  // the store; the cluster is then not used
  std::vector<std::unique_ptr<Machine>> machines_;
  std::unique_ptr<Machine> clone_;  // of one of them; null most of the time
  std::vector<std::unique_ptr<Machine>> machines_that_were_;  // clones, switched off
  std::set<std::string> cloned_;                              // host ids that had a clone
  std::vector<std::string> tags_;
  std::vector<daemon::NewTag> snowflakes_;  // those of tags_ that are
  std::uint64_t clocks_ = 0;                // so far
  // When a machine was last seen without a worker id to take, by machine and tag.
  std::map<std::pair<std::string, std::string>, Nanos> short_at_;
  std::vector<std::unique_ptr<Program>> programs_;
  // A dump of the tables, or a snapshot of the whole machine.
  struct Dump {
    DataSet data;
    Nanos made_at = 0;
    std::size_t server = 0;
    std::uint64_t life = 0;
    std::uint64_t connections = 0;
    std::uint64_t tables = 0;
  };
  std::optional<Dump> dump_;
  std::uint64_t tables_made_ = 1;
  unsigned programs_made_ = 0;
  std::uint64_t resumes_ = 0;  // so far
  bool is_healed_ = false;
  bool has_lost_data_ = false;  // the store may have lost some
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_CLUSTER_RUN_H_
