// SPDX-License-Identifier: Apache-2.0
//
// Hosts with the real Agreement on data sets that can be copied, replaced, set back in place and
// used side by side.
#ifndef IDD_TESTS_UNIT_SUPPORT_AGREEMENT_HOSTS_H_
#define IDD_TESTS_UNIT_SUPPORT_AGREEMENT_HOSTS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agreement/agreement.h"
#include "data_set.h"
#include "fake_marks.h"
#include "idd/shm/abi.h"
#include "idd/shm/ring_protocol.h"
#include "store/term_store.h"

namespace idd::daemon::agreed {

inline constexpr const char* kTag = "orders";

// The contents of a server. A copy stands for a replica, a dump or a backup. No journal is kept: it
// would protect ids, which is the task of the terms here.
using simulation::DataSet;

inline DataSet NewDataSet() {
  DataSet data;
  data.incarnation = "0123456789abcdef";
  return data;
}

// A server, and its connections with the time of the last statement of each.
struct Server {
  std::string name;
  DataSet data = NewDataSet();
  int start = 0;
  int restore = 0;
  std::map<std::uint64_t, std::int64_t> connections{};

  [[nodiscard]] std::string Identity() const {
    return name + " " + std::to_string(start) + " " + std::to_string(restore);
  }
};

// A server's machine, as it was at some time.
struct Snapshot {
  Server server;
  std::int64_t taken_ms = 0;
};

// What becomes of a statement.
enum class Fate { kDone, kLost, kAnswerLost };

struct World {
  Server one{.name = "one"};
  Server two{.name = "two"};
  std::int64_t now_ms = 1'000'000;
  std::uint64_t connections = 0;
  int changes = 0;  // of identities
  // Called before each statement and disk write of a host. May throw Killed.
  std::function<Fate(const std::string& host, const std::string& call)> before{};

  [[nodiscard]] Snapshot Take(const Server& server) const {
    return {.server = server, .taken_ms = now_ms};
  }
  // The server is started again, perhaps with another data set.
  void Restart(Server& server) {
    server.start = ++changes;
    server.connections.clear();
  }
  void Restart(Server& server, const DataSet& data) {
    server.data = data;
    Restart(server);
  }
  // A dump is read into the running server.
  void RestoreTables(Server& server, const DataSet& data) {
    server.data = data;
    server.restore = ++changes;
  }
  // The memory, too: the server has its identity, and the connections that were idle since.
  static void SetBack(Server& server, const Snapshot& snapshot) {
    const auto connections = std::exchange(server, snapshot.server).connections;
    std::erase_if(server.connections, [&](const auto& connection) {
      const auto last = connections.find(connection.first);
      return last == connections.end() || last->second > snapshot.taken_ms;
    });
  }
};

// The host dies at this point.
struct Killed {};

struct Granted {
  shm::IdRange ids{};
  Term term{};
};

// A host's connection.
class FakeTermStore final : public TermStore {
 public:
  FakeTermStore(World& world, std::string host) : world_(world), host_(std::move(host)) {}

  Server* server = nullptr;  // that it connects to
  bool is_reachable = true;
  std::map<std::string, Fate> fates{};  // of the next statement of that name
  std::vector<std::string> calls{};

  [[nodiscard]] bool IsOpen() const {
    return is_reachable && server == opened_on_ && server->connections.contains(connection_);
  }
  // False: no server answers.
  bool Open(const std::string& disk) {
    if (!is_reachable) return false;
    opened_on_ = server;
    connection_ = ++world_.connections;
    server->connections[connection_] = world_.now_ms;
    guard_.reset();
    simulation::HostRow& row = data().hosts[host_];
    if (row.beat < beat_ && beat_on_ == server) ++generation_;
    beat_ = ++row.beat;
    beat_on_ = server;
    row.disk = disk;
    row.boot_id = "boot";
    row.seen_at = world_.now_ms;
    return true;
  }
  void NoteStop() {
    if (IsOpen()) data().hosts[host_].boot_id.clear();
  }
  // A sign of life, if the data set has this host's row.
  void ShowHost() {
    const auto row = data().hosts.find(host_);
    if (row != data().hosts.end()) row->second.seen_at = world_.now_ms;
  }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] const std::string& incarnation() const { return opened_on_->data.incarnation; }

  [[nodiscard]] std::uint64_t connection() const override { return connection_; }
  Result<TermView> ReadTerm(std::optional<std::uint64_t> noted) override {
    return Call<Result<TermView>>("ReadTerm", [&]() -> Result<TermView> {
      const simulation::TermEntry& entry = data().term;
      TermView view;
      view.row = {.term = entry.term,
                  .identity = entry.identity,
                  .is_current = entry.identity == server->Identity(),
                  .active = entry.active,
                  .wanted = entry.wanted};
      view.server = server->name;
      for (const auto& [name, witness] : data().witnesses) {
        view.witnesses.push_back({.name = name,
                                  .term = witness.term,
                                  .noted = witness.noted,
                                  .list = witness.list,
                                  .beat = witness.beat,
                                  .silent_s = SilentS(witness.seen_at)});
      }
      for (const auto& [tag, row] : data().ceilings) {
        if (noted.has_value() && row.epoch > *noted) {
          view.wanted.push_back({.tag = tag, .mark = row.wanted});
        }
      }
      view.epoch = data().epoch;
      guard_ = entry.term;
      return view;
    });
  }
  Result<bool> BeginTerm(const TermRow& found, const Term& term,
                         const WitnessList& active) override {
    return Done("BeginTerm", [&] {
      return data().BeginTerm(
          Entry(found),
          {.term = term, .identity = server->Identity(), .active = active, .wanted = found.wanted});
    });
  }
  Result<bool> VoidTerm(const TermRow& found) override {
    return Done("VoidTerm", [&] { return data().VoidTerm(Entry(found)); });
  }
  Result<bool> Push(const TermRow& found, const std::vector<TagMark>& notes) override {
    return Done("Push", [&] { return data().Push(Entry(found), notes); });
  }
  Result<bool> WriteWitness(const TermRow& found, const WitnessRow& row,
                            std::uint64_t was) override {
    return Done("WriteWitness", [&] {
      return data().WriteWitness(Entry(found), row.name,
                                 {.term = row.term,
                                  .noted = row.noted,
                                  .list = row.list,
                                  .beat = row.beat,
                                  .seen_at = world_.now_ms},
                                 was);
    });
  }
  Result<std::uint64_t> Raise(const std::vector<CeilingRaise>& raises) override {
    return Call<Result<std::uint64_t>>(
        "Raise", [&]() -> Result<std::uint64_t> { return data().Raise(raises); });
  }
  Result<std::vector<Ceiling>> ReadCeilings(const std::vector<std::string>& tags) override {
    return data().ReadCeilings(tags);
  }
  Result<bool> Activate(const TermRow& found, std::uint64_t after, std::uint64_t epoch) override {
    return Done("Activate", [&] { return data().Activate(Entry(found), after, epoch); });
  }
  Result<bool> SetLists(const TermRow& found, const WitnessList& active, const WitnessList& wanted,
                        std::uint64_t epoch) override {
    return Done("SetLists", [&] { return data().SetLists(Entry(found), active, wanted, epoch); });
  }
  Result<std::vector<Candidate>> ListCandidates() override {
    return Call<Result<std::vector<Candidate>>>(
        "ListCandidates", [&]() -> Result<std::vector<Candidate>> {
          std::vector<Candidate> candidates;
          for (const auto& [host, row] : data().hosts) {
            if (row.boot_id.empty()) continue;
            candidates.push_back(
                {.name = WitnessName(host, row.disk), .silent_s = SilentS(row.seen_at)});
          }
          return candidates;
        });
  }

  // Creates the tag if there is none: an operator does that in each data set.
  Result<TagRecord> FindTag(const std::string& tag) {
    return Call<Result<TagRecord>>("FindTag", [&] {
      TagRecord& row = data().tags[tag];
      row.tag = tag;
      row.next_id = std::max<std::uint64_t>(row.next_id, 1);
      return data().FindTag(tag, true);
    });
  }
  // Empty: no lease is allowed.
  Result<Granted> TakeLease(const std::string& tag, std::uint64_t count, std::uint64_t mark) {
    return Call<Result<Granted>>("TakeLease", [&]() -> Result<Granted> {
      const simulation::TermEntry& entry = data().term;
      if (guard_ != entry.term || entry.identity != server->Identity()) return Granted();
      const TagRecord row = data().FindTag(tag, true).value();
      const std::uint64_t base = std::max({row.next_id, row.used_limit, mark});
      const std::uint64_t limit = std::min(base + count, *row.ceiling);
      if (limit <= base) return Granted();
      data().tags[tag].next_id = limit;
      return Granted{.ids = {base, limit}, .term = entry.term};
    });
  }
  // max_id falls only in the term of the lease.
  Status HandBack(const std::string& tag, const Granted& granted) {
    return Call<Status>("HandBack", [&] {
      std::uint64_t& max_id = data().tags[tag].next_id;
      const bool is_last = max_id == granted.ids.limit && data().term.term == granted.term;
      if (is_last) max_id = granted.ids.first;
      return Status::Ok();
    });
  }
  // Recovery: a host's own mark.
  Status Reconcile(const std::string& tag, std::uint64_t mark) {
    return Call<Status>("Reconcile", [&] {
      std::uint64_t& max_id = data().tags[tag].next_id;
      max_id = std::max(max_id, mark);
      return Status::Ok();
    });
  }

 private:
  template <typename T, typename Body>
  T Call(const std::string& name, const Body& body) {
    calls.push_back(name);
    Fate fate = world_.before ? world_.before(host_, name) : Fate::kDone;
    const auto it = fates.find(name);
    if (it != fates.end()) {
      fate = it->second;
      fates.erase(it);
    }
    if (!IsOpen()) return Lost();
    if (fate == Fate::kLost) return Lose();
    server->connections[connection_] = world_.now_ms;
    T result = body();
    return fate == Fate::kAnswerLost ? T(Lose()) : result;
  }
  template <typename Body>
  Result<bool> Done(const std::string& name, const Body& body) {
    return Call<Result<bool>>(name, [&]() -> Result<bool> { return body(); });
  }
  [[nodiscard]] static simulation::TermEntry Entry(const TermRow& row) {
    return {.term = row.term, .identity = row.identity, .active = row.active, .wanted = row.wanted};
  }
  [[nodiscard]] static Status Lost() { return {Code::kUnavailable, "the connection is lost"}; }
  [[nodiscard]] Status Lose() {
    server->connections.erase(connection_);
    return Lost();
  }
  [[nodiscard]] DataSet& data() { return server->data; }
  [[nodiscard]] std::uint64_t SilentS(std::int64_t seen_ms) const {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(world_.now_ms - seen_ms, 0) / 1000);
  }

  World& world_;
  const std::string host_;
  Server* opened_on_ = nullptr;
  std::uint64_t connection_ = 0;
  std::optional<Term> guard_;  // the term that was read last
  std::uint64_t generation_ = 0;
  std::uint64_t beat_ = 0;  // of this host's own row, as it was left
  Server* beat_on_ = nullptr;
};

// The marks, each write of which may be the host's last.
class WatchedNotes final : public WitnessNotes {
 public:
  WatchedNotes(World& world, std::string host, FakeMarks& marks)
      : world_(world), host_(std::move(host)), marks_(marks) {}

  Result<WitnessState> GetWitnessState() override { return marks_.GetWitnessState(); }
  Status SetWitnessState(const WitnessState& state) override {
    return Write([&] { return marks_.SetWitnessState(state); });
  }
  Result<std::vector<TagMark>> Ceilings() override { return marks_.Ceilings(); }
  Status NoteCeilings(const std::vector<TagMark>& ceilings) override {
    return Write([&] { return marks_.NoteCeilings(ceilings); });
  }

 private:
  template <typename Body>
  Status Write(const Body& body) {
    if (world_.before && world_.before(host_, "disk") == Fate::kLost) {
      return {Code::kUnavailable, "the disk is full"};
    }
    return body();
  }

  World& world_;
  const std::string host_;
  FakeMarks& marks_;
};

// All ids granted to any host, ever, in any data set.
class Grants {
 public:
  // False if one of them was granted before.
  [[nodiscard]] bool Add(const std::string& tag, shm::IdRange ids) {
    auto& ranges = ranges_[tag];
    const auto after = ranges.lower_bound(ids.first);
    if (after != ranges.end() && after->first < ids.limit) return false;
    if (after != ranges.begin() && std::prev(after)->second > ids.first) return false;
    ranges[ids.first] = ids.limit;
    ++count_;
    return true;
  }
  // No client was given any of them.
  void Remove(const std::string& tag, shm::IdRange ids) { ranges_[tag].erase(ids.first); }
  [[nodiscard]] std::size_t size() const { return count_; }

 private:
  std::map<std::string, std::map<std::uint64_t, std::uint64_t>> ranges_;
  std::size_t count_ = 0;
};

// A host over the restarts of its idd: its marks persist.
class AgreedHost {
 public:
  AgreedHost(World& world, std::string name, Server& server)
      : world_(world), name_(std::move(name)), notes_(world, name_, marks) {
    Start(server);
  }

  void Start() { Start(*store->server); }
  void Kill() { is_running = false; }
  void Stop() {
    if (is_running && is_open_ && store->IsOpen()) {
      agreement.Leave(*store, notes_);
      store->NoteStop();
    }
    is_running = false;
  }

  // As the lease worker does before each job.
  bool Prepare() {
    if (!is_running) return false;
    if (is_open_ && store->IsOpen()) {
      store->ShowHost();
      const Result<bool> looked = agreement.Look(*store, notes_);
      if (looked.ok()) {
        if (!looked.value()) is_open_ = Recover();
        return is_open_;
      }
    }
    is_open_ = false;
    is_open_ = store->Open(marks.GetWitnessState().value().disk) && Recover();
    return is_open_;
  }
  // The granted ids; empty if the host has to wait.
  [[nodiscard]] shm::IdRange Lease(std::uint64_t count, const std::string& tag = kTag) {
    last_ = {};
    if (!Prepare() || !agreement.may_lease()) return {};
    const Result<TagRecord> found = store->FindTag(tag);
    if (!found.ok()) return Failed();
    const TagRecord& row = found.value();
    std::vector<CeilingNeed> needs = {
        {.tag = tag,
         .base = std::max({row.next_id, row.used_limit, marks.mark(tag)}),
         .count = count,
         .last = shm::kMaxLimit - 2,
         .ceiling = *row.ceiling,
         .wanted = row.wanted_ceiling}};
    if (!agreement.Cover(*store, notes_, needs).ok()) return Failed();
    if (needs.front().Waits()) return {};
    const Result<Granted> granted = store->TakeLease(tag, count, marks.mark(tag));
    if (!granted.ok()) return Failed();
    if (agreement.IsLate()) {
      if (granted.value().ids.size() != 0) {
        static_cast<void>(store->HandBack(tag, granted.value()));
      }
      return Failed();
    }
    if (granted.value().ids.size() == 0) return {};
    if (!marks.Raise(tag, granted.value().ids.limit).ok()) return Failed();
    last_ = granted.value();
    return last_.ids;
  }
  // Hands the last lease back whole: no client was given an id of it.
  void HandBackLast(const std::string& tag) {
    if (last_.ids.size() == 0 || !marks.Lower(tag, last_.ids.first).ok()) return;
    static_cast<void>(store->HandBack(tag, std::exchange(last_, {})));
  }
  [[nodiscard]] Status SetWitnesses(const std::vector<std::string>& hosts, bool is_forced) {
    if (!Prepare()) return {Code::kUnavailable, "no store"};
    return agreement.SetWitnesses(*store, hosts, is_forced);
  }
  [[nodiscard]] std::string witness() {
    return WitnessName(name_, marks.GetWitnessState().value().disk);
  }
  [[nodiscard]] const std::string& name() const { return name_; }

  std::unique_ptr<FakeTermStore> store;
  FakeMarks marks;
  Agreement agreement;
  bool is_running = true;

 private:
  void Start(Server& server) {
    const bool is_reachable = store == nullptr || store->is_reachable;
    store = std::make_unique<FakeTermStore>(world_, name_);
    store->server = &server;
    store->is_reachable = is_reachable;
    agreement = Agreement({.host = name_, .now_ms = [this] { return world_.now_ms; }});
    is_open_ = false;
    is_start_ = true;
    is_running = true;
  }
  // As leasing/recovery.h.
  bool Recover() {
    const bool has_new_generation = !is_start_ && store->generation() != generation_;
    if (has_new_generation) agreement.Distrust();
    if (!agreement.Arrive(*store, notes_, store->incarnation()).ok()) return false;
    const std::vector<TagMark> all = marks.All().value();
    for (const TagMark& mark : all) {
      if (!store->Reconcile(mark.tag, mark.mark).ok()) return false;
    }
    generation_ = store->generation();
    is_start_ = false;
    return true;
  }
  shm::IdRange Failed() {
    is_open_ = false;
    return {};
  }

  World& world_;
  const std::string name_;
  WatchedNotes notes_;
  bool is_open_ = false;
  bool is_start_ = true;
  std::uint64_t generation_ = 0;
  Granted last_{};
};

}  // namespace idd::daemon::agreed

#endif  // IDD_TESTS_UNIT_SUPPORT_AGREEMENT_HOSTS_H_
