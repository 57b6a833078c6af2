// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_JOURNAL_STREAM_H_
#define IDD_DAEMON_PLATFORM_JOURNAL_STREAM_H_

namespace idd::daemon {

// Whether standard error is the stream to the journal that a service manager made for this process,
// not a redirection.
[[nodiscard]] bool IsJournal();

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_JOURNAL_STREAM_H_
