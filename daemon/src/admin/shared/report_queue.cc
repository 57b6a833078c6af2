// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/report_queue.h"

namespace idd::daemon {

void ReportQueue::Begin(std::function<void()> start) {
  if (is_busy_) {
    waiting_.push_back(std::move(start));
    return;
  }
  is_busy_ = true;
  start();
}

void ReportQueue::Finish() {
  is_busy_ = false;
  if (waiting_.empty()) {
    if (reads_under_way_ == 0) thread_.Post([this] { reader_.reset(); });
    return;
  }
  const std::function<void()> next = std::move(waiting_.front());
  waiting_.pop_front();
  Begin(next);
}

void ReportQueue::Write(std::function<std::string()> make, AdminDone done) {
  thread_.Post([this, make = std::move(make), done = std::move(done)] {
    loop_.Post([this, text = make(), done] {
      Finish();
      done(Status::Ok(), text);
    });
  });
}

// Runs on the report thread.
Result<StoreReader*> ReportQueue::Open(const std::string& url) {
  if (reader_ != nullptr && reader_url_ == url) return reader_.get();
  reader_.reset();
  Result<std::unique_ptr<StoreReader>> reader = open_reader_(url);
  if (!reader.ok()) return reader.status();
  reader_ = std::move(reader).value();
  reader_url_ = url;
  return reader_.get();
}

void ReportQueue::OnRead() {
  if (--reads_under_way_ > 0 || is_busy_) return;
  thread_.Post([this] { reader_.reset(); });
}

}  // namespace idd::daemon
