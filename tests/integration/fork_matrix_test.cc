// SPDX-License-Identifier: Apache-2.0
//
// Where a program may fork: before it opens its client, after that, while other threads claim, and
// again in its children. No process gets an id of another one, and every call ends.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.hpp"
#include "idd/base/scoped_fd.h"
#include "support/child_exit.h"
#include "support/managed_host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using Ids = std::vector<std::uint64_t>;

class ForkMatrix : public ManagedHostTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  [[nodiscard]] idclient::Options Options() const {
    return {.socket_path = host_.daemon.socket(), .timeout = Patience(60s)};
  }
  [[nodiscard]] idclient::Tag Orders(idclient::Client& client) const {
    return client.tag("orders", {.block_size = GetParam()});
  }
  [[nodiscard]] static Ids Claim(const idclient::Tag& tag, std::size_t count) {
    Ids ids;
    while (ids.size() < count) {
      const idclient::Expected<std::uint64_t> id = tag.try_claim();
      if (!id) break;
      ids.push_back(*id);
    }
    return ids;
  }

  // The ids that `children` processes get from `work`, one after the other forked, all at once.
  static Ids InChildren(int children, const std::function<Ids()>& work) {
    std::vector<ScopedFd> pipes;
    std::vector<pid_t> pids;
    for (int i = 0; i < children; ++i) {
      int ends[2];
      if (::pipe(ends) != 0) std::abort();
      const pid_t child = ::fork();
      if (child == 0) {
        const Ids ids = work();
        const std::size_t bytes = ids.size() * sizeof(ids[0]);
        ::_exit(::write(ends[1], ids.data(), bytes) == static_cast<ssize_t>(bytes) ? 0 : 1);
      }
      ::close(ends[1]);
      pipes.emplace_back(ends[0]);
      pids.push_back(child);
    }
    Ids all;
    for (const ScopedFd& pipe : pipes) {
      std::uint64_t id = 0;
      while (::read(pipe.get(), &id, sizeof(id)) == sizeof(id)) all.push_back(id);
    }
    for (const pid_t pid : pids) {
      EXPECT_EQ(ExitOf(pid), 0);
    }
    return all;
  }
  static void ExpectDistinct(const Ids& ids, std::size_t count) {
    EXPECT_EQ(ids.size(), count);
    EXPECT_EQ(std::set<std::uint64_t>(ids.begin(), ids.end()).size(), ids.size());
  }
  static void Append(Ids& to, const Ids& ids) { to.insert(to.end(), ids.begin(), ids.end()); }
};

TEST_P(ForkMatrix, BeforeTheOpen) {
  const Ids ids = InChildren(4, [this] {
    idclient::Client client(Options());
    return Claim(Orders(client), 500);
  });
  ExpectDistinct(ids, 2'000);
}

TEST_P(ForkMatrix, ThirtyTwoChildrenAfterTheOpen) {
  idclient::Client client(Options());
  const idclient::Tag tag = Orders(client);
  Ids ids = Claim(tag, 10);
  Append(ids, InChildren(32, [&tag] { return Claim(tag, 500); }));
  Append(ids, Claim(tag, 10));
  ExpectDistinct(ids, 32 * 500 + 20);
}

TEST_P(ForkMatrix, WhileOtherThreadsClaim) {
  if (const std::string why = WhyNoForkBesideThreads(); !why.empty()) GTEST_SKIP() << why;
  idclient::Client client(Options());
  const idclient::Tag tag = Orders(client);
  std::atomic<bool> stops{false};
  std::vector<Ids> of_threads(3);
  std::vector<std::thread> threads;
  for (Ids& ids : of_threads) {
    threads.emplace_back([&ids, &stops, &tag] {
      while (!stops) Append(ids, Claim(tag, 50));
    });
  }
  Ids ids;
  for (int i = 0; i < 30; ++i) Append(ids, InChildren(2, [&tag] { return Claim(tag, 200); }));
  stops = true;
  for (std::thread& thread : threads) thread.join();
  const std::size_t of_children = ids.size();
  std::size_t total = of_children;
  for (const Ids& more : of_threads) {
    total += more.size();
    Append(ids, more);
  }
  EXPECT_EQ(of_children, 30U * 2 * 200);
  ExpectDistinct(ids, total);
}

TEST_P(ForkMatrix, Grandchildren) {
  idclient::Client client(Options());
  const idclient::Tag tag = Orders(client);
  Ids ids = Claim(tag, 3);
  Append(ids, InChildren(4, [&tag] {
           Ids mine = Claim(tag, 50);
           Append(mine, InChildren(3, [&tag] { return Claim(tag, 50); }));
           Append(mine, Claim(tag, 50));
           return mine;
         }));
  ExpectDistinct(ids, 3 + 4 * (50 + 150 + 50));
}

TEST_P(ForkMatrix, AfterTheDaemonWasRestarted) {
  idclient::Client client(Options());
  const idclient::Tag tag = Orders(client);
  Ids ids = Claim(tag, 10);
  host_.daemon.Stop();
  host_.daemon.Start();
  Append(ids, InChildren(8, [&tag] { return Claim(tag, 500); }));
  Append(ids, Claim(tag, 500));
  ExpectDistinct(ids, 10 + 9 * 500);
}

INSTANTIATE_TEST_SUITE_P(Blocks, ForkMatrix, ::testing::Values(0U, 16U));

}  // namespace
}  // namespace idd::harness
