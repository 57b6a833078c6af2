// SPDX-License-Identifier: Apache-2.0
//
// idctl doctor: the checks of the tags.
#ifndef IDD_TOOLS_DOCTOR_DOCTOR_TAGS_H_
#define IDD_TOOLS_DOCTOR_DOCTOR_TAGS_H_

#include <vector>

#include "client/json_fields.h"
#include "doctor/diagnosis.h"

namespace idd::tools {

// Checks the tags that the daemon serves or the store has.
// `has_rseq`: this host has restartable sequences.
void CheckTags(const Fields& facts, bool has_rseq, std::vector<Finding>& findings);
// From the store's journal: "behind" and "waste".
void CheckStoredTags(const Fields& look, std::vector<Finding>& findings);
}  // namespace idd::tools

#endif  // IDD_TOOLS_DOCTOR_DOCTOR_TAGS_H_
