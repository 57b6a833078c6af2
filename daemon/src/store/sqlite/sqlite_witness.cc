// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite/sqlite_witness.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "idd/base/check.h"
#include "idd/base/clock.h"
#include "idd/shm/abi.h"
#include "platform/random.h"
#include "sql/sqlite_db.h"

namespace idd::daemon {
namespace {

constexpr std::string_view kHeader = "idd-witness 1 ";
constexpr std::string_view kNone = "-";  // in place of a line or a stamp
constexpr std::size_t kHashDigits = 16;
constexpr std::size_t kTokenDigits = 32;
constexpr mode_t kWitnessMode = 0600;
constexpr mode_t kReadWrite = 0666;  // the mode bits that are copied from the database file
// Room for some 2,600 leases of a tag with a short name; a new file costs two syncs.
constexpr std::size_t kRoomBytes = std::size_t{256} * 1024;
constexpr std::size_t kChunkBytes = 4096;
// The size of a file's last record, which names the next file.
constexpr off_t kMoveBytes = kHashDigits + 1 + 2 + kTokenDigits + 1;

// FNV-1a. It detects records that a power cut tore. It does not protect against forgery: a forger
// could write the database as well.
std::string Hash(std::string_view before, std::string_view body) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::string_view bytes) {
    for (const char byte : bytes) {
      hash ^= static_cast<unsigned char>(byte);
      hash *= 0x100000001b3;
    }
  };
  add(before);
  add(body);
  static constexpr std::array<char, 17> kDigits{"0123456789abcdef"};
  std::string text;
  for (unsigned shift = 0; shift < 64; shift += 4) text += kDigits[(hash >> shift) & 0xf];
  return text;
}

bool IsPlain(char byte) { return byte > ' ' && byte < '\x7f' && byte != '%'; }

// Escapes a tag for a record: the result has no spaces, control characters or bytes beyond ASCII.
std::string Escape(std::string_view tag) {
  static constexpr std::array<char, 17> kDigits{"0123456789abcdef"};
  std::string text;
  for (const char byte : tag) {
    if (IsPlain(byte)) {
      text += byte;
      continue;
    }
    const unsigned value = static_cast<unsigned char>(byte);
    text += '%';
    text += kDigits[value >> 4U];
    text += kDigits[value & 0xfU];
  }
  return text;
}

std::optional<std::string> Unescape(std::string_view text) {
  std::string tag;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      tag += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const char* end = text.data() + i + 3;
    if (std::from_chars(text.data() + i + 1, end, value, 16).ptr != end) return std::nullopt;
    tag += static_cast<char>(value);
    i += 2;
  }
  return tag;
}

std::string_view NextWord(std::string_view& text) {
  const std::size_t space = text.find(' ');
  const std::string_view word = text.substr(0, space);
  text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
  return word;
}

std::string OrNone(const std::string& token) { return std::string(token.empty() ? kNone : token); }
std::string FromNone(std::string_view token) { return std::string(token == kNone ? "" : token); }

// "<next>=<tag>"
std::string NextText(const std::string& tag, std::uint64_t next) {
  return std::to_string(next) + '=' + Escape(tag);
}

// "L <line> <stamp> <next>=<tag> ..."
std::string Body(const SqliteWitness::State& change) {
  std::string body = "L " + OrNone(change.line) + " " + OrNone(change.stamp);
  for (const auto& [tag, next] : change.next) body += ' ' + NextText(tag, next);
  return body;
}

// "R <token> <next>=<tag>"
std::string Body(const SqliteWitness::HandBack& hand_back) {
  return "R " + hand_back.token + ' ' + NextText(hand_back.tag, hand_back.next);
}

bool ParseNext(std::string_view word, std::string& tag, std::uint64_t& next) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const char* end = word.data() + equals;
  if (std::from_chars(word.data(), end, next).ptr != end || next > shm::kMaxLimit) return false;
  std::optional<std::string> name = Unescape(word.substr(equals + 1));
  if (!name.has_value()) return false;
  tag = *std::move(name);
  return true;
}

std::optional<SqliteWitness::HandBack> ParseHandBack(std::string_view body) {
  SqliteWitness::HandBack hand_back;
  if (NextWord(body) != "R") return std::nullopt;
  hand_back.token = NextWord(body);
  if (!ParseNext(NextWord(body), hand_back.tag, hand_back.next)) return std::nullopt;
  return hand_back;
}

std::optional<SqliteWitness::State> ParseBody(std::string_view body) {
  SqliteWitness::State change;
  if (NextWord(body) != "L") return std::nullopt;
  change.line = FromNone(NextWord(body));
  change.stamp = FromNone(NextWord(body));
  while (!body.empty()) {
    std::string tag;
    std::uint64_t next = 0;
    if (!ParseNext(NextWord(body), tag, next)) return std::nullopt;
    change.next[tag] = next;
  }
  return change;
}

void Apply(const SqliteWitness::State& change, SqliteWitness::State& state) {
  state.line = change.line;
  state.stamp = change.stamp;
  for (const auto& [tag, next] : change.next) state.next[tag] = next;
  state.announced.reset();
}

bool WriteAll(int fd, std::string_view bytes, off_t at) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
    at += written;
  }
  return true;
}

bool ReadExactly(int fd, off_t at, std::size_t size, std::string& bytes) {
  bytes.assign(size, '\0');
  const ssize_t got = ::pread(fd, bytes.data(), size, at);
  return got >= 0 && static_cast<std::size_t>(got) == size;
}

// A lock of the open file description: the last close releases it, however the process ends, and
// SQLite's closing of other descriptors does not.
bool SetLock(int fd, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// A name in a directory outlives a power cut once the directory was synced.
bool SyncDirectoryOf(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path();
  const ScopedFd fd(
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.valid() && ::fsync(fd.get()) == 0;
}

}  // namespace

// --- which file

void SqliteWitness::SetDatabase(const std::string& path) {
  IDD_CHECK(!is_locked_);
  std::error_code ignored;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, ignored);
  path_ = (resolved.empty() ? path : resolved.string()) + ".witness";
}

Status SqliteWitness::Error(int error, std::string_view what) const {
  return {Code::kUnavailable, "cannot " + std::string(what) + " '" + path_ +
                                  "', without which no ids are leased from its database: " +
                                  std::system_category().message(error)};
}

void SqliteWitness::Forget() {
  state_ = {};
  id_.clear();
  hash_.clear();
  moved_to_.clear();
  last_ = end_ = 0;
}

bool SqliteWitness::IsInPlace() const {
  struct stat ours {};
  struct stat named {};
  return ::fstat(fd_.get(), &ours) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

Status SqliteWitness::CheckCurrent() const {
  if (!fd_.valid() || IsInPlace()) return Status::Ok();
  return {Code::kUnavailable, "'" + path_ + "' was replaced, moved or deleted"};
}

void SqliteWitness::ShareLike(const std::string& database) const noexcept {
  struct stat theirs {};
  struct stat ours {};
  if (::stat(database.c_str(), &theirs) != 0 || ::fstat(fd_.get(), &ours) != 0) return;
  const mode_t mode = theirs.st_mode & kReadWrite;
  // As SQLite does with its log: a process that may write the database needs this file as well.
  if ((ours.st_mode & kReadWrite) != mode) static_cast<void>(::fchmod(fd_.get(), mode));
  if (ours.st_uid != theirs.st_uid || ours.st_gid != theirs.st_gid) {
    [[maybe_unused]] const int owned = ::fchown(fd_.get(), theirs.st_uid, theirs.st_gid);
  }
}

// --- the lock

Status SqliteWitness::Lock() { return LockFile(true); }

Result<bool> SqliteWitness::LockIfThere() {
  Status status = LockFile(false);
  if (!status.ok()) return status;
  return is_locked_;
}

void SqliteWitness::Unlock() noexcept {
  if (!is_locked_) return;
  is_locked_ = false;
  if (!SetLock(fd_.get(), F_UNLCK)) fd_.reset();
}

Status SqliteWitness::LockFile(bool may_make) {
  IDD_CHECK(!is_locked_);
  const MonotonicTime until = MonotonicClock::now() + kSqliteBusyTimeout;
  constexpr int kMaxPauseMs = 5;
  for (int tries = 0; true; ++tries) {
    Result<bool> done = TryLock(may_make);
    if (!done.ok()) return done.status();
    if (done.value()) break;
    if (MonotonicClock::now() >= until) {
      return {Code::kUnavailable, "'" + path_ + "' is locked by another idd"};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(1 + tries / 8, kMaxPauseMs)));
  }
  if (!is_locked_) return Status::Ok();  // there is no file, and none may be made
  Status status = CatchUp();
  if (!status.ok()) Unlock();
  return status;
}

// The file may be replaced during the wait for its lock: only the lock on the file in place counts.
Result<bool> SqliteWitness::TryLock(bool may_make) {
  if (!fd_.valid()) {
    fd_.reset(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!fd_.valid()) {
      if (errno != ENOENT) return Error(errno, "open");
      // If the file was deleted, this object writes a new one, so that what it knows is not lost.
      if (!may_make && state_.line.empty()) return true;
      return Make();
    }
  }
  if (!SetLock(fd_.get(), F_WRLCK)) {
    if (errno == EAGAIN || errno == EACCES || errno == EINTR) return false;
    return Error(errno, "lock");
  }
  if (IsInPlace()) {
    is_locked_ = true;
    return true;
  }
  // Another file is in place, or none. The last records of this one are still read.
  Status read = id_.empty() ? Status::Ok() : ReadOn();
  fd_.reset();
  if (!read.ok()) return read;
  return false;
}

// --- reading

bool SqliteWitness::TakeRecord(std::string_view line) {
  if (line.size() <= kHashDigits || line[kHashDigits] != ' ') return false;
  const std::string_view hash = line.substr(0, kHashDigits);
  const std::string_view body = line.substr(kHashDigits + 1);
  if (Hash(hash_, body) != hash) return false;
  if (body.starts_with("M ")) {
    moved_to_ = body.substr(2);
  } else if (body.starts_with("R ")) {
    std::optional<HandBack> hand_back = ParseHandBack(body);
    if (!hand_back.has_value()) return false;
    state_.announced = std::move(hand_back);
  } else {
    const std::optional<State> change = ParseBody(body);
    if (!change.has_value()) return false;
    Apply(*change, state_);
    moved_to_.clear();
  }
  hash_ = hash;
  return true;
}

Status SqliteWitness::ReadOn() {
  std::string text;
  std::array<char, kChunkBytes> chunk{};
  while (true) {
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos;
         end = text.find('\n', begin)) {
      if (!TakeRecord(text.substr(begin, end - begin))) return Status::Ok();
      last_ = end_;
      end_ += static_cast<off_t>(end + 1 - begin);
      begin = end + 1;
    }
    text.erase(0, begin);
    if (text.find('\0') != std::string::npos) return Status::Ok();
    const ssize_t got =
        ::pread(fd_.get(), chunk.data(), chunk.size(), end_ + static_cast<off_t>(text.size()));
    if (got < 0) return Error(errno, "read");
    if (got == 0) return Status::Ok();
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

Status SqliteWitness::ReadAll() {
  const State known = state_;
  Forget();
  Status status = ReadFromHeader();
  if (!status.ok()) {
    Forget();
    state_ = known;
  }
  return status;
}

Status SqliteWitness::ReadFromHeader() {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return Error(errno, "look at");
  room_ = info.st_size;
  std::string header;
  const std::size_t size = kHeader.size() + kTokenDigits + 1;
  if (!ReadExactly(fd_.get(), 0, size, header) || !header.starts_with(kHeader) ||
      header.back() != '\n') {
    return Status::Ok();
  }
  id_ = header.substr(kHeader.size(), kTokenDigits);
  hash_ = Hash("", header);
  end_ = static_cast<off_t>(size);
  return ReadOn();
}

// Precondition: the file is locked and in place. It is the one that was read before, or its
// successor, or an unrelated file: a copy, perhaps an older one, or a file made because the one
// read before was missing.
Status SqliteWitness::CatchUp() {
  std::string last;
  const bool is_known =
      !id_.empty() &&
      (last_ == 0 ? ReadExactly(fd_.get(), 0, kHeader.size() + kTokenDigits, last) &&
                        last == std::string(kHeader) + id_
                  : ReadExactly(fd_.get(), last_, kHashDigits, last) && last == hash_);
  if (is_known) return ReadOn();
  const State known = state_;
  const std::string successor = moved_to_;
  Status status = ReadAll();
  const bool follows = known.line.empty() || (!id_.empty() && id_ == successor) ||
                       (state_.line == known.line && state_.stamp == known.stamp);
  if (status.ok() && follows && !id_.empty()) return status;
  if (status.ok() && !follows) {
    // The database cannot be compared with the merged state of two files, so a new line begins.
    state_.line = RandomToken();
    state_.stamp.clear();
    state_.announced.reset();
    for (const auto& [tag, next] : known.next) {
      std::uint64_t& mine = state_.next[tag];
      mine = std::max(mine, next);
    }
  }
  if (status.ok()) status = Replace();
  if (status.ok()) return status;
  Forget();  // so that the next try compares again with all that is known
  state_ = known;
  fd_.reset();
  is_locked_ = false;
  return status;
}

std::uint64_t SqliteWitness::NextOf(std::string_view tag) const {
  const auto it = state_.next.find(tag);
  return it == state_.next.end() ? 0 : it->second;
}

// --- writing

Status SqliteWitness::Append(const State& change, Durability durability) {
  IDD_CHECK(is_locked_);
  const std::string body = Body(change);
  if (must_rewrite_ || !HasRoomFor(body)) {
    const State before = state_;
    Apply(change, state_);
    Status status = Replace();
    if (!status.ok()) state_ = before;
    return status;
  }
  Status status = WriteRecord(body, durability);
  if (status.ok()) Apply(change, state_);
  return status;
}

Status SqliteWitness::Announce(const HandBack& hand_back) {
  IDD_CHECK(is_locked_);
  const std::string body = Body(hand_back);
  if (must_rewrite_ || !HasRoomFor(body)) {
    if (Status status = Replace(); !status.ok()) return status;
  }
  Status status = WriteRecord(body, Durability::kWritten);
  if (status.ok()) state_.announced = hand_back;
  return status;
}

bool SqliteWitness::HasRoomFor(const std::string& body) const {
  return end_ + static_cast<off_t>(kHashDigits + body.size() + 2) + kMoveBytes <= room_;
}

Status SqliteWitness::WriteRecord(const std::string& body, Durability durability) {
  const std::string hash = Hash(hash_, body);
  const std::string record = hash + " " + body + "\n";
  if (!WriteAll(fd_.get(), record, end_) ||
      (durability == Durability::kSynced && ::fdatasync(fd_.get()) != 0)) {
    must_rewrite_ = true;
    return Error(errno, "write");
  }
  hash_ = hash;
  last_ = end_;
  end_ += static_cast<off_t>(record.size());
  return Status::Ok();
}

Status SqliteWitness::WriteNewFile(const std::string& name, ScopedFd& fd, std::string& id) const {
  fd.reset(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kWitnessMode));
  if (!fd.valid()) return Error(errno, "make");
  id = RandomToken();
  const std::string header = std::string(kHeader) + id + "\n";
  std::string text = header;
  if (!state_.line.empty()) {
    const std::string body = Body(state_);
    text += Hash(Hash("", header), body) + " " + body + "\n";
  }
  text.resize(2 * text.size() + kRoomBytes, '\0');
  if (!SetLock(fd.get(), F_WRLCK) || !WriteAll(fd.get(), text, 0) || ::fsync(fd.get()) != 0) {
    const int error = errno;
    ::unlink(name.c_str());
    return Error(error, "write");
  }
  return Status::Ok();
}

Status SqliteWitness::Replace() {
  const std::string name = path_ + "-" + RandomToken();
  ScopedFd fd;
  std::string id;
  Status status = WriteNewFile(name, fd, id);
  if (!status.ok()) return status;
  struct stat info {};
  if (::fstat(fd_.get(), &info) == 0) {
    static_cast<void>(::fchmod(fd.get(), info.st_mode & kReadWrite));
    [[maybe_unused]] const int owned = ::fchown(fd.get(), info.st_uid, info.st_gid);
  }
  // Processes that have the old file open recognise the new one by this record; without it they
  // merge.
  if (!id_.empty() && !must_rewrite_) {
    static_cast<void>(WriteRecord("M " + id, Durability::kWritten));
  }
  if (::rename(name.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(name.c_str());
    must_rewrite_ = true;
    return Error(error, "replace");
  }
  // The name is in place: from here on the new file counts, synced or not.
  fd_ = std::move(fd);
  must_rewrite_ = false;
  status = ReadAll();
  if (status.ok() && !SyncDirectoryOf(path_)) {
    must_rewrite_ = true;
    status = Error(errno, "sync the directory of");
  }
  return status;
}

// Makes a file where there is none. false: another process was faster.
Result<bool> SqliteWitness::Make() {
  const std::string name = path_ + "-" + RandomToken();
  ScopedFd fd;
  std::string id;
  Status status = WriteNewFile(name, fd, id);
  if (!status.ok()) return status;
  const int linked = ::link(name.c_str(), path_.c_str());
  const int error = errno;
  ::unlink(name.c_str());
  if (linked != 0 && error == EEXIST) return false;
  if (linked != 0) return Error(error, "make");
  fd_ = std::move(fd);
  is_locked_ = true;
  must_rewrite_ = false;
  status = ReadAll();
  if (status.ok() && !SyncDirectoryOf(path_)) status = Error(errno, "sync the directory of");
  if (status.ok()) return true;
  Unlock();
  return status;
}

}  // namespace idd::daemon
