// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_SHARED_REPORT_QUEUE_H_
#define IDD_DAEMON_ADMIN_SHARED_REPORT_QUEUE_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "admin/shared/admin_request.h"
#include "idd/base/status.h"
#include "leasing/lease_worker.h"
#include "platform/event_loop.h"
#include "store/store.h"

namespace idd::daemon {

// Makes reports on the whole journal one at a time, on another thread and over another connection,
// so that leases do not wait for them.
//
// Thread safety: none; event loop.
class ReportQueue {
 public:
  // Opens a connection to the database of this URL, on the report thread.
  using OpenReader = std::function<Result<std::unique_ptr<StoreReader>>(const std::string& url)>;

  ReportQueue(EventLoop& loop, OpenReader open_reader)
      : loop_(loop), open_reader_(std::move(open_reader)) {}
  ReportQueue(const ReportQueue&) = delete;
  ReportQueue& operator=(const ReportQueue&) = delete;

  // Runs `start` now, or after the report that is under way. Its work must end with Finish() or
  // Write().
  void Begin(std::function<void()> start);
  void Finish();
  // Calls `make` on the report thread, finishes the report and calls `done` with the document.
  void Write(std::function<std::string()> make, AdminDone done);

  // Calls `read` on the report thread with an open connection, and then `done` on the loop; reads
  // of several operations take turns. The connection ends when there is nothing more to read.
  template <typename T>
  void Read(const StoreHealth& health, const std::string& url,
            std::function<Result<T>(StoreReader&)> read, std::function<void(Result<T>)> done);

  // For a report's computations between its reads.
  [[nodiscard]] WorkThread& thread() noexcept { return thread_; }

 private:
  [[nodiscard]] Result<StoreReader*> Open(const std::string& url);
  void OnRead();

  EventLoop& loop_;
  const OpenReader open_reader_;
  bool is_busy_ = false;
  std::deque<std::function<void()>> waiting_;  // no more than there may be requests under way
  int reads_under_way_ = 0;
  std::unique_ptr<StoreReader> reader_;  // the thread's
  std::string reader_url_;               // the same
  WorkThread thread_;                    // last: it ends before the rest goes
};

template <typename T>
void ReportQueue::Read(const StoreHealth& health, const std::string& url,
                       std::function<Result<T>(StoreReader&)> read,
                       std::function<void(Result<T>)> done) {
  // Otherwise each report in turn would wait for seconds for a server that hangs.
  if (!health.up) {
    Status down(Code::kUnavailable, health.since == MonotonicTime{}
                                        ? "idd is opening the store; try again"
                                        : "the store is down; last error: " + health.last_error);
    return loop_.Post([done = std::move(done), down = std::move(down)] { done(down); });
  }
  ++reads_under_way_;
  thread_.Post([this, url, read = std::move(read), done = std::move(done)] {
    const Result<StoreReader*> reader = Open(url);
    Result<T> result = reader.ok() ? read(*reader.value()) : Result<T>(reader.status());
    if (result.status().code() == Code::kUnavailable) reader_.reset();
    loop_.Post([this, result = std::move(result), done]() mutable {
      OnRead();
      done(std::move(result));
    });
  });
}

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_REPORT_QUEUE_H_
