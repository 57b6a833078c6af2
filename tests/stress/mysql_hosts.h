// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_STRESS_MYSQL_HOSTS_H_
#define IDD_TESTS_STRESS_MYSQL_HOSTS_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "support/claim_worker_process.h"
#include "support/db_server.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {

// Hosts on one database server: every host is a real idd with its own socket, state dir and name,
// and has client processes that claim from the tag "orders".
class MysqlHosts : public ::testing::Test {
 protected:
  void StartHosts(int count, const std::vector<std::string>& tag_options,
                  const std::string& url = "") {
    const bool is_server = url.empty() || url.find(server_.socket()) != std::string::npos;
    if (is_server && !server_.Running()) server_.Start();
    for (int i = 0; i < count; ++i) {
      auto host = std::make_unique<Host>(dir_, "host-" + std::to_string(i));
      host->daemon.options().database = url.empty() ? server_.Url() : url;
      host->daemon.Start();
      hosts_.push_back(std::move(host));
    }
    std::vector<std::string> create = {"tag", "create", "orders", "--if-absent"};
    create.insert(create.end(), tag_options.begin(), tag_options.end());
    ASSERT_TRUE(WaitUntil(Patience(std::chrono::seconds(10)),
                          [&] { return hosts_[0]->idctl.Run(create).exit_status == 0; }));
    // The first host to connect begins a term, and the others wait until they see it alive.
    for (const auto& host : hosts_) {
      ASSERT_TRUE(WaitUntil(Patience(std::chrono::seconds(60)), [&] {
        return host->idctl.Run({"claim", "orders"}).exit_status == 0;
      }));
    }
  }

  // By itself, idd would choose three of the hosts after a minute.
  void SetWitnesses(const std::vector<std::string>& names) {
    std::vector<std::string> set = {"witness", "set"};
    set.insert(set.end(), names.begin(), names.end());
    IdctlResult result;
    EXPECT_TRUE(WaitUntil(Patience(std::chrono::seconds(30)),
                          [&] {
                            result = hosts_[0]->idctl.Run(set);
                            return result.exit_status == 0;
                          }))
        << result.err << hosts_[0]->daemon.Log();
  }

  // The worker waits for Go().
  ClaimWorkerProcess& AddWorker(const Host& host, WorkerPlan plan) {
    plan.socket = host.daemon.socket();
    if (plan.tag.empty()) plan.tag = "orders";
    plan.name = "worker-" + std::to_string(added_);
    plan.seed = added_++;
    workers_.push_back(std::make_unique<ClaimWorkerProcess>(dir_, plan));
    return *workers_.back();
  }
  void StartWorkers(int for_each_host, const WorkerPlan& plan) {
    for (const auto& host : hosts_) {
      for (int i = 0; i < for_each_host; ++i) AddWorker(*host, plan);
    }
    for (const auto& worker : workers_) worker->WaitReady(Patience(std::chrono::seconds(20)));
    for (const auto& worker : workers_) worker->Go();
  }

  // Three hosts, all of them witnesses, with two client processes each, which claim many ids from
  // small segments.
  void StartHeavyLoad(const std::string& url) {
    StartHosts(3, {"--step", "1000", "--max-step", "1000"}, url);
    SetWitnesses({"host-0", "host-1", "host-2"});
    WorkerPlan plan;
    plan.batch = 48;
    plan.pace_us = 100;
    plan.retry = true;
    plan.log_capacity = 1 << 22;
    StartWorkers(2, plan);
  }
  // No id came twice, and all are accounted for.
  void StopHeavyLoad() {
    for (const auto& worker : workers_) worker->Stop();
    std::uint64_t errors = 0;
    for (const auto& worker : workers_) errors += worker->errors();
    const std::vector<Claimer> claimers = Finish(Patience(std::chrono::seconds(60)));
    EXPECT_EQ(Join(CheckUnique(claimers)), "");
    ExpectAccounted();
    std::printf("%llu ids, %llu claims that failed and were made again\n",
                static_cast<unsigned long long>(CountIds(claimers)),
                static_cast<unsigned long long>(errors));
  }
  [[nodiscard]] std::vector<std::size_t> LogMarks() const {
    std::vector<std::size_t> marks;
    for (const auto& host : hosts_) marks.push_back(host->daemon.LogMark());
    return marks;
  }

  // Expects that every host takes another lease.
  void ExpectFreshLeases(std::chrono::milliseconds timeout = std::chrono::seconds(40)) {
    const auto leases_of = [](const Host& host) {
      return host.idctl.Json({"status"}).at("tags").at(0).at("leases").get<std::uint64_t>();
    };
    for (const auto& host : hosts_) {
      const std::uint64_t before = leases_of(*host);
      EXPECT_TRUE(WaitUntil(Patience(timeout), [&] { return leases_of(*host) > before; }));
    }
  }

  [[nodiscard]] std::vector<Claimer> Finish(std::chrono::milliseconds timeout) {
    std::vector<Claimer> claimers;
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->Finish(timeout), 0) << worker->Failure();
      worker->AddClaimers(claimers);
    }
    return claimers;
  }

  // Checks every host's audit, and that of all hosts together.
  void ExpectAccounted() {
    for (const auto& host : hosts_) {
      const AuditRow audit = host->idctl.Audit("orders");
      EXPECT_TRUE(audit.ok) << host->daemon.options().host_id;
      EXPECT_EQ(audit.leased, audit.claimed + audit.available + audit.returned + audit.abandoned);
    }
    const IdctlResult all = hosts_[0]->idctl.Run({"audit", "--all-hosts"});
    EXPECT_EQ(all.exit_status, 0) << all.out << all.err;
  }

  const TempDir dir_;
  DbServer server_{dir_};
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<ClaimWorkerProcess>> workers_;
  std::uint64_t added_ = 0;  // workers, ever
};

}  // namespace idd::harness

#endif  // IDD_TESTS_STRESS_MYSQL_HOSTS_H_
