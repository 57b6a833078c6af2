// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_ABI_LAYOUTS_H_
#define IDD_TESTS_ABI_LAYOUTS_H_

#include <cstddef>
#include <string>
#include <vector>

namespace idd::abi {

struct FieldLayout {
  std::string name;
  std::size_t offset = 0;
  std::size_t size = 0;
  friend bool operator==(const FieldLayout&, const FieldLayout&) = default;
};

struct StructLayout {
  std::string name;
  std::size_t size = 0;
  std::size_t alignment = 0;
  std::vector<FieldLayout> fields;
};

// The structs of shm/abi.h, in its order.
[[nodiscard]] std::vector<StructLayout> SharedMemoryLayouts();
// The structs of wire/frames.h, and those that idclient.h passes by pointer.
[[nodiscard]] std::vector<StructLayout> FrameLayouts();
[[nodiscard]] StructLayout OptionsLayout();
[[nodiscard]] std::vector<StructLayout> ClientLayouts();

// Versions, constants, enumerators and all layouts as text, one fact a line.
[[nodiscard]] std::string Dump();

}  // namespace idd::abi

#endif  // IDD_TESTS_ABI_LAYOUTS_H_
