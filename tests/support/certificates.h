// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_CERTIFICATES_H_
#define IDD_TESTS_SUPPORT_CERTIFICATES_H_

#include <string>

#include "support/temp_dir.h"

namespace idd::harness {

// Makes NAME.pem and NAME.key in a directory, which any user may read: database servers run as
// another one. Throws HarnessError on an error.
class Certificates {
 public:
  // `dir` outlives it.
  explicit Certificates(const TempDir& dir) : dir_(dir) {}

  void MakeAuthority(const std::string& name) const;
  // Signed by the authority `ca`, with an extension as in openssl's files, for example
  // "subjectAltName=DNS:localhost".
  void Make(const std::string& name, const std::string& extension) const;

 private:
  [[nodiscard]] std::string File(const std::string& name) const { return dir_.File(name); }

  const TempDir& dir_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_CERTIFICATES_H_
