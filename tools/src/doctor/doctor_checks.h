// SPDX-License-Identifier: Apache-2.0
//
// What `idctl doctor` makes of what it has looked at. Pure: facts in, findings out.
#ifndef IDD_TOOLS_DOCTOR_DOCTOR_CHECKS_H_
#define IDD_TOOLS_DOCTOR_DOCTOR_CHECKS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/json_document.h"
#include "client/json_fields.h"
#include "idd/base/status.h"
#include "terminal/terminal.h"

namespace idd::tools {

enum class Health { kOk, kWarning, kProblem };
[[nodiscard]] const char* HealthName(Health health) noexcept;  // "ok", "warning", "problem"

// One line. The texts are clauses without a final full stop and may come from anywhere: they are
// escaped when they are shown.
struct Finding {
  std::string check;
  Health state = Health::kOk;
  std::string found;
  std::string next;  // what to do; empty when it is ok
};

struct Diagnosis {
  std::vector<Finding> findings;      // several of a check, or one that is ok
  std::vector<std::string> left_out;  // "clients, limits: why"
};

// Who asks.
struct DoctorSelf {
  std::string version;
  std::uint32_t abi_major = 0;
  std::uint32_t abi_minor = 0;
};

// The daemon's document (docs/socket-protocol.md, `doctor`). kIncompatible when it is malformed.
[[nodiscard]] Result<Diagnosis> CheckFacts(const Json& facts, const DoctorSelf& self);

// Problems first, then warnings, then, with `shows_all`, what is ok; a line each, which a terminal
// gets broken at blanks; and a last line that counts.
[[nodiscard]] std::string RenderDiagnosis(const Diagnosis& diagnosis, bool shows_all,
                                          const Screen& screen);
// {"ok", "findings": [{"check", "state", "found", "next"}], "left_out": [texts]}
[[nodiscard]] JsonDocument DiagnosisJson(const Diagnosis& diagnosis);
[[nodiscard]] std::size_t CountOf(const Diagnosis& diagnosis, Health state);

// --- For the parts of it.

// Adds a finding that is ok unless `found` already has one of that check.
void AddOkUnlessFound(std::vector<Finding>& findings, const std::string& check,
                      const std::string& found);
// The checks of doctor_tags.cc.
void CheckTags(const Fields& facts, std::vector<Finding>& findings);
// Of the store's look: "behind" and "waste".
void CheckStoredTags(const Fields& look, std::vector<Finding>& findings);
// A word as a shell takes it; "TAG" for one that cannot be typed.
[[nodiscard]] std::string ShellWord(std::string_view word);
// "3 tags: a, b, c" or "5 tags: a, b, c and 2 more", of "tag".
[[nodiscard]] std::string ListSome(const std::vector<std::string>& items, std::string_view noun);

}  // namespace idd::tools

#endif  // IDD_TOOLS_DOCTOR_DOCTOR_CHECKS_H_
