// SPDX-License-Identifier: Apache-2.0
//
// The interfaces that other programs were compiled against do not change by accident, and match the
// documents.
#include "idd/shm/abi.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "c_header.h"
#include "idclient/idclient.h"
#include "idclient/idclient.hpp"
#include "idd/base/status.h"
#include "layouts.h"

namespace idd::abi {
namespace {

std::string ReadFile(const std::string& path) {
  const std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(AbiTest, DumpIsTheGoldenFile) {
  const std::vector<std::string> golden = Lines(ReadFile(IDD_ABI_GOLDEN));
  const std::vector<std::string> now = Lines(Dump());
  for (std::size_t i = 0; i < std::max(golden.size(), now.size()); ++i) {
    ASSERT_EQ(i < now.size() ? now[i] : "(nothing)", i < golden.size() ? golden[i] : "(nothing)")
        << "line " << i + 1 << "; if intended: abi_dump > tests/abi/abi.golden";
  }
}

TEST(AbiTest, FieldsFillTheirStructsWithoutAGap) {
  std::vector<StructLayout> all = SharedMemoryLayouts();
  const std::vector<StructLayout> frames = FrameLayouts();
  all.insert(all.end(), frames.begin(), frames.end());
  const std::vector<StructLayout> client = ClientLayouts();
  all.insert(all.end(), client.begin(), client.end());
  for (const StructLayout& layout : all) {
    std::size_t end = 0;
    for (const FieldLayout& field : layout.fields) {
      EXPECT_EQ(field.offset, end)
          << layout.name << "." << field.name << ": padding or a forgotten field";
      end = field.offset + field.size;
    }
    EXPECT_EQ(end, layout.size) << layout.name;
  }
}

// The tables of docs/shm-abi.md: `### Name (size N, alignment N)`, then rows `offset | size |
// field`.
std::vector<StructLayout> DocumentedLayouts(const std::string& text) {
  const std::regex heading(R"(^### (\w+) \(size (\d+), alignment (\d+)\)$)");
  const std::regex row(R"(^\| *(\d+) *\| *(\d+) *\| *`(\w+)` *\|.*$)");
  std::vector<StructLayout> layouts;
  bool inside = false;
  for (const std::string& line : Lines(text)) {
    std::smatch match;
    if (std::regex_match(line, match, heading)) {
      layouts.push_back({match[1], std::stoul(match[2]), std::stoul(match[3]), {}});
      inside = true;
    } else if (line.starts_with("#")) {
      inside = false;
    } else if (inside && std::regex_match(line, match, row)) {
      layouts.back().fields.push_back({match[3], std::stoul(match[1]), std::stoul(match[2])});
    }
  }
  return layouts;
}

TEST(AbiTest, DocumentedTablesAreTheStructs) {
  std::map<std::string, StructLayout> documented;
  for (const StructLayout& layout : DocumentedLayouts(ReadFile(IDD_SHM_ABI_MD))) {
    EXPECT_TRUE(documented.emplace(layout.name, layout).second) << layout.name << " twice";
  }
  for (const StructLayout& layout : SharedMemoryLayouts()) {
    ASSERT_TRUE(documented.contains(layout.name)) << layout.name << " is not documented";
    const StructLayout& page = documented[layout.name];
    EXPECT_EQ(page.size, layout.size) << layout.name;
    EXPECT_EQ(page.alignment, layout.alignment) << layout.name;
    EXPECT_EQ(page.fields.size(), layout.fields.size()) << layout.name;
    for (std::size_t i = 0; i < std::min(page.fields.size(), layout.fields.size()); ++i) {
      EXPECT_EQ(page.fields[i].name, layout.fields[i].name) << layout.name;
      EXPECT_EQ(page.fields[i].offset, layout.fields[i].offset)
          << layout.name << "." << layout.fields[i].name;
      EXPECT_EQ(page.fields[i].size, layout.fields[i].size)
          << layout.name << "." << layout.fields[i].name;
    }
    documented.erase(layout.name);
  }
  for (const auto& [name, layout] : documented) ADD_FAILURE() << name << " exists only on the page";
}

TEST(AbiTest, DocumentedVersionAndConstantsAreTheHeaders) {
  const std::string page = ReadFile(IDD_SHM_ABI_MD);
  std::ostringstream version;
  version << "ABI version " << shm::kAbiMajor << "." << shm::kAbiMinor << ", stored as `0x"
          << std::hex << std::setw(8) << std::setfill('0') << shm::kAbiVersion << "`";
  EXPECT_NE(page.find(version.str()), std::string::npos) << version.str();
  for (const char* row : {"| `kMaxLimit` | 2^63 - 1 |", "| `kClosingStep` | 2^62 |",
                          "| `kNoMark` | 2^64 - 1 |", "| `kMaxClaim` | 2^32 |"}) {
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
  EXPECT_EQ(shm::kMaxLimit, (1ULL << 63) - 1);
  EXPECT_EQ(shm::kClosingStep, 1ULL << 62);
  EXPECT_EQ(shm::kNoMark, ~0ULL);
  EXPECT_EQ(shm::kMaxClaim, 1ULL << 32);
}

TEST(AbiTest, DocumentedFrameHeaderIsTheStruct) {
  const std::regex row(R"(^\| *(\d+) *\| *(\d+) *\| *`(\w+)` *\|.*$)");
  std::vector<FieldLayout> documented;
  bool inside = false;
  for (const std::string& line : Lines(ReadFile(IDD_SOCKET_PROTOCOL_MD))) {
    std::smatch match;
    if (line.starts_with("#")) inside = line == "## Frame";
    if (inside && std::regex_match(line, match, row)) {
      documented.push_back({match[3], std::stoul(match[1]), std::stoul(match[2])});
    }
  }
  EXPECT_EQ(documented, FrameLayouts()[0].fields);
}

// The symbols that the dynamic linker sees: `name@VERSION` of every defined symbol.
std::set<std::string> ExportedSymbols(const std::string& path) {
  const std::string file = ReadFile(path);
  const auto at = [&file]<typename T>(std::size_t offset, T* out) {
    ASSERT_LE(offset + sizeof(T), file.size());
    std::memcpy(out, file.data() + offset, sizeof(T));
  };
  Elf64_Ehdr header{};
  at(0, &header);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    at(header.e_shoff + i * sizeof(Elf64_Shdr), &sections[i]);
  }
  const auto of_type = [&](Elf64_Word type) {
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_type == type) return section;
    }
    ADD_FAILURE() << "no section of type " << type;
    return Elf64_Shdr{};
  };
  const Elf64_Shdr symbols = of_type(SHT_DYNSYM);
  const Elf64_Shdr versions = of_type(SHT_GNU_versym);
  const Elf64_Shdr definitions = of_type(SHT_GNU_verdef);
  const std::size_t strings = sections[symbols.sh_link].sh_offset;
  std::map<unsigned, std::string> names;  // of the library's versions
  for (std::size_t i = 0, offset = definitions.sh_offset; i < definitions.sh_info; ++i) {
    Elf64_Verdef definition{};
    at(offset, &definition);
    Elf64_Verdaux name{};
    at(offset + definition.vd_aux, &name);
    names[definition.vd_ndx] = file.c_str() + strings + name.vda_name;
    offset += definition.vd_next;
  }
  std::set<std::string> exported;
  for (std::size_t i = 0; i < symbols.sh_size / sizeof(Elf64_Sym); ++i) {
    Elf64_Sym symbol{};
    at(symbols.sh_offset + i * sizeof(Elf64_Sym), &symbol);
    Elf64_Half version = 0;
    at(versions.sh_offset + i * sizeof(version), &version);
    const std::string name = file.c_str() + strings + symbol.st_name;
    const bool is_version =
        ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_shndx == SHN_ABS;
    // A sanitizer's own symbols begin with two underscores; tests/lint/library.sh checks the plain
    // build.
    if (symbol.st_shndx == SHN_UNDEF || is_version || name.starts_with("__")) continue;
    exported.insert(name + "@" + names[version & 0x7fffU]);
  }
  return exported;
}

TEST(AbiTest, LibraryExportsTheGoldenSymbols) {
  const std::vector<std::string> golden = Lines(ReadFile(IDD_SYMBOLS_GOLDEN));
  EXPECT_EQ(ExportedSymbols(IDD_IDCLIENT_LIBRARY),
            std::set<std::string>(golden.begin(), golden.end()));
}

TEST(AbiTest, StatusesOfTheCHeaderAreTheCodes) {
  const std::pair<idclient_status, Code> pairs[] = {{IDCLIENT_OK, Code::kOk},
                                                    {IDCLIENT_INVALID, Code::kInvalid},
                                                    {IDCLIENT_UNAVAILABLE, Code::kUnavailable},
                                                    {IDCLIENT_NO_SUCH_TAG, Code::kNoSuchTag},
                                                    {IDCLIENT_DENIED, Code::kDenied},
                                                    {IDCLIENT_TIMEOUT, Code::kTimeout},
                                                    {IDCLIENT_OUT_OF_IDS, Code::kOutOfIds},
                                                    {IDCLIENT_INCOMPATIBLE, Code::kIncompatible},
                                                    {IDCLIENT_SYSTEM, Code::kSystem}};
  std::uint32_t value = 0;
  for (const auto& [status, code] : pairs) {
    EXPECT_EQ(static_cast<std::uint32_t>(status), value);
    EXPECT_EQ(static_cast<std::uint32_t>(code), value);
    EXPECT_STREQ(idclient_status_name(status), CodeName(code));
    ++value;
  }
  EXPECT_STREQ(idclient_status_name(static_cast<idclient_status>(value)), "UNKNOWN");
}

TEST(AbiTest, CAndCppSeeTheSameOptions) {
  const StructLayout options = OptionsLayout();
  EXPECT_EQ(c_options_size(), options.size);
  for (std::size_t i = 0; i < options.fields.size(); ++i) {
    EXPECT_EQ(c_options_offset(static_cast<int>(i)), options.fields[i].offset)
        << options.fields[i].name;
  }
  EXPECT_TRUE(c_initializer_is_complete());
}

TEST(AbiTest, CallsFromCFailWithTheirStatuses) { EXPECT_EQ(c_calls_fail_politely(), 0); }

TEST(AbiTest, CppHeaderThrowsWhatTheCCallsAnswer) {
  try {
    const idclient::Client client({.socket_path = "/nonexistent/idd.sock"});
    FAIL() << "no process listens there";
  } catch (const idclient::Error& error) {
    EXPECT_EQ(error.status(), IDCLIENT_UNAVAILABLE);
    EXPECT_NE(std::string(error.what()).find("/nonexistent/idd.sock"), std::string::npos);
  }
  EXPECT_THROW(idclient::Client({.socket_path = "/x", .timeout = std::chrono::milliseconds(-1)}),
               idclient::Error);
}

}  // namespace
}  // namespace idd::abi
