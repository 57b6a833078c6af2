// SPDX-License-Identifier: Apache-2.0
#include "platform/name_service.h"

#include <grp.h>
#include <netdb.h>
#include <pwd.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "platform/bounded_call.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""s;

constexpr std::chrono::milliseconds kLookUpLimit = 2s;

// getpwnam_r(3) and getgrnam_r(3) need a buffer whose size they do not report.
template <typename Entry, typename Call>
std::optional<Entry> FindEntry(const std::string& name, Call find) {
  constexpr std::size_t kMaxGroupBytes = std::size_t{1} << 24;
  for (std::vector<char> buffer(4096); buffer.size() <= kMaxGroupBytes;) {
    Entry entry{};
    Entry* found = nullptr;
    const int error = find(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (error == ERANGE) {
      buffer.resize(buffer.size() * 4);
      continue;
    }
    if (error != 0 || found == nullptr) return std::nullopt;
    return entry;  // its ids; the strings it points to are gone
  }
  return std::nullopt;
}

template <typename Entry, typename Call, typename Id>
Result<std::optional<std::uint32_t>> FindNumber(const char* kind, const std::string& name,
                                                Call find, Id id) {
  const auto answer = std::make_shared<std::optional<std::uint32_t>>();
  Status status = RunWithin(kLookUpLimit, std::string("the look-up of ") + kind + " '" + name + "'",
                            [answer, name, find, id] {
                              const std::optional<Entry> entry = FindEntry<Entry>(name, find);
                              if (entry.has_value()) *answer = (*entry).*id;
                            });
  if (!status.ok()) return status;
  return *answer;
}

}  // namespace

Result<std::optional<std::uint32_t>> FindUser(const std::string& name) {
  return FindNumber<passwd>("user", name, ::getpwnam_r, &passwd::pw_uid);
}

Result<std::optional<std::uint32_t>> FindGroup(const std::string& name) {
  return FindNumber<group>("group", name, ::getgrnam_r, &group::gr_gid);
}

Status FindHost(const std::string& name) {
  const auto error = std::make_shared<int>(0);
  Status status = RunWithin(kLookUpLimit, "the look-up of host '" + name + "'", [error, name] {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    *error = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
    if (*error == 0) ::freeaddrinfo(found);
  });
  if (!status.ok() || *error == 0) return status;
  return {Code::kUnavailable, "host '" + name + "' is not found: " + ::gai_strerror(*error)};
}

}  // namespace idd::daemon
