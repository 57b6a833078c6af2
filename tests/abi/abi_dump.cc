// SPDX-License-Identifier: Apache-2.0
//
// Prints the ABI. After an intended change run `abi_dump > tests/abi/abi.golden`, with the version
// raised as abi.h says.
#include <iostream>

#include "layouts.h"

int main() {
  std::cout << idd::abi::Dump();
  return std::cout.good() ? 0 : 1;
}
