// SPDX-License-Identifier: Apache-2.0
#include "exporter/metrics_textfile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "idd/base/scoped_fd.h"
#include "metrics/metrics_page.h"
#include "platform/logging.h"
#include "platform/path_error.h"

namespace idd::daemon {
namespace {

// node_exporter reads the file as another user, so idd's umask must not apply.
constexpr mode_t kReadableForAll = 0644;

Status WriteAll(int fd, const std::string& text, const std::string& path) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t bytes = ::write(fd, text.data() + done, text.size() - done);
    if (bytes < 0 && errno != EINTR) return Status::FromErrno(errno, "cannot write " + path);
    if (bytes > 0) done += static_cast<std::size_t>(bytes);
  }
  return Status::Ok();
}

// Writes to a name that the collector, which reads *.prom, ignores.
Status WriteBeside(const std::string& beside, const std::string& text) {
  if (::unlink(beside.c_str()) != 0 && errno != ENOENT) {
    return PathFailure("cannot make " + beside, beside, errno);
  }
  // O_EXCL: in a directory that others may write, a link must not redirect the write.
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const ScopedFd fd(::open(beside.c_str(), flags, kReadableForAll));
  if (!fd.valid()) return PathFailure("cannot make " + beside, beside, errno);
  if (::fchmod(fd.get(), kReadableForAll) != 0) {
    return Status::FromErrno(errno, "cannot open " + beside + " for reading by all");
  }
  return WriteAll(fd.get(), text, beside);
}

}  // namespace

Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::string beside = path + ".new";
  Status status = WriteBeside(beside, text);
  if (status.ok() && ::rename(beside.c_str(), path.c_str()) != 0) {
    status = Status::FromErrno(errno, "cannot rename " + beside + " to " + path);
  }
  if (!status.ok()) ::unlink(beside.c_str());
  return status;
}

MetricsTextfile::~MetricsTextfile() {
  thread_.Post([this] { RemoveNow(); });
  thread_.Finish();
}

void MetricsTextfile::MoveTo(std::string path) {
  thread_.Post([this, path = std::move(path)] {
    RemoveNow();
    path_ = path;
  });
}

void MetricsTextfile::RemoveNow() {
  if (has_written_) ::unlink(path_.c_str());
  has_written_ = false;
  last_error_.clear();
}

void MetricsTextfile::Write(const MetricsCollector::Sample& sample) {
  // X1, pairs with X2: the next page is written after the last one.
  if (is_busy_.exchange(true, std::memory_order_acquire)) return;
  thread_.Post([this, sample] {
    WriteNow(*sample);
    is_busy_.store(false, std::memory_order_release);  // X2, with X1
  });
}

void MetricsTextfile::WriteNow(const MetricsSample& sample) {
  if (path_.empty()) return;
  try {
    ReportOutcome(ReplaceFile(path_, MetricsText(sample, [](const std::string&) { return true; })));
  } catch (const std::exception& error) {
    ReportOutcome({Code::kSystem, error.what()});
  }
}

void MetricsTextfile::ReportOutcome(const Status& status) {
  const bool is_news = !has_written_ || !last_error_.empty();
  if (status.ok() && is_news) log::Info("metrics.textfile_written", {{"file", path_}});
  if (!status.ok() && last_error_.empty()) {
    log::Error("metrics.textfile_failed",
               {{"file", path_},
                {"error", status.message()},
                {"action", "tried again every 15 seconds; the file stays as it is"}});
  }
  has_written_ = has_written_ || status.ok();
  last_error_ = status.message();
}

}  // namespace idd::daemon
