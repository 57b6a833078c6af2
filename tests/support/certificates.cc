// SPDX-License-Identifier: Apache-2.0
#include "support/certificates.h"

#include <chrono>
#include <filesystem>
#include <optional>

#include "support/child_process.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

void OpenSsl(const std::string& arguments) {
  ChildOptions child;
  child.argv = {"/bin/sh", "-c", "exec /usr/bin/openssl " + arguments + " 2>&1"};
  ChildProcess process(child);
  const std::optional<int> status = process.WaitFor(Patience(std::chrono::seconds(30)));
  Require(status == 0, "openssl " + arguments + ":\n" + process.stdout_text());
}

constexpr const char* kNewKey = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

}  // namespace

void Certificates::MakeAuthority(const std::string& name) const {
  OpenSsl(std::string("req -x509 ") + kNewKey + " -days 2 -subj /CN=" + name + " -keyout " +
          File(name + ".key") + " -out " + File(name + ".pem"));
}

void Certificates::Make(const std::string& name, const std::string& extension) const {
  const std::string request = File(name + ".csr");
  OpenSsl(std::string("req ") + kNewKey + " -subj /CN=" + name + " -keyout " + File(name + ".key") +
          " -out " + request);
  WriteFile(File(name + ".ext"), extension);
  OpenSsl("x509 -req -days 2 -CAcreateserial -CA " + File("ca.pem") + " -CAkey " + File("ca.key") +
          " -in " + request + " -extfile " + File(name + ".ext") + " -out " + File(name + ".pem"));
  std::filesystem::permissions(File(name + ".key"), std::filesystem::perms(0644));
}

}  // namespace idd::harness
