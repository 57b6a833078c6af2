// SPDX-License-Identifier: Apache-2.0
//
// idd_claim_loop SOCKET TAG COUNT [TRUSTED_UID]: claims COUNT ids one by one, half of them inlined
// and half through the C call, and does nothing else, so that strace counts only the system calls
// of claims.
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"

int main(int argc, char** argv) {
  std::uint64_t count = 0;
  if (argc < 4 || argc > 5 ||
      std::from_chars(argv[3], argv[3] + std::strlen(argv[3]), count).ec != std::errc{}) {
    std::fputs("usage: idd_claim_loop SOCKET TAG COUNT [TRUSTED_UID]\n", stderr);
    return 2;
  }
  try {
    idclient::Options options;
    options.socket_path = argv[1];
    if (argc == 5) options.trusted_uid = static_cast<std::uint32_t>(std::atol(argv[4]));
    idclient::Client client(options);
    idclient::Tag tag = client.tag(argv[2]);
    std::uint64_t id = tag.claim();
    for (std::uint64_t i = 0; i < count / 2; ++i) id = tag.claim();
    for (std::uint64_t i = 0; i < count / 2; ++i) {
      if (idclient_claim(tag.get(), &id) != IDCLIENT_OK) {
        std::fprintf(stderr, "idd_claim_loop: %s\n", idclient_last_error());
        return 1;
      }
    }
    std::printf("%llu\n", static_cast<unsigned long long>(id));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "idd_claim_loop: %s\n", error.what());
    return 1;
  }
  return 0;
}
