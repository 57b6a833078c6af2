// SPDX-License-Identifier: Apache-2.0
//
// The findings of idctl doctor, and their presentation.
#ifndef IDD_TOOLS_DOCTOR_DIAGNOSIS_H_
#define IDD_TOOLS_DOCTOR_DIAGNOSIS_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "client/json_document.h"
#include "terminal/terminal.h"

namespace idd::tools {

enum class Health { kOk, kWarning, kProblem };
[[nodiscard]] const char* HealthName(Health health) noexcept;  // "ok", "warning", "problem"

// One finding, shown as one line. The texts are clauses without a final full stop; they may come
// from any source, so they are escaped for output.
struct Finding {
  std::string check;
  Health state = Health::kOk;
  std::string found;
  std::string next;  // what to do; empty if ok
};

struct Diagnosis {
  std::vector<Finding> findings;      // the problems and warnings of each check, or one that is ok
  std::vector<std::string> left_out;  // "clients, limits: why"
};

// Problems first, then warnings, then, with `shows_all`, the ok findings, one a line; on a terminal
// the lines are broken at blanks. The last line has the counts.
[[nodiscard]] std::string RenderDiagnosis(const Diagnosis& diagnosis, bool shows_all,
                                          const Screen& screen);
// {"ok", "findings": [{"check", "state", "found", "next"}], "left_out": [texts]}
[[nodiscard]] JsonDocument DiagnosisJson(const Diagnosis& diagnosis);
[[nodiscard]] std::size_t CountOf(const Diagnosis& diagnosis, Health state);

// --- For the checks.

// Adds an ok finding unless `found` already has a finding of that check.
void AddOkUnlessFound(std::vector<Finding>& findings, const std::string& check,
                      const std::string& found);
// The word quoted for a shell; "TAG" for a word that cannot be typed.
[[nodiscard]] std::string ShellWord(std::string_view word);
// "3 tags: a, b, c" or "5 tags: a, b, c and 2 more", for the noun "tag".
[[nodiscard]] std::string ListSome(const std::vector<std::string>& items, std::string_view noun);

}  // namespace idd::tools

#endif  // IDD_TOOLS_DOCTOR_DIAGNOSIS_H_
