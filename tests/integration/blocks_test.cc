// SPDX-License-Identifier: Apache-2.0
//
// Tags opened with a block size: each thread hands out ids of its own blocks.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <iterator>
#include <thread>
#include <vector>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"
#include "support/child_exit.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

constexpr std::uint32_t kBlock = 64;

class Blocks : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.StartWithTag("orders", 10'000);
    options_.socket_path = host_.daemon.socket();
    options_.timeout = Patience(5s);
  }

  static std::vector<std::uint64_t> Claim(idclient::Tag tag, std::size_t count) {
    std::vector<std::uint64_t> ids(count);
    for (std::uint64_t& id : ids) id = tag.claim();
    return ids;
  }

  static void ExpectDistinct(std::vector<std::uint64_t> ids) {
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  }

  // Ids that count as claimed but that no claim returned.
  [[nodiscard]] std::uint64_t Lost(std::uint64_t received) const {
    const std::uint64_t claimed = host_.idctl.Audit("orders").claimed;
    EXPECT_GE(claimed, received);
    return claimed - received;
  }

  const TempDir dir_;
  Host host_{dir_};
  idclient::Options options_;
};

TEST_F(Blocks, ThreadsGetDistinctIdsThatRiseWithinEach) {
  idclient::Client client(options_);
  const idclient::Tag tag = client.tag("orders", {.block_size = kBlock});
  constexpr std::size_t kThreads = 4;
  const std::size_t each = ScaledLoad(100'000);
  std::array<std::vector<std::uint64_t>, kThreads> ids;
  std::vector<std::thread> threads;
  for (auto& own : ids) threads.emplace_back([&own, tag, each] { own = Claim(tag, each); });
  for (std::thread& thread : threads) thread.join();
  std::vector<std::uint64_t> all;
  for (const auto& own : ids) {
    EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
    all.insert(all.end(), own.begin(), own.end());
  }
  ExpectDistinct(all);
  EXPECT_LE(Lost(all.size()), kThreads * kBlock) << "at most a block for each thread that ended";
}

TEST_F(Blocks, StrictAndBatchClaimsBesideThemAreDistinct) {
  idclient::Client client(options_);
  const idclient::Tag blocks = client.tag("orders", {.block_size = kBlock});
  idclient::Tag strict = client.tag("orders");
  EXPECT_NE(blocks.get(), strict.get()) << "one handle for each block size";
  EXPECT_EQ(client.tag("orders", {.block_size = kBlock}).get(), blocks.get());
  std::vector<std::uint64_t> ids;
  std::vector<std::uint64_t> batch(100);
  for (int i = 0; i < 50; ++i) {
    const auto some = Claim(blocks, 7);
    ids.insert(ids.end(), some.begin(), some.end());
    ids.push_back(strict.claim());
    idclient::Tag(blocks).claim_many(batch);
    ids.insert(ids.end(), batch.begin(), batch.end());
    const idclient::Range range = idclient::Tag(blocks).claim_range(10);
    for (std::size_t k = 0; k < range.count; ++k) ids.push_back(range.first + k);
  }
  ExpectDistinct(ids);
}

TEST_F(Blocks, ForkedChildHasNoneOfItsParents) {
  idclient::Client client(options_);
  idclient::Tag tag = client.tag("orders", {.block_size = kBlock});
  std::vector<std::uint64_t> ids = Claim(tag, 10);
  // Not fork(): its handlers would not run here either.
  for (const bool is_raw : {false, true}) {
    std::array<int, 2> pipe{};
    RequireErrno(::pipe(pipe.data()) == 0, "pipe");
    const auto child = static_cast<pid_t>(
        is_raw ? ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) : ::fork());
    RequireErrno(child >= 0, "fork");
    if (child == 0) {
      std::array<std::uint64_t, 100> own{};
      for (std::uint64_t& id : own) {
        if (idclient_claim(tag.get(), &id) != IDCLIENT_OK) ::_exit(1);
      }
      const bool told = ::write(pipe[1], own.data(), sizeof(own)) == sizeof(own);
      ::_exit(told ? 0 : 1);
    }
    const auto mine = Claim(tag, 100);
    ids.insert(ids.end(), mine.begin(), mine.end());
    std::array<std::uint64_t, 100> theirs{};
    EXPECT_EQ(::read(pipe[0], theirs.data(), sizeof(theirs)), static_cast<ssize_t>(sizeof(theirs)));
    ids.insert(ids.end(), theirs.begin(), theirs.end());
    EXPECT_EQ(ExitOf(child), 0);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  ExpectDistinct(ids);
  EXPECT_LE(Lost(ids.size()), 3 * kBlock);
}

idclient_tag* handler_tag = nullptr;
std::array<std::uint64_t, 1'000'000> handler_ids{};
std::atomic<std::size_t> handler_count{0};

void ClaimInHandler(int /*signal*/) {
  const std::size_t at = handler_count.load(std::memory_order_relaxed);
  if (at == handler_ids.size()) return;
  if (idclient_claim(handler_tag, &handler_ids[at]) == IDCLIENT_OK) {
    handler_count.store(at + 1, std::memory_order_relaxed);
  }
}

TEST_F(Blocks, SignalHandlerInTheMiddleOfAClaimGetsAnotherId) {
  host_.idctl.CreateTag("signals", 100'000'000);
  idclient::Client client(options_);
  idclient::Tag tag = client.tag("signals", {.block_size = kBlock});
  handler_tag = tag.get();
  // A signal handler must not claim from a dry ring, so the ring is filled first. The first claim
  // may be answered before the rest of the lease is in the ring; the second is not.
  for (int i = 0; i < 2; ++i) static_cast<void>(client.tag("signals").claim());
  struct sigaction action {};
  action.sa_handler = ClaimInHandler;
  action.sa_flags = SA_RESTART;
  struct sigaction before {};
  ::sigaction(SIGALRM, &action, &before);
  const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 20},
                        .it_value = {.tv_sec = 0, .tv_usec = 20}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  std::vector<std::uint64_t> ids;
  // Allocated beforehand: the handler interrupts this thread anywhere, even in the allocator.
  ids.resize(20'000'000);
  std::size_t count = 0;
  while (count < ids.size() && handler_count.load(std::memory_order_relaxed) < 2000) {
    ids[count++] = tag.claim();
  }
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(handler_count, 100U);
  ids.resize(count);
  ids.insert(ids.end(), handler_ids.begin(),
             handler_ids.begin() + static_cast<std::ptrdiff_t>(handler_count.load()));
  ExpectDistinct(ids);
}

TEST_F(Blocks, HandleOfAnotherClientTakesNoBlockOfAClosedOne) {
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 300; ++i) {  // more than the slots for handles
    idclient::Client client(options_);
    const auto some = Claim(client.tag("orders", {.block_size = kBlock}), 3);
    ids.insert(ids.end(), some.begin(), some.end());
  }
  ExpectDistinct(ids);
  EXPECT_LE(Lost(ids.size()), 300 * kBlock);
}

TEST_F(Blocks, WrongOptionsAreInvalid) {
  idclient::Client client(options_);
  idclient_tag* tag = nullptr;
  idclient_tag_options options = IDCLIENT_TAG_OPTIONS_INIT;
  options.block_size = 65'537;
  EXPECT_EQ(idclient_tag_open_with(client.get(), "orders", &options, &tag), IDCLIENT_INVALID);
  options = IDCLIENT_TAG_OPTIONS_INIT;
  options.struct_size = 8;
  EXPECT_EQ(idclient_tag_open_with(client.get(), "orders", &options, &tag), IDCLIENT_INVALID);
  options = IDCLIENT_TAG_OPTIONS_INIT;
  options.reserved = 1;
  EXPECT_EQ(idclient_tag_open_with(client.get(), "orders", &options, &tag), IDCLIENT_INVALID);
  EXPECT_EQ(tag, nullptr);
  options = IDCLIENT_TAG_OPTIONS_INIT;
  options.block_size = 1;
  EXPECT_EQ(idclient_tag_open_with(client.get(), "orders", &options, &tag), IDCLIENT_OK);
  EXPECT_EQ(tag, client.tag("orders").get()) << "a block size of 1 means no blocks";
}

TEST_F(Blocks, HandlesAreBoundedAndTheirPlacesComeBack) {
  idclient::Client client(options_);
  std::vector<idclient::Tag> tags;
  idclient_status status = IDCLIENT_OK;
  for (std::uint32_t size = 2; size < 300 && status == IDCLIENT_OK; ++size) {
    idclient_tag_options options = IDCLIENT_TAG_OPTIONS_INIT;
    options.block_size = size;
    idclient_tag* tag = nullptr;
    status = idclient_tag_open_with(client.get(), "orders", &options, &tag);
  }
  EXPECT_EQ(status, IDCLIENT_SYSTEM);
  EXPECT_NE(std::string(idclient_last_error()).find("127"), std::string::npos);
  client = idclient::Client(options_);
  EXPECT_NO_THROW(static_cast<void>(client.tag("orders", {.block_size = 7}).claim()));
}

}  // namespace
}  // namespace idd::harness
