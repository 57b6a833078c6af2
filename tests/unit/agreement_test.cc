// SPDX-License-Identifier: Apache-2.0
//
// Terms and witnesses over in-memory data sets: first single rules of docs/adr/0029, then thousands
// of random histories of five hosts and two servers, in which no id may be granted twice.
#include "agreement/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "platform/logging.h"
#include "support/agreement_hosts.h"
#include "support/test_environment.h"

namespace idd::daemon::agreed {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Names = std::vector<std::string>;

class AgreementTest : public ::testing::Test {
 protected:
  AgreedHost& Add(const std::string& name) { return AddTo(world_.one, name); }
  AgreedHost& AddTo(Server& server, const std::string& name) {
    return *hosts_.emplace_back(std::make_unique<AgreedHost>(world_, name, server));
  }
  // a, b and c, which are witnesses of a new data set.
  void AddThreeWitnesses() {
    for (const char* name : {"a", "b", "c"}) Add(name);
    Run(75);
    ASSERT_EQ(Listed(), (Names{"a", "b", "c"}));
    for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 1200)) << each->name();
  }
  AgreedHost& host(std::size_t i) { return *hosts_[i]; }

  // All hosts do what they do when nothing is leased.
  void Step(std::int64_t ms = 100) {
    world_.now_ms += ms;
    for (const auto& each : hosts_) static_cast<void>(each->Prepare());
  }
  void Run(int seconds) {
    for (int i = 0; i < seconds * 10; ++i) Step();
  }
  [[nodiscard]] bool Leases(AgreedHost& host, const std::string& tag = kTag) {
    const shm::IdRange ids = host.Lease(10, tag);
    if (ids.size() == 0) return false;
    EXPECT_TRUE(grants_.Add(tag, ids)) << "[" << ids.first << ", " << ids.limit << ") came twice";
    return true;
  }
  [[nodiscard]] bool LeasesWithin(AgreedHost& host, std::int64_t ms,
                                  const std::string& tag = kTag) {
    for (const std::int64_t end = world_.now_ms + ms; world_.now_ms < end; Step()) {
      if (Leases(host, tag)) return true;
    }
    return Leases(host, tag);
  }
  // Leases until the ceiling is reached, and returns how often.
  int LeaseAll(AgreedHost& host) {
    int leases = 0;
    while (leases < 10'000 && LeasesWithin(host, 1000)) ++leases;
    return leases;
  }
  // The hosts of the active list.
  [[nodiscard]] Names Listed(const Server& server) const {
    Names names;
    for (const std::string& name : server.data.term.active.names)
      names.push_back(HostOfWitness(name));
    return names;
  }
  [[nodiscard]] Names Listed() const { return Listed(world_.one); }
  [[nodiscard]] std::uint64_t TermOf(const Server& server) const {
    return server.data.term.term.number;
  }
  [[nodiscard]] const simulation::WitnessEntry& RowOf(AgreedHost& host) {
    return world_.one.data.witnesses.at(host.witness());
  }

  World world_;
  std::vector<std::unique_ptr<AgreedHost>> hosts_;
  Grants grants_;
};

class ThreeWitnessesTest : public AgreementTest {
 protected:
  void SetUp() override { AddThreeWitnesses(); }
};

// --- the term

TEST_F(AgreementTest, FirstHostAloneIsTheWitnessAndLeasesAtOnce) {
  AgreedHost& a = Add("a");
  EXPECT_TRUE(Leases(a));
  EXPECT_EQ(Listed(), (Names{"a"}));
  EXPECT_EQ(world_.one.data.term.term, (Term{.number = 1, .witness = a.witness()}));
  EXPECT_EQ(a.agreement.Report().state, "leasing");
  EXPECT_EQ(a.agreement.Report().reason, "");
}

TEST_F(AgreementTest, OtherHostLeasesOnceItHasSeenTheWitnessMove) {
  Add("a");
  AgreedHost& b = Add("b");
  ASSERT_TRUE(Leases(host(0)));
  EXPECT_FALSE(Leases(b)) << "its connection is not proven";
  EXPECT_TRUE(LeasesWithin(b, 2500));
  EXPECT_EQ(TermOf(world_.one), 1U);
}

// The server may have been set back in place, with the rows of all.
TEST_F(AgreementTest, HostWhoseConnectionIsNotProvenDoesNotLease) {
  ASSERT_TRUE(Leases(Add("a")));
  AgreedHost& b = Add("b");
  ASSERT_TRUE(LeasesWithin(b, 2500));
  host(0).Kill();
  world_.one.connections.clear();
  EXPECT_FALSE(LeasesWithin(b, 30'000));
  EXPECT_THAT(b.agreement.Reason(), HasSubstr("waits for a sign of life of a witness"));
  EXPECT_EQ(b.agreement.Report().state, "waiting");
  host(0).Start();
  EXPECT_TRUE(LeasesWithin(b, 2500));
}

TEST_F(AgreementTest, WitnessAloneThatStartsAgainBeginsATerm) {
  AgreedHost& a = Add("a");
  ASSERT_TRUE(Leases(a));
  const std::uint64_t ceiling = world_.one.data.ceilings.at(kTag).active;
  a.Kill();
  a.Start();
  EXPECT_TRUE(Leases(a));
  EXPECT_EQ(TermOf(world_.one), 2U);
  EXPECT_EQ(world_.one.data.tags.at(kTag).next_id, ceiling + 10) << "the rest is a gap";
}

TEST_F(ThreeWitnessesTest, WitnessThatStartsAgainBesideOthersBeginsNone) {
  const std::uint64_t term = TermOf(world_.one);
  host(0).Kill();
  Run(2);
  host(0).Start();
  EXPECT_TRUE(LeasesWithin(host(0), 2500));
  EXPECT_EQ(TermOf(world_.one), term);
}

TEST_F(ThreeWitnessesTest, LostConnectionBeginsNoTerm) {
  const std::uint64_t term = TermOf(world_.one);
  for (int i = 0; i < 10; ++i) {
    world_.one.connections.clear();
    EXPECT_TRUE(LeasesWithin(host(0), 1500));
  }
  EXPECT_EQ(TermOf(world_.one), term);
}

TEST_F(ThreeWitnessesTest, CopyNeedsATermThatTheWitnessesHavePushedInto) {
  const DataSet copy = world_.one.data;
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(LeasesWithin(host(1), 3000));
  ASSERT_TRUE(LeasesWithin(host(2), 3000, "users")) << "a tag that the copy lacks";
  const DataSet lost = world_.one.data;
  host(1).Kill();
  world_.Restart(world_.one, copy);
  EXPECT_TRUE(LeasesWithin(host(0), 5000));
  EXPECT_GT(world_.one.data.term.term, copy.term.term);
  for (const std::string tag : {kTag, "users"}) {
    EXPECT_GE(world_.one.data.ceilings.at(tag).pushed, lost.ceilings.at(tag).active) << tag;
  }
  EXPECT_TRUE(LeasesWithin(host(0), 3000, "users"));
}

TEST_F(ThreeWitnessesTest, TablesThatWereRestoredUnderTheServerNeedATerm) {
  const DataSet copy = world_.one.data;
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(LeasesWithin(host(1), 3000));
  world_.RestoreTables(world_.one, copy);
  EXPECT_FALSE(Leases(host(0)));
  EXPECT_TRUE(LeasesWithin(host(0), 5000));
  EXPECT_GT(world_.one.data.term.term, copy.term.term);
}

TEST_F(ThreeWitnessesTest, NothingIsLeasedAfterAChangeWithoutAMajority) {
  AgreedHost& d = Add("d");
  ASSERT_TRUE(LeasesWithin(d, 2500));
  host(0).Kill();
  host(1).Kill();
  world_.Restart(world_.one, DataSet(world_.one.data));
  EXPECT_FALSE(LeasesWithin(host(2), 20'000));
  EXPECT_FALSE(Leases(d));
  EXPECT_THAT(d.agreement.Reason(), HasSubstr("witnesses that are missing: a (has not come to this "
                                              "term), b (has not come to this term)"));
  host(1).Start();
  EXPECT_TRUE(LeasesWithin(d, 5000));
}

// A host that was granted ids by the data set finds that it lacks them.
TEST_F(ThreeWitnessesTest, HostThatFindsCommitsMissingEndsTheTerm) {
  AgreedHost& d = Add("d");
  ASSERT_TRUE(LeasesWithin(d, 2500));
  for (AgreedHost* const each : {&d, &host(0)}) {
    const std::uint64_t term = TermOf(world_.one);
    each->store->is_reachable = false;
    Step();
    world_.one.data.hosts.at(each->name()).beat = 0;
    each->store->is_reachable = true;
    EXPECT_TRUE(LeasesWithin(*each, 5000)) << each->name();
    EXPECT_EQ(TermOf(world_.one), term + 1) << each->name();
  }
}

TEST_F(ThreeWitnessesTest, WitnessTakesPartInNoTermBelowItsPromise) {
  AgreedHost& b = host(1);
  world_.Restart(world_.two, world_.one.data);
  b.store->server = &world_.two;
  Run(2);
  const Term promise = world_.two.data.term.term;
  ASSERT_EQ(promise.witness, b.witness());
  ASSERT_GT(promise, world_.one.data.term.term);
  const simulation::WitnessEntry row = RowOf(b);
  b.store->server = &world_.one;
  b.store->fates["BeginTerm"] = Fate::kLost;
  static_cast<void>(b.Prepare());
  EXPECT_EQ(RowOf(b).beat, row.beat) << "it has written nothing in the lower term";
  EXPECT_EQ(RowOf(b).term, row.term);
  Run(2);
  EXPECT_GT(world_.one.data.term.term, promise);
}

TEST_F(AgreementTest, NumberWhoseOutcomeIsUnknownGoesIntoNoOtherDataSet) {
  AgreedHost& a = Add("a");
  ASSERT_TRUE(Leases(a));
  world_.Restart(world_.two, world_.one.data);
  world_.Restart(world_.one, world_.two.data);
  a.store->fates["BeginTerm"] = Fate::kAnswerLost;
  static_cast<void>(a.Prepare());
  EXPECT_EQ(TermOf(world_.one), 2U);
  a.store->server = &world_.two;
  static_cast<void>(a.Prepare());
  EXPECT_EQ(TermOf(world_.two), 3U);
  world_.Restart(world_.one, world_.two.data);
  a.store->server = &world_.one;
  a.store->fates["BeginTerm"] = Fate::kLost;
  static_cast<void>(a.Prepare());
  EXPECT_EQ(TermOf(world_.one), 3U);
  static_cast<void>(a.Prepare());
  EXPECT_EQ(TermOf(world_.one), 5U) << "4 may still be on its way";
}

TEST_F(ThreeWitnessesTest, TwoDataSetsInUseGiveNoIdTwice) {
  Add("d");
  Add("e");
  Run(3);
  world_.Restart(world_.two, world_.one.data);
  int leases = 0;
  for (int minute = 0; minute < 10; ++minute) {
    // a goes back and forth, and takes the majority with it.
    host(0).store->server = minute % 2 == 0 ? &world_.two : &world_.one;
    host(1).store->server = &world_.two;
    host(4).store->server = &world_.two;
    for (int i = 0; i < 300; ++i) {
      for (const auto& each : hosts_) leases += Leases(*each) ? 1 : 0;
      Step(200);
    }
  }
  EXPECT_GT(leases, 1000);
  EXPECT_GT(TermOf(world_.one), 3U);
  EXPECT_GT(TermOf(world_.two), 3U);
}

// --- ceilings

TEST_F(ThreeWitnessesTest, CeilingNeedsAMajority) {
  AgreedHost& d = Add("d");
  ASSERT_TRUE(LeasesWithin(d, 2500));
  host(0).store->is_reachable = false;
  EXPECT_TRUE(LeasesWithin(d, 2500, "first")) << "b and c are a majority";
  host(1).store->is_reachable = false;
  EXPECT_GT(LeaseAll(d), 3) << "below the ceilings that are active";
  EXPECT_FALSE(LeasesWithin(d, 10'000, "second"));
  EXPECT_THAT(d.agreement.Reason(), HasSubstr("until a majority of the witnesses has noted it"));
  host(1).store->is_reachable = true;
  EXPECT_TRUE(LeasesWithin(d, 2500, "second"));
  EXPECT_TRUE(LeasesWithin(d, 2500));
}

TEST_F(ThreeWitnessesTest, HostThatIsNoWitnessDelaysNothing) {
  for (const char* name : {"d", "e", "f"}) ASSERT_TRUE(LeasesWithin(Add(name), 2500));
  host(3).Kill();
  host(4).store->is_reachable = false;
  host(5).marks.is_full = true;
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(LeasesWithin(host(0), 1200, "tag-" + std::to_string(i)));
  }
  world_.Restart(world_.one, DataSet(world_.one.data));
  EXPECT_TRUE(LeasesWithin(host(0), 3000));
}

TEST_F(ThreeWitnessesTest, TwoOfThreeWitnessesAreNotDelayedByTheThird) {
  host(2).Kill();
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(LeasesWithin(host(0), 1200, "tag-" + std::to_string(i)));
  }
}

TEST_F(ThreeWitnessesTest, WitnessNotesOnItsDiskBeforeItSaysSo) {
  AgreedHost& b = host(1);
  host(2).Kill();
  const std::uint64_t noted = RowOf(b).noted;
  for (const char* call : {"NoteCeilings", "SetWitnessState"}) {
    b.marks.script.Fail(call, {Code::kUnavailable, "the disk is full"}, 100'000);
    EXPECT_FALSE(LeasesWithin(host(0), 5000, call));
    EXPECT_EQ(RowOf(b).noted, noted) << call;
    b.marks.script.Recover(call);
  }
}

TEST_F(AgreementTest, TermThatCannotBePromisedIsNotBegun) {
  AgreedHost& a = Add("a");
  ASSERT_TRUE(Leases(a));
  world_.Restart(world_.one, DataSet(world_.one.data));
  a.marks.is_full = true;
  EXPECT_FALSE(LeasesWithin(a, 5000));
  EXPECT_EQ(TermOf(world_.one), 1U);
  a.marks.is_full = false;
  EXPECT_TRUE(LeasesWithin(a, 2000));
  EXPECT_EQ(TermOf(world_.one), 2U);
}

TEST_F(ThreeWitnessesTest, WitnessThatCannotPromiseDoesNotEnterTheTerm) {
  host(1).marks.is_full = true;
  host(2).Kill();
  world_.Restart(world_.one, DataSet(world_.one.data));
  EXPECT_FALSE(LeasesWithin(host(0), 5000));
  EXPECT_LT(RowOf(host(1)).term, world_.one.data.term.term);
  host(1).marks.is_full = false;
  EXPECT_TRUE(LeasesWithin(host(0), 3000));
}

TEST_F(ThreeWitnessesTest, PushRaisesWhatAnotherWitnessMustNote) {
  const DataSet copy = world_.one.data;
  ASSERT_TRUE(LeasesWithin(host(0), 2000, "users"));
  Run(2);
  world_.Restart(world_.one, copy);
  host(0).store->is_reachable = false;
  host(1).store->is_reachable = false;
  Run(2);  // c has come, and has pushed
  EXPECT_EQ(world_.one.data.ceilings.at("users").active_in, Term());
  host(1).store->is_reachable = true;
  EXPECT_TRUE(LeasesWithin(host(1), 3000, "users"));
}

// --- a server that is set back in place

TEST_F(ThreeWitnessesTest, WitnessFindsThatTheServerWasSetBack) {
  const std::uint64_t term = TermOf(world_.one);
  const Snapshot snapshot = world_.Take(world_.one);
  for (std::size_t i = 0; i < 200; ++i) static_cast<void>(LeasesWithin(host(i % 3), 1000));
  Run(7);
  World::SetBack(world_.one, snapshot);
  EXPECT_TRUE(LeasesWithin(host(0), 5000));
  EXPECT_GT(TermOf(world_.one), term);
}

// Regression: what b had confirmed on another server proved its connection to this one.
TEST_F(ThreeWitnessesTest, WitnessThatComesFromAnotherServerMustProveItsConnection) {
  world_.Restart(world_.two, world_.one.data);
  host(1).store->server = &world_.two;
  Run(5);
  ASSERT_EQ(world_.two.data.term.term.witness, host(1).witness());
  for (int i = 0; i < 2; ++i) {
    world_.Restart(world_.one);
    Run(5);
  }
  ASSERT_GT(world_.one.data.term.term, world_.two.data.term.term);
  ASSERT_TRUE(LeasesWithin(host(0), 3000));
  const Snapshot snapshot = world_.Take(world_.one);
  for (const std::size_t i : {0U, 2U}) {
    ASSERT_TRUE(LeasesWithin(host(i), 1000));
    host(i).Kill();
  }
  Run(7);
  World::SetBack(world_.one, snapshot);
  host(1).store->server = &world_.one;
  EXPECT_FALSE(LeasesWithin(host(1), 10'000));
}

// Its epochs are others, even if it is a copy of the same term.
TEST_F(ThreeWitnessesTest, WitnessNotesNothingOfAnotherDataSetThatItReadsInBetween) {
  DataSet other = world_.one.data;
  other.epoch += 50;
  bool is_armed = false;
  bool is_other = false;
  const auto exchange = [&] {
    std::swap(world_.one.data, other);
    is_other = !is_other;
    world_.one.restore += is_other ? 1 : -1;
  };
  world_.before = [&](const std::string& name, const std::string& call) {
    if (name != "a") return Fate::kDone;
    if (is_other) exchange();
    const bool is_next = is_armed && call == "ReadTerm";
    is_armed = call == "Raise";
    if (is_next) exchange();
    return Fate::kDone;
  };
  static_cast<void>(Leases(host(0), "users"));
  world_.before = nullptr;
  if (is_other) exchange();
  EXPECT_LE(host(0).marks.disk().witness.noted, world_.one.data.epoch);
  EXPECT_LE(RowOf(host(0)).noted, world_.one.data.epoch);
}

// Witnesses that start have nothing but what they saved within the last ten seconds.
TEST_F(ThreeWitnessesTest, WitnessesThatAllStartBeginATerm) {
  const std::uint64_t term = TermOf(world_.one);
  const Snapshot snapshot = world_.Take(world_.one);
  ASSERT_TRUE(LeasesWithin(host(0), 1000));
  Run(6);
  for (const auto& each : hosts_) each->Kill();
  World::SetBack(world_.one, snapshot);
  for (const auto& each : hosts_) each->Start();
  EXPECT_TRUE(LeasesWithin(host(0), 8000));
  EXPECT_GT(TermOf(world_.one), term);
}

// Only a host that has sent nothing since the snapshot finds its connection intact.
TEST_F(ThreeWitnessesTest, HostThatWasSuspendedDoesNotTrustItsConnection) {
  AgreedHost& d = Add("d");
  ASSERT_TRUE(LeasesWithin(d, 2500));
  const Snapshot snapshot = world_.Take(world_.one);
  for (int i = 0; i < 80; ++i) {  // d is suspended
    world_.now_ms += 100;
    for (std::size_t j = 0; j < 3; ++j) static_cast<void>(Leases(host(j)));
  }
  for (std::size_t j = 0; j < 3; ++j) host(j).Kill();
  World::SetBack(world_.one, snapshot);
  EXPECT_TRUE(d.agreement.IsLate());
  EXPECT_FALSE(LeasesWithin(d, 10'000));
  for (std::size_t j = 0; j < 3; ++j) host(j).Start();
  EXPECT_TRUE(LeasesWithin(d, 8000));
}

TEST_F(AgreementTest, LeaseOfAHostThatIsSuspendedWhileItLeasesGoesBack) {
  AgreedHost& a = Add("a");
  ASSERT_TRUE(Leases(a));
  const std::uint64_t max_id = world_.one.data.tags.at(kTag).next_id;
  world_.before = [this](const std::string& /*host*/, const std::string& call) {
    if (call == "TakeLease") world_.now_ms += 6000;
    return Fate::kDone;
  };
  EXPECT_FALSE(Leases(a));
  EXPECT_EQ(world_.one.data.tags.at(kTag).next_id, max_id);
  world_.before = nullptr;
  EXPECT_TRUE(LeasesWithin(a, 5000));
}

// --- the witnesses

TEST_F(AgreementTest, ThreeHostsAreWitnessesAfterAMinute) {
  for (const char* name : {"a", "b"}) Add(name);
  Run(100);
  EXPECT_EQ(Listed(), (Names{"a"})) << "two hosts need one more";
  Add("c");
  Run(50);
  EXPECT_EQ(Listed(), (Names{"a"}));
  Run(25);
  EXPECT_EQ(Listed(), (Names{"a", "b", "c"}));
  Add("d");
  Run(100);
  EXPECT_EQ(Listed(), (Names{"a", "b", "c"}));
  EXPECT_EQ(TermOf(world_.one), 1U) << "leasing was not interrupted";
  EXPECT_EQ(host(3).agreement.Report().witnesses.size(), 3U);
  EXPECT_TRUE(host(3).agreement.Report().has_majority);
}

TEST_F(ThreeWitnessesTest, WitnessThatIsSilentForTenMinutesIsReplaced) {
  Add("d");
  host(2).Kill();
  Run(590);
  EXPECT_EQ(Listed(), (Names{"a", "b", "c"}));
  Run(20);
  EXPECT_EQ(Listed(), (Names{"a", "b", "d"}));
  EXPECT_TRUE(LeasesWithin(host(0), 2000, "users"));
  host(2).Start();
  EXPECT_TRUE(LeasesWithin(host(2), 3000));
  EXPECT_EQ(Listed(), (Names{"a", "b", "d"}));
}

TEST_F(AgreementTest, WitnessThatStopsHandsOver) {
  Add("a");
  Add("b");
  ASSERT_TRUE(LeasesWithin(host(1), 2500));
  host(0).Stop();
  EXPECT_TRUE(LeasesWithin(host(1), 5000, "users"));
  EXPECT_EQ(Listed(), (Names{"b"}));
  host(1).Stop();
  EXPECT_EQ(Listed(), (Names{"b"})) << "no other host is there";
  EXPECT_EQ(world_.one.data.term.wanted, WitnessList());
}

TEST_F(ThreeWitnessesTest, OneOfThreeWitnessesThatStopsHandsOver) {
  Add("d");
  Run(1);
  host(0).Stop();
  Run(4);
  EXPECT_EQ(Listed(), (Names{"b", "c", "d"}));
}

TEST_F(ThreeWitnessesTest, OperatorNamesTheWitnesses) {
  for (const char* name : {"d", "e"}) Add(name);
  Run(1);
  EXPECT_EQ(host(0).SetWitnesses({"a", "b"}, false).code(), Code::kInvalid);
  EXPECT_EQ(host(0).SetWitnesses({"a", "b", "x"}, false).code(), Code::kInvalid);
  EXPECT_EQ(host(0).SetWitnesses({"a", "b", "b"}, false).code(), Code::kInvalid);
  EXPECT_TRUE(host(3).SetWitnesses({"e", "d", "c"}, false).ok()) << "any host can ask";
  Run(4);
  EXPECT_EQ(Listed(), (Names{"c", "d", "e"}));
  EXPECT_TRUE(LeasesWithin(host(0), 2000, "users"));
  EXPECT_TRUE(host(0).SetWitnesses({"a", "b", "c", "d", "e"}, false).ok());
  Run(4);
  EXPECT_EQ(Listed(), (Names{"a", "b", "c", "d", "e"}));
}

TEST_F(ThreeWitnessesTest, ListNeedsAMajorityOfThePresentOne) {
  for (const char* name : {"d", "e"}) Add(name);
  Run(1);
  host(1).Kill();
  host(2).Kill();
  EXPECT_TRUE(host(0).SetWitnesses({"a", "d", "e"}, false).ok());
  Run(10);
  EXPECT_EQ(Listed(), (Names{"a", "b", "c"}));
  EXPECT_FALSE(LeasesWithin(host(0), 5000, "users"));
  host(1).Start();
  EXPECT_TRUE(LeasesWithin(host(0), 4000, "users"));
  EXPECT_EQ(Listed(), (Names{"a", "d", "e"}));
}

TEST_F(ThreeWitnessesTest, ListNeedsAMajorityOfItsOwn) {
  for (const char* name : {"d", "e"}) Add(name);
  Run(1);
  EXPECT_TRUE(host(0).SetWitnesses({"a", "d", "e"}, false).ok());
  host(3).store->is_reachable = host(4).store->is_reachable = false;
  Run(10);
  EXPECT_EQ(Listed(), (Names{"a", "b", "c"}));
  EXPECT_EQ(host(0).agreement.Report().next, (Names{"a", "d", "e"}));
  EXPECT_FALSE(LeasesWithin(host(0), 5000, "users")) << "a ceiling needs both majorities";
  host(4).store->is_reachable = true;
  EXPECT_TRUE(LeasesWithin(host(0), 4000, "users"));
  EXPECT_EQ(Listed(), (Names{"a", "d", "e"}));
}

// What the present witnesses have noted of "users", none of the next ones would know.
TEST_F(ThreeWitnessesTest, ListIsNotActiveBeforeItsMajorityHasNotedAllCeilings) {
  for (const char* name : {"d", "e"}) Add(name);
  Run(1);
  ASSERT_TRUE(LeasesWithin(host(0), 2000, "users"));
  EXPECT_TRUE(host(0).SetWitnesses({"c", "d", "e"}, false).ok());
  for (const std::size_t i : {3U, 4U}) {
    host(i).marks.script.Fail("NoteCeilings", {Code::kUnavailable, "the disk is full"}, 100'000);
  }
  Run(10);
  EXPECT_EQ(Listed(), (Names{"a", "b", "c"}));
  host(3).marks.script.Recover("NoteCeilings");
  Run(5);
  EXPECT_EQ(Listed(), (Names{"c", "d", "e"}));
}

TEST_F(ThreeWitnessesTest, ListIsForcedWithoutAMajority) {
  Add("d");
  Run(1);
  host(0).Kill();
  host(1).Kill();
  world_.Restart(world_.one, DataSet(world_.one.data));
  Run(70);
  const Status refused = host(2).SetWitnesses({"c"}, false);
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_THAT(refused.message(), HasSubstr("if they are off for good, add --force"));
  EXPECT_TRUE(host(2).SetWitnesses({"c"}, true).ok());
  EXPECT_TRUE(LeasesWithin(host(2), 3000));
  EXPECT_EQ(Listed(), (Names{"c"}));
  EXPECT_TRUE(LeasesWithin(host(3), 3000));
}

TEST_F(ThreeWitnessesTest, ListThatOneWitnessKnowsIsWantedInACopy) {
  for (const char* name : {"d", "e"}) Add(name);
  Run(1);
  const DataSet copy = world_.one.data;
  for (std::size_t i = 1; i < 5; ++i) host(i).store->is_reachable = false;
  // The list is asked for before it is seen that the others are cut off.
  ASSERT_TRUE(host(0).SetWitnesses({"a", "d", "e"}, false).ok());
  Run(2);
  world_.Restart(world_.one, copy);
  Run(1);
  EXPECT_EQ(world_.one.data.term.wanted.names.size(), 3U);
  for (std::size_t i = 1; i < 5; ++i) host(i).store->is_reachable = true;
  Run(6);
  EXPECT_EQ(Listed(), (Names{"a", "d", "e"}));
}

// Regression: a knew a third list, which was asked for after b and c had become witnesses, and made
// it active in a copy of which it was the only witness. b and c went on without it elsewhere.
TEST_F(AgreementTest, ListThatWasActiveElsewhereIsNotPassedOver) {
  Add("a");
  for (const char* name : {"b", "c"}) Add(name);
  Run(5);
  const DataSet copy = world_.one.data;
  Run(75);
  ASSERT_EQ(Listed(), (Names{"a", "b", "c"}));
  world_.Restart(world_.two, world_.one.data);
  host(1).store->server = host(2).store->server = &world_.two;
  Run(10);
  for (std::size_t i : {1U, 2U}) ASSERT_TRUE(LeasesWithin(host(i), 5000));
  // a asks for itself alone, as its view still has a majority for it.
  world_.one.data.term.wanted = {
      .version = 3, .asked_in = world_.one.data.term.term, .names = {host(0).witness()}};
  Run(3);
  world_.Restart(world_.one, copy);
  for (int i = 0; i < 100; ++i) {
    Step();
    for (const auto& each : hosts_) static_cast<void>(Leases(*each));
  }
  EXPECT_FALSE(Leases(host(0)));
  EXPECT_EQ(Listed(), (Names{"a", "b", "c"}));
  EXPECT_EQ(Listed(world_.two), (Names{"a", "b", "c"}));
}

// Regression: b is a witness of the copy's wanted list only, and knew a newer one, in which it is
// not.
TEST_F(AgreementTest, WitnessOfAWantedListSharesANewerOneThatItIsNotIn) {
  Add("a");
  for (const char* name : {"b", "c", "d"}) Add(name);
  Run(1);
  ASSERT_TRUE(host(0).SetWitnesses({"a", "b", "c"}, false).ok());
  const DataSet copy = world_.one.data;
  ASSERT_EQ(copy.term.wanted.names.size(), 3U);
  Run(5);
  ASSERT_EQ(Listed(), (Names{"a", "b", "c"}));
  host(0).store->is_reachable = false;
  ASSERT_TRUE(host(1).SetWitnesses({"a", "c", "d"}, false).ok());
  Run(5);
  ASSERT_EQ(Listed(), (Names{"a", "c", "d"}));
  world_.Restart(world_.two, copy);
  host(0).store->is_reachable = true;
  host(0).store->server = host(1).store->server = &world_.two;
  for (int i = 0; i < 100; ++i) {
    Step();
    for (const auto& each : hosts_) static_cast<void>(Leases(*each));
  }
  EXPECT_EQ(Listed(world_.two), (Names{"a", "c", "d"}));
}

// Two lists of the same version, each asked for in a data set of its own. b has noted the one of
// the lower term in a later term, and leaves before it sees that this list is active.
TEST_F(ThreeWitnessesTest, ListThatWasAgreedIsKeptBeforeOneThatWasOnlyAskedFor) {
  for (const char* name : {"d", "e"}) Add(name);
  Run(1);
  // On server one, a alone knows {a, b, d}.
  for (std::size_t i = 1; i < 5; ++i) host(i).store->is_reachable = false;
  const DataSet copy = world_.one.data;
  ASSERT_TRUE(host(0).SetWitnesses({"a", "b", "d"}, false).ok());
  Run(2);
  host(0).store->is_reachable = false;
  // On server two, b and c ask for {b, c, e} in a later term, and are cut off before they note it.
  world_.Restart(world_.two, copy);
  for (std::size_t i = 1; i < 5; ++i) {
    host(i).store->is_reachable = true;
    host(i).store->server = &world_.two;
  }
  Run(4);
  ASSERT_TRUE(host(1).SetWitnesses({"b", "c", "e"}, false).ok());
  ASSERT_EQ(world_.two.data.term.wanted.names.size(), 3U);
  for (std::size_t i = 1; i < 5; ++i) host(i).store->is_reachable = false;
  // On server one, a and b agree on a's list.
  world_.before = [this](const std::string& name, const std::string& /*call*/) {
    if (name == "b" && Listed() == Names{"a", "b", "d"}) host(1).store->is_reachable = false;
    return Fate::kDone;
  };
  host(0).store->is_reachable = host(1).store->is_reachable = true;
  host(1).store->server = host(3).store->server = &world_.one;
  Run(8);
  ASSERT_EQ(Listed(), (Names{"a", "b", "d"}));
  world_.before = nullptr;
  // b takes part on server two again.
  for (std::size_t i = 1; i < 5; ++i) host(i).store->is_reachable = true;
  host(1).store->server = &world_.two;
  for (int i = 0; i < 200; ++i) {
    Step();
    for (const auto& each : hosts_) static_cast<void>(Leases(*each));
  }
  EXPECT_NE(Listed(world_.two), (Names{"b", "c", "e"}));
}

TEST_F(ThreeWitnessesTest, DiskThatIsOlderThanItsRowIsNoWitnessAnyMore) {
  AgreedHost& c = host(2);
  const std::string name = c.witness();
  const FakeMarks::Disk old = c.marks.disk();
  ASSERT_TRUE(LeasesWithin(host(0), 2000, "users"));
  Run(2);
  c.Kill();
  c.marks.SetDisk(old);
  host(1).Kill();
  c.Start();
  Run(5);
  EXPECT_NE(c.witness(), name);
  EXPECT_FALSE(LeasesWithin(host(0), 5000, "more")) << "a is alone";
  host(1).Start();
  EXPECT_TRUE(LeasesWithin(host(0), 3000, "more"));
  c.Kill();
  c.Start();  // with its new disk it takes the place of the old one
  Run(700);
  EXPECT_TRUE(world_.one.data.term.active.Has(c.witness()));
  EXPECT_EQ(Listed(), (Names{"a", "b", "c"}));
}

// The server was started again, too, so that a term begins.
TEST_F(ThreeWitnessesTest, DiskThatIsOlderThanItsRowOfAnEarlierTermIsNoWitnessAnyMore) {
  AgreedHost& c = host(2);
  const std::string name = c.witness();
  const FakeMarks::Disk old = c.marks.disk();
  ASSERT_TRUE(LeasesWithin(host(0), 2000, "users"));
  Run(2);
  for (const auto& each : hosts_) each->Kill();
  c.marks.SetDisk(old);
  world_.Restart(world_.one);
  c.Start();
  Run(5);
  EXPECT_NE(c.witness(), name);
  host(0).Start();
  EXPECT_FALSE(LeasesWithin(host(0), 5000)) << "a is alone";
  host(1).Start();
  EXPECT_TRUE(LeasesWithin(host(0), 3000));
}

TEST_F(ThreeWitnessesTest, AnotherDataSetTakesTheListThatItHas) {
  AgreedHost& d = AddTo(world_.two, "d");
  world_.two.data.incarnation = "fedcba9876543210";
  ASSERT_TRUE(Leases(d, "users"));
  host(0).store->server = &world_.two;
  EXPECT_TRUE(LeasesWithin(host(0), 3000, "users"));
  EXPECT_EQ(Listed(world_.two), (Names{"d"})) << "a's list is of the other data set";
}

TEST_F(AgreementTest, ReportShowsWhatIsAgreed) {
  EXPECT_EQ(Agreement({.host = "a", .now_ms = nullptr}).Report().state, "none");
  AddThreeWitnesses();
  const AgreementReport report = host(1).agreement.Report();
  EXPECT_EQ(report.server, "one");
  EXPECT_EQ(report.term, 1U);
  EXPECT_EQ(report.begun_by, "a");
  ASSERT_EQ(report.witnesses.size(), 3U);
  EXPECT_TRUE(report.witnesses[2].is_there);
  EXPECT_TRUE(report.has_majority);
  host(2).Kill();
  Run(61);
  EXPECT_FALSE(host(1).agreement.Report().witnesses[2].is_there);
  EXPECT_GE(host(1).agreement.Report().witnesses[2].silent_s, 60U);
  EXPECT_TRUE(host(1).agreement.Report().has_majority);
  EXPECT_EQ(host(1).agreement.Report().reason, "");
  host(0).Kill();
  Run(62);
  EXPECT_FALSE(host(1).agreement.Report().has_majority);
  EXPECT_THAT(host(1).agreement.Report().reason, HasSubstr("a (silent for "));
}

TEST(NotedByTest, IsWhatAMajorityHasNotedInTheTerm) {
  const Term term = {.number = 7, .witness = "a"};
  const WitnessList list = {.version = 1, .asked_in = term, .names = {"a", "b", "c"}};
  const auto row = [](const char* name, const Term& in, std::uint64_t noted) {
    return WitnessRow{.name = name, .term = in, .noted = noted};
  };
  EXPECT_EQ(NotedBy(list, term, {row("a", term, 5), row("b", term, 9)}), 5U);
  EXPECT_EQ(NotedBy(list, term, {row("a", term, 5), row("b", term, 9), row("c", term, 7)}), 7U);
  EXPECT_EQ(NotedBy(list, term, {row("a", term, 5)}), 0U);
  EXPECT_EQ(NotedBy(list, term, {row("a", term, 5), row("x", term, 9)}), 0U);
  const Term older = {.number = 6, .witness = "b"};
  EXPECT_EQ(NotedBy(list, term, {row("a", term, 5), row("b", older, 9)}), 0U);
  EXPECT_EQ(NotedBy(WitnessList(), term, {row("a", term, 5)}), 0U);
}

// Kills between any two steps, lost statements and answers, full disks, hosts that are suspended,
// cut off or moved to the other server, copies in both directions, servers that are set back in
// place with their memory, hosts that stop, and changes of the witnesses.
class Histories {
 public:
  explicit Histories(std::uint64_t seed) : random_(seed), list_odds_(OneIn(2) ? 3 : 30) {
    hosts_.push_back(std::make_unique<AgreedHost>(world_, "a", world_.one));
    // Hosts that know nothing, on two empty servers, would know nothing of each other.
    static_cast<void>(hosts_.front()->Prepare());
    world_.Restart(world_.two, world_.one.data);
    world_.before = [this](const std::string& host, const std::string& call) {
      return Before(host, call);
    };
    for (const char* name : {"b", "c", "d", "e"}) {
      hosts_.push_back(std::make_unique<AgreedHost>(world_, name, world_.one));
    }
  }

  // Returns what went wrong; empty: nothing did.
  std::string Run(int steps) {
    for (int step = 0; step < steps && wrong_.empty(); ++step) {
      if (OneIn(300)) pace_ms_ = OneIn(3) ? 2000 : 150;
      Pass(pace_ms_);
      if (OneIn(1000)) Pass(15'000);  // all are suspended
      if (OneIn(20)) Happen();
      StepOf(*hosts_[Random(hosts_.size())]);
    }
    if (wrong_.empty()) CalmDown();
    return wrong_;
  }
  [[nodiscard]] std::size_t grants() const { return grants_.size(); }
  [[nodiscard]] std::uint64_t terms() const {
    return std::max(world_.one.data.term.term.number, world_.two.data.term.term.number);
  }
  [[nodiscard]] std::uint64_t lists() const {
    return std::max(world_.one.data.term.active.version, world_.two.data.term.active.version);
  }

 private:
  std::uint64_t Random(std::uint64_t n) { return random_() % n; }
  void Pass(std::uint64_t most_ms) { world_.now_ms += static_cast<std::int64_t>(Random(most_ms)); }
  bool OneIn(std::uint64_t n) { return Random(n) == 0; }
  Server& AnyServer() { return OneIn(2) ? world_.one : world_.two; }

  // Other hosts and servers go on between any two steps of a host.
  Fate Before(const std::string& host, const std::string& call) {
    if (busy_.size() < 3 && OneIn(30)) {
      Pass(50);
      if (OneIn(10)) Happen();
      AgreedHost& other = *hosts_[Random(hosts_.size())];
      if (!busy_.contains(other.name())) StepOf(other);
    }
    if (OneIn(2000)) throw Killed();
    if (call == "disk") return full_.contains(host) ? Fate::kLost : Fate::kDone;
    if (OneIn(500)) return Fate::kLost;
    return OneIn(500) ? Fate::kAnswerLost : Fate::kDone;
  }

  // Nothing fails any more: every host leases soon.
  void CalmDown() {
    world_.before = nullptr;
    full_.clear();
    for (const auto& host : hosts_) {
      host->store->is_reachable = true;
      host->store->server = &world_.one;
      if (!host->is_running) host->Start();
    }
    std::set<std::string> leased;
    for (int i = 0; i < 300 && leased.size() < hosts_.size() && wrong_.empty(); ++i) {
      world_.now_ms += 100;
      for (const auto& host : hosts_) {
        if (Claim(*host, kTag)) leased.insert(host->name());
      }
    }
    for (const auto& host : hosts_) {
      if (leased.contains(host->name()) || !wrong_.empty()) continue;
      wrong_ = host->name() + " leases nothing: " + host->agreement.Reason();
    }
  }

  void StepOf(AgreedHost& host) {
    busy_.insert(host.name());
    try {
      Act(host);
    } catch (const Killed&) {
      host.Kill();
    }
    busy_.erase(host.name());
  }
  void Act(AgreedHost& host) {
    if (!host.is_running && OneIn(15)) host.Start();
    const std::string tag = OneIn(4) ? "users" : kTag;
    static_cast<void>(Claim(host, tag));
  }
  bool Claim(AgreedHost& host, const std::string& tag) {
    const shm::IdRange ids = host.Lease(1 + Random(30), tag);
    if (ids.size() == 0) return false;
    if (OneIn(10)) {
      host.HandBackLast(tag);
    } else if (!grants_.Add(tag, ids)) {
      wrong_ = host.name() + " got [" + std::to_string(ids.first) + ", " +
               std::to_string(ids.limit) + ") of " + tag + " a second time";
    }
    return true;
  }

  void Happen() {
    HappenToServers();
    AgreedHost& host = *hosts_[Random(hosts_.size())];
    if (busy_.contains(host.name())) return;
    if (OneIn(25)) host.Kill();
    if (OneIn(40)) StopHost(host);
    if (OneIn(15)) host.store->is_reachable = !host.store->is_reachable;
    if (OneIn(25)) host.store->server = &AnyServer();
    if (OneIn(full_.contains(host.name()) ? 15 : 80)) {
      if (full_.erase(host.name()) == 0) full_.insert(host.name());
    }
    if (OneIn(list_odds_)) ChooseWitnesses(host);
  }
  void StopHost(AgreedHost& host) {
    busy_.insert(host.name());
    try {
      host.Stop();
    } catch (const Killed&) {
      host.Kill();
    }
    busy_.erase(host.name());
  }
  void ChooseWitnesses(AgreedHost& host) {
    Names names;
    for (const auto& each : hosts_) names.push_back(each->name());
    std::shuffle(names.begin(), names.end(), random_);
    names.resize(1 + 2 * Random(3));
    busy_.insert(host.name());
    try {
      static_cast<void>(host.SetWitnesses(names, false));
    } catch (const Killed&) {
      host.Kill();
    }
    busy_.erase(host.name());
  }
  void HappenToServers() {
    Server& server = AnyServer();
    if (OneIn(4)) copies_.push_back(server.data);
    if (OneIn(8)) snapshots_.push_back({&server, world_.Take(server)});
    if (copies_.size() > 12) copies_.pop_front();
    if (snapshots_.size() > 4) snapshots_.pop_front();
    if (OneIn(60)) world_.Restart(server);
    if (OneIn(40) && !copies_.empty()) {
      const DataSet& copy = copies_[Random(copies_.size())];
      OneIn(3) ? world_.RestoreTables(server, copy) : world_.Restart(server, copy);
    }
    if (OneIn(60)) {  // a switchover
      for (const auto& each : hosts_) {
        if (!busy_.contains(each->name())) each->store->server = &server;
      }
    }
    if (OneIn(60) && !snapshots_.empty()) {
      const auto& [origin, snapshot] = snapshots_[Random(snapshots_.size())];
      // A machine is not saved and set back within seconds.
      if (world_.now_ms - snapshot.taken_ms >= 6000) World::SetBack(*origin, snapshot);
    }
  }

  std::mt19937_64 random_;
  const std::uint64_t list_odds_;  // against a change of the witnesses
  World world_;
  std::vector<std::unique_ptr<AgreedHost>> hosts_;
  Grants grants_;
  std::uint64_t pace_ms_ = 150;
  std::set<std::string> busy_;  // in the middle of a step
  std::set<std::string> full_;  // their disks
  std::deque<DataSet> copies_;
  std::deque<std::pair<Server*, Snapshot>> snapshots_;
  std::string wrong_;
};

class AgreementHistories : public ::testing::TestWithParam<unsigned> {
 protected:
  AgreementHistories() { log::SetLevel(log::Level::kError); }  // each has hundreds of terms
  ~AgreementHistories() override { log::SetLevel(level_); }

 private:
  const log::Level level_ = log::GetLevel();
};

TEST_P(AgreementHistories, NoIdIsGrantedTwice) {
  const std::uint64_t count = harness::ScaledLoad(100);
  std::uint64_t grants = 0;
  std::uint64_t terms = 0;
  std::uint64_t lists = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t seed = GetParam() * 1'000'000ULL + i;
    Histories history(seed);
    ASSERT_EQ(history.Run(2000), "") << "seed " << seed;
    grants += history.grants();
    terms += history.terms();
    lists += history.lists();
  }
  EXPECT_GT(grants, 150 * count) << "leases of a history";
  EXPECT_GT(terms, 8 * count);
  EXPECT_GT(lists, 2 * count);
  RecordProperty("grants", std::to_string(grants));
}
INSTANTIATE_TEST_SUITE_P(Seeds, AgreementHistories, ::testing::Range(0U, 8U));

}  // namespace
}  // namespace idd::daemon::agreed
