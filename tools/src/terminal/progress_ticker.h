// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TOOLS_TERMINAL_PROGRESS_TICKER_H_
#define IDD_TOOLS_TERMINAL_PROGRESS_TICKER_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "terminal/terminal.h"

namespace idd::tools {

// Shows on a terminal, from the first second on, the progress of work that its owner waits for.
// Without a terminal it does nothing and starts no thread.
//
// Thread safety: none for the owner. `text` is called on the ticker's own thread; the destructor
// waits for it, so it must be quick.
class ProgressTicker {
 public:
  using Text = std::function<std::string(std::chrono::seconds passed)>;

  ProgressTicker(int fd, Text text);
  ~ProgressTicker();
  ProgressTicker(const ProgressTicker&) = delete;
  ProgressTicker& operator=(const ProgressTicker&) = delete;

 private:
  void Run();

  const Text text_;
  ProgressLine line_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace idd::tools

#endif  // IDD_TOOLS_TERMINAL_PROGRESS_TICKER_H_
