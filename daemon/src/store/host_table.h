// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_HOST_TABLE_H_
#define IDD_DAEMON_STORE_HOST_TABLE_H_

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sql/sql_session.h"
#include "store/host_store.h"
#include "store/store.h"

namespace idd::daemon {

// The hosts, one row each in idd_host, and how one is forgotten. A store makes the row of this host
// when it is opened.
//
// Thread safety: none.
class HostTable final : public HostStore {
 public:
  // `own_row`: the condition of this host's row, with its id as ?1.
  HostTable(SqlSession& session, std::string host, std::string own_row)
      : session_(session), host_(std::move(host)), own_row_(std::move(own_row)) {}

  Result<bool> Introduce(const HostInfo& info) override;
  Result<ForgetOutcome> Forget(const ForgetOrder& order) override;
  Status NoteStop() override;

  // Of StoreReader.
  [[nodiscard]] Result<std::vector<HostRecord>> List();
  [[nodiscard]] Result<std::vector<RecentLeases>> SumRecent(std::chrono::seconds window,
                                                            const std::optional<std::string>& tag);

 private:
  // A condition that holds while the host is gone, as it was found now. Its id is ?1, and the time
  // when it was last seen, which is written to `last_seen`, is ?2.
  [[nodiscard]] Result<std::string> FindGone(const ForgetOrder& order, std::string& last_seen);
  [[nodiscard]] Result<std::vector<std::string>> FindTokens(const std::string& rows,
                                                            const ForgetOrder& order);
  [[nodiscard]] Status ForgetBatch(const ForgetOrder& order, ForgetOutcome& done);

  SqlSession& session_;
  const std::string host_;
  const std::string own_row_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_HOST_TABLE_H_
