// SPDX-License-Identifier: Apache-2.0
#include "agreement/witness_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace idd::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Names = std::vector<std::string>;

WitnessList ListOf(Names names) {
  return {.version = 1, .asked_in = {.number = 1, .witness = "a.1"}, .names = std::move(names)};
}

WitnessRow Row(const std::string& name, std::uint64_t silent_s) {
  return {.name = name, .silent_s = silent_s};
}

TEST(CandidateWatchTest, HostIsSteadyAfterAMinute) {
  CandidateWatch watch;
  watch.Note({{.name = "b.1"}}, 1000);
  EXPECT_THAT(watch.There(), ElementsAre("b.1"));
  EXPECT_THAT(watch.Steady(60'999), IsEmpty());
  watch.Note({{.name = "b.1"}, {.name = "c.1"}}, 61'000);
  EXPECT_THAT(watch.Steady(61'000), ElementsAre("b.1"));
  EXPECT_THAT(watch.There(), ElementsAre("b.1", "c.1"));
}

TEST(CandidateWatchTest, HostThatWasAwayBeginsAgain) {
  CandidateWatch watch;
  watch.Note({{.name = "b.1"}}, 0);
  watch.Note({}, 30'000);
  watch.Note({{.name = "b.1"}}, 40'000);
  EXPECT_THAT(watch.Steady(60'000), IsEmpty());
  watch.Note({{.name = "b.1", .silent_s = kSilentS}}, 90'000);
  watch.Note({{.name = "b.1"}}, 95'000);
  EXPECT_THAT(watch.Steady(154'999), IsEmpty()) << "it was silent";
  EXPECT_THAT(watch.Steady(155'000), ElementsAre("b.1"));
  watch.Clear();
  EXPECT_THAT(watch.There(), IsEmpty());
}

TEST(CandidateWatchTest, HostWithAnotherDiskIsAnotherOne) {
  CandidateWatch watch;
  watch.Note({{.name = "b.1"}}, 0);
  watch.Note({{.name = "b.2"}}, 30'000);
  EXPECT_THAT(watch.Steady(60'000), IsEmpty());
  EXPECT_THAT(watch.There(), ElementsAre("b.2"));
}

TEST(ChooseNextTest, OneBecomesThreeAndNeverTwo) {
  const WitnessList one = ListOf({"b.1"});
  EXPECT_EQ(ChooseNext(one, {}, {}), std::nullopt);
  EXPECT_EQ(ChooseNext(one, {}, {"a.1", "b.1"}), std::nullopt);
  EXPECT_EQ(ChooseNext(one, {}, {"a.1", "b.1", "c.1", "d.1"}), (Names{"a.1", "b.1", "c.1"}));
}

TEST(ChooseNextTest, ThreeAreNotChangedWithoutNeed) {
  const WitnessList three = ListOf({"a.1", "b.1", "c.1"});
  const std::vector<WitnessRow> rows = {Row("a.1", 0), Row("b.1", kWitnessSilentS - 1),
                                        Row("c.1", 0)};
  EXPECT_EQ(ChooseNext(three, rows, {"a.1", "b.1", "c.1", "d.1"}), std::nullopt);
  const WitnessList five = ListOf({"a.1", "b.1", "c.1", "d.1", "e.1"});
  EXPECT_EQ(ChooseNext(five, rows, {"a.1", "b.1", "c.1", "d.1", "e.1", "f.1"}), std::nullopt);
}

TEST(ChooseNextTest, SilentWitnessIsReplacedByAHostThatIsThere) {
  const WitnessList three = ListOf({"a.1", "b.1", "c.1"});
  const std::vector<WitnessRow> rows = {Row("a.1", 0), Row("b.1", kWitnessSilentS), Row("c.1", 0)};
  EXPECT_EQ(ChooseNext(three, rows, {"a.1", "c.1"}), std::nullopt) << "no other host is there";
  EXPECT_EQ(ChooseNext(three, rows, {"a.1", "c.1", "d.1"}), (Names{"a.1", "c.1", "d.1"}));
  const std::vector<WitnessRow> two = {Row("a.1", kWitnessSilentS), Row("b.1", kWitnessSilentS)};
  EXPECT_EQ(ChooseNext(three, two, {"c.1", "d.1", "e.1"}), (Names{"b.1", "c.1", "d.1"}))
      << "one after the other";
}

// Two witnesses of one host would be lost together.
TEST(ChooseNextTest, HostIsAWitnessOnce) {
  const WitnessList three = ListOf({"a.1", "b.1", "c.1"});
  const std::vector<WitnessRow> rows = {Row("a.1", 0), Row("b.1", kWitnessSilentS), Row("c.1", 0)};
  EXPECT_EQ(ChooseNext(three, rows, {"a.2", "c.1"}), std::nullopt);
  EXPECT_EQ(ChooseNext(three, rows, {"a.2", "b.2", "c.1"}), (Names{"a.1", "b.2", "c.1"}))
      << "its disk was exchanged";
  EXPECT_EQ(ChooseNext(ListOf({"a.1"}), {}, {"a.2", "b.1"}), std::nullopt);
}

TEST(ChooseWithoutTest, AnotherHostTakesThePlaceOfTheOneThatStops) {
  EXPECT_EQ(ChooseWithout(ListOf({"a.1"}), "a.1", {"a.1"}), std::nullopt);
  EXPECT_EQ(ChooseWithout(ListOf({"a.1"}), "a.1", {"a.1", "b.1"}), (Names{"b.1"}));
  const WitnessList three = ListOf({"a.1", "b.1", "c.1"});
  EXPECT_EQ(ChooseWithout(three, "b.1", {"a.1", "b.1", "c.1"}), std::nullopt);
  EXPECT_EQ(ChooseWithout(three, "b.1", {"a.1", "b.1", "b.2", "c.1", "d.1"}),
            (Names{"a.1", "c.1", "d.1"}));
}

}  // namespace
}  // namespace idd::daemon
