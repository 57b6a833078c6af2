// SPDX-License-Identifier: Apache-2.0
//
// The findings of `idctl doctor`. Pure: facts in, findings out.
#ifndef IDD_TOOLS_DOCTOR_DOCTOR_CHECKS_H_
#define IDD_TOOLS_DOCTOR_DOCTOR_CHECKS_H_

#include <cstdint>
#include <string>

#include "client/json_document.h"
#include "doctor/diagnosis.h"
#include "idd/base/status.h"

namespace idd::tools {

// The asking idctl.
struct DoctorSelf {
  std::string version;
  std::uint32_t abi_major = 0;
  std::uint32_t abi_minor = 0;
  bool has_rseq = true;  // restartable sequences, which lanes need
};

// The daemon's document (docs/socket-protocol.md, `doctor`). kIncompatible when it is malformed.
[[nodiscard]] Result<Diagnosis> CheckFacts(const Json& facts, const DoctorSelf& self);

}  // namespace idd::tools

#endif  // IDD_TOOLS_DOCTOR_DOCTOR_CHECKS_H_
