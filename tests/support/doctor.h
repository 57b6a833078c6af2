// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_DOCTOR_H_
#define IDD_TESTS_SUPPORT_DOCTOR_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/idctl.h"
#include "support/test_environment.h"

namespace idd::harness {

// `idctl doctor` as a script uses it.
struct Examination {
  int exit_status = -1;
  std::string err;
  nlohmann::json document;

  [[nodiscard]] std::vector<nlohmann::json> Of(const std::string& state) const {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& finding : document.at("findings")) {
      if (finding.at("state") == state) found.push_back(finding);
    }
    return found;
  }
  [[nodiscard]] bool Has(const std::string& state, const std::string& check) const {
    const std::vector<nlohmann::json> found = Of(state);
    return std::any_of(found.begin(), found.end(), [&check](const nlohmann::json& finding) {
      return finding.at("check") == check;
    });
  }
};

// On a busy machine a healthy store may exceed idd's timeout, so the doctor is asked again.
[[nodiscard]] inline IdctlResult RunDoctor(const Idctl& idctl,
                                           const std::vector<std::string>& arguments) {
  IdctlResult result = idctl.Run(arguments);
  for (int tries = 0; tries < 3; ++tries) {
    if (result.out.find("has not answered within") == std::string::npos) break;
    result = idctl.Run(arguments);
  }
  return result;
}

[[nodiscard]] inline Examination Examine(const Idctl& idctl) {
  const IdctlResult result = RunDoctor(idctl, {"--json", "doctor"});
  Examination examination{.exit_status = result.exit_status, .err = result.err, .document = {}};
  examination.document = nlohmann::json::parse(result.out, nullptr, false);
  Require(examination.document.is_object(),
          "idctl doctor: no document: " + result.out + result.err);
  return examination;
}

// The expected report of a staged fault.
struct ExpectedFinding {
  std::string state;  // "problem", "warning"
  std::string check;
  std::string found;  // an extended regular expression
  std::string next;   // the same
  int exit_status = 1;
};

// The fault is the only problem, or the only warning of its check. For people it is a line of its
// own that includes the next step.
inline void ExpectFinding(const Idctl& idctl, const ExpectedFinding& expected) {
  const Examination examination = Examine(idctl);
  EXPECT_EQ(examination.exit_status, expected.exit_status) << examination.document.dump(1);
  EXPECT_EQ(examination.document.at("ok"), examination.Of("problem").empty());
  std::vector<nlohmann::json> of_state = examination.Of(expected.state);
  // The tests' idd does not run as idd.service, so there are other warnings.
  if (expected.state == "warning") {
    std::erase_if(of_state, [&](const auto& found) { return found.at("check") != expected.check; });
  }
  ASSERT_EQ(of_state.size(), 1U) << examination.document.dump(1);
  EXPECT_EQ(of_state.front().at("check"), expected.check) << of_state.front();
  EXPECT_THAT(of_state.front().at("found").get<std::string>(),
              ::testing::ContainsRegex(expected.found));
  EXPECT_THAT(of_state.front().at("next").get<std::string>(),
              ::testing::ContainsRegex(expected.next));
  const IdctlResult text = RunDoctor(idctl, {"doctor"});
  EXPECT_EQ(text.exit_status, expected.exit_status) << text.out << text.err;
  EXPECT_THAT("\n" + text.out,
              ::testing::ContainsRegex("\n" + expected.state + " +" + expected.check +
                                       " [^\n]*; next: [^\n]+\n"));
}

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_DOCTOR_H_
