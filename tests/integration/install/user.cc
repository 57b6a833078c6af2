// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <idclient/idclient.hpp>

// Prints what opening an absent daemon throws; exits 0 if the error reports the absence.
int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const idclient::Client client(idclient::Options{.socket_path = argv[1]});
  } catch (const idclient::Error& error) {
    std::puts(error.what());
    return error.status() == IDCLIENT_UNAVAILABLE ? 0 : 1;
  }
  return 1;
}
