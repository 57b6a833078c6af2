// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_STORE_FILE_H_
#define IDD_TESTS_SIMULATION_STORE_FILE_H_

#include <filesystem>
#include <string>
#include <vector>

#include "store/lease.h"
#include "store/store.h"
#include "store/tag_record.h"

namespace idd::simulation {

// A SQLite file that several idds use as their store, and what operators do to it.
class StoreFile {
 public:
  explicit StoreFile(std::filesystem::path dir);
  ~StoreFile();
  StoreFile(const StoreFile&) = delete;
  StoreFile& operator=(const StoreFile&) = delete;

  [[nodiscard]] std::string path() const { return (dir_ / "idd.db").string(); }
  void CreateTag(const daemon::NewTag& tag) const;
  [[nodiscard]] bool HasTag(const std::string& tag) const;
  [[nodiscard]] std::vector<daemon::LeaseRecord> Journal() const;
  // As that host sees them.
  [[nodiscard]] std::vector<daemon::WorkerRecord> ListWorkers(const std::string& tag,
                                                              const std::string& host) const;
  // No number of this row below it is leased from now on.
  [[nodiscard]] std::uint64_t NextOf(const std::string& row) const;

  [[nodiscard]] bool has_dump() const { return std::filesystem::exists(dir_ / "dump.db"); }
  void Dump() const;
  enum class How {
    kInPlace,      // the same file gets the dump's content
    kByCopy,       // a copy of the dump takes its place
    kWithWitness,  // the same, and a copy of the witness; idd must not be running
  };
  void Restore(How how) const;

 private:
  const std::filesystem::path dir_;
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_STORE_FILE_H_
