// SPDX-License-Identifier: Apache-2.0
//
// What idclient.h says of deadlines, of handles, of what a tag shows, and of signal handlers; with
// a real daemon.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"
#include "support/child_exit.h"
#include "support/managed_host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Far more than a call that does not wait ever takes.
constexpr std::chrono::milliseconds kLongCall = 30s;

// Threads that are made while it is blocked do not get the signal.
struct BlockedAlarm {
  BlockedAlarm() { Set(SIG_BLOCK); }
  static void Set(int how) {
    sigset_t alarm;
    ::sigemptyset(&alarm);
    ::sigaddset(&alarm, SIGALRM);
    ::pthread_sigmask(how, &alarm, nullptr);
  }
};

class ClientApi : public BlockedAlarm, public ManagedHostTest {
 protected:
  [[nodiscard]] idclient::Options Options() const {
    return {.socket_path = host_.daemon.socket(), .timeout = Patience(60s)};
  }
  [[nodiscard]] idclient_options RawOptions() const {
    idclient_options options = IDCLIENT_OPTIONS_INIT;
    options.socket_path = host_.daemon.socket().c_str();
    options.timeout_ms = static_cast<std::uint32_t>(Patience(60s).count());
    return options;
  }
  // Kills idd and claims what the rings have.
  void LeaveDry(const idclient::Tag& tag) {
    host_.daemon.Kill();
    while (tag.try_claim(0ms)) {
    }
  }
  // The first claim may get its id before the ring has any.
  static void AwaitRing(const idclient::Tag& tag) {
    const std::uint64_t begin_ns = MonotonicNs();
    while (tag.info().state != IDCLIENT_STATE_OK && MonotonicNs() - begin_ns < 60'000'000'000) {
      std::this_thread::sleep_for(1ms);
    }
  }
  template <typename Call>
  [[nodiscard]] static std::chrono::milliseconds Took(Call call) {
    const std::uint64_t begin_ns = MonotonicNs();
    call();
    return std::chrono::milliseconds((MonotonicNs() - begin_ns) / 1'000'000);
  }
  [[nodiscard]] static std::size_t Mappings() {
    const std::string maps = ReadFile("/proc/self/maps");
    return static_cast<std::size_t>(std::count(maps.begin(), maps.end(), '\n'));
  }
};

TEST_F(ClientApi, ClaimThatDoesNotWaitTakesWhatIsThere) {
  idclient::Client client(Options());
  const idclient::Tag tag = client.tag("orders");
  // Nobody has used the tag yet, so its ring is dry. The first claim makes idd lease.
  idclient::Expected<std::uint64_t> first = tag.try_claim(0ms);
  const std::uint64_t begin_ns = MonotonicNs();
  while (!first && MonotonicNs() - begin_ns < 60'000'000'000) first = tag.try_claim(0ms);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(*first, 1U);
  EXPECT_EQ(tag.claim(0ms), 2U);
  const idclient::Tag blocks = client.tag("orders", {.block_size = 10});
  EXPECT_EQ(blocks.claim(0ms), 3U);
  EXPECT_EQ(blocks.claim(0ms), 4U) << "of the same block";
  LeaveDry(tag);
  std::uint64_t id = 42;
  EXPECT_LT(Took([&] {
              EXPECT_EQ(idclient_claim_timeout(tag.get(), IDCLIENT_NO_WAIT, &id), IDCLIENT_TIMEOUT);
            }),
            kLongCall);
  EXPECT_EQ(id, 42U);
  EXPECT_THAT(idclient_last_error(), HasSubstr("tag 'orders': nothing to claim without a wait"));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(blocks.try_claim(0ms)) << "the rest of its block";
  EXPECT_EQ(blocks.try_claim(0ms).error(), IDCLIENT_TIMEOUT);
  EXPECT_THROW(static_cast<void>(tag.claim(0ms)), idclient::Error);
  host_.daemon.Start();
  EXPECT_GT(tag.claim(), 4U) << "one that may wait attaches again";
  EXPECT_TRUE(tag.try_claim(0ms));
}

TEST_F(ClientApi, ClaimEndsAtItsOwnDeadline) {
  idclient::Client client(Options());
  const idclient::Tag tag = client.tag("orders");
  LeaveDry(tag);
  EXPECT_LT(Took([&] {
              const auto claimed = tag.try_claim(50ms);
              EXPECT_FALSE(claimed.has_value());
              EXPECT_EQ(idclient_status_retryable(claimed.error()), 1);
            }),
            kLongCall)
      << "not at that of the client";
  std::uint64_t id = 0;
  EXPECT_EQ(idclient_claim_timeout(tag.get(), 3'600'001, &id), IDCLIENT_INVALID);
  EXPECT_THROW(static_cast<void>(tag.claim(-1ms)), idclient::Error);
}

TEST_F(ClientApi, OpenWaitsForADaemonUnlessItMayNot) {
  host_.daemon.Stop();
  idclient_options options = RawOptions();
  options.flags = IDCLIENT_OPEN_ONCE;
  idclient_client* client = nullptr;
  EXPECT_LT(Took([&] { EXPECT_EQ(idclient_open(&options, &client), IDCLIENT_UNAVAILABLE); }),
            kLongCall);
  options.flags = 0;
  options.timeout_ms = 100;
  EXPECT_GE(Took([&] { EXPECT_EQ(idclient_open(&options, &client), IDCLIENT_UNAVAILABLE); }),
            100ms);
  options = RawOptions();
  std::thread opens(
      [&] { EXPECT_EQ(idclient_open(&options, &client), IDCLIENT_OK) << idclient_last_error(); });
  std::this_thread::sleep_for(200ms);
  host_.daemon.Start();
  opens.join();
  ASSERT_NE(client, nullptr);
  // The same of a tag.
  host_.daemon.Stop();
  idclient_tag* tag = nullptr;
  opens = std::thread([&] {
    EXPECT_EQ(idclient_tag_open(client, "orders", &tag), IDCLIENT_OK) << idclient_last_error();
  });
  std::this_thread::sleep_for(200ms);
  host_.daemon.Start();
  opens.join();
  EXPECT_EQ(idclient_tag_open(client, "nobody", &tag), IDCLIENT_NO_SUCH_TAG);
  const std::string told = idclient_last_error();
  EXPECT_THAT(told, StartsWith("there is no tag 'nobody' in "));
  EXPECT_EQ(told.find("nobody"), told.rfind("nobody")) << "named once";
  idclient_close(client);
}

TEST_F(ClientApi, HandleLivesUntilItWasClosedAsOftenAsItWasOpened) {
  idclient::Client client(Options());
  idclient::Tag one = client.tag("orders");
  idclient::Tag other = client.tag("orders");
  EXPECT_EQ(one.get(), other.get());
  EXPECT_EQ(one.claim(), 1U);
  one.close();
  EXPECT_FALSE(one);
  EXPECT_THROW(static_cast<void>(one.claim()), idclient::Error);
  EXPECT_EQ(other.claim(), 2U);
  other.close();
  const std::size_t before = Mappings();
  for (std::uint64_t id = 3; id < 303; ++id) {
    idclient::Tag again = client.tag("orders", {.block_size = id % 3 == 0 ? 2U : 0U});
    EXPECT_TRUE(again.try_claim());
    again.close();
  }
  EXPECT_LE(Mappings(), before + 4) << "the rings are unmapped";
}

TEST_F(ClientApi, ThreadsOpenAndCloseOneTagAtOnce) {
  idclient::Client client(Options());
  std::mutex mutex;
  std::set<std::uint64_t> ids;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 100; ++turn) {
        idclient::Tag tag = client.tag("orders");
        const std::uint64_t id = tag.claim();
        tag.close();
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(ids.insert(id).second) << id;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ids.size(), 800U);
}

TEST_F(ClientApi, InfoShowsModeOrderStateAndIds) {
  host_.idctl.Do({"tag", "create", "lanes", "--order", "cpu"});
  host_.idctl.Do({"tag", "create", "flakes", "--mode", "snowflake"});
  host_.idctl.Do({"tag", "create", "tickets", "--mode", "ticket"});
  host_.idctl.Do({"tag", "create", "socket", "--access", "socket"});
  idclient::Client client(Options());
  const idclient::Tag orders = client.tag("orders");
  static_cast<void>(orders.claim());
  AwaitRing(orders);
  idclient_tag_info info = orders.info();
  EXPECT_EQ(info.mode, IDCLIENT_MODE_SEGMENT);
  EXPECT_EQ(info.order, IDCLIENT_ORDER_HOST);
  EXPECT_EQ(info.state, IDCLIENT_STATE_OK);
  EXPECT_EQ(info.step, 1000U);
  EXPECT_EQ(info.available % 1000, 999U);
  EXPECT_EQ(client.tag("lanes").info().order, IDCLIENT_ORDER_CPU);

  const idclient::Tag flakes = client.tag("flakes");
  static_cast<void>(flakes.claim());
  AwaitRing(flakes);
  info = flakes.info();
  EXPECT_EQ(info.mode, IDCLIENT_MODE_SNOWFLAKE);
  EXPECT_EQ(info.state, IDCLIENT_STATE_OK);
  EXPECT_EQ(info.available, 0U);
  EXPECT_GT(info.cover_ms, 1000U);
  EXPECT_LT(info.cover_ms, 3'600'000U);

  info = client.tag("tickets").info();
  EXPECT_EQ(info.mode, IDCLIENT_MODE_TICKET);
  EXPECT_EQ(info.state, IDCLIENT_STATE_NO_RING);
  EXPECT_EQ(info.cover_ms, IDCLIENT_UNKNOWN);
  EXPECT_EQ(client.tag("socket").info().mode, IDCLIENT_MODE_SEGMENT);
  EXPECT_EQ(client.tag("socket").info().state, IDCLIENT_STATE_NO_RING);
  EXPECT_EQ(client.tag("socket").try_claim(0ms).error(), IDCLIENT_TIMEOUT);

  host_.idctl.Do({"drain", "orders"});
  EXPECT_EQ(orders.info().state, IDCLIENT_STATE_DRAINED);
  info.struct_size = 8;
  EXPECT_EQ(idclient_tag_get_info(orders.get(), &info), IDCLIENT_INVALID);
  // A later version's struct: what this library does not know is zero.
  struct Later {
    idclient_tag_info info = IDCLIENT_TAG_INFO_INIT;
    std::uint64_t more = 7;
  } later;
  later.info.struct_size = sizeof(later);
  EXPECT_EQ(idclient_tag_get_info(orders.get(), &later.info), IDCLIENT_OK);
  EXPECT_EQ(later.more, 0U);
  EXPECT_EQ(later.info.struct_size, sizeof(later));
}

TEST_F(ClientApi, OptionsThatThisLibraryDoesNotKnowAreRefused) {
  idclient_client* client = nullptr;
  idclient_options options = RawOptions();
  options.reserved = 1;
  EXPECT_EQ(idclient_open(&options, &client), IDCLIENT_INVALID);
  EXPECT_THAT(idclient_last_error(), HasSubstr("reserved"));
  struct Later {
    idclient_options options;
    std::uint64_t more = 0;
  } later{RawOptions()};
  later.options.struct_size = sizeof(later);
  ASSERT_EQ(idclient_open(&later.options, &client), IDCLIENT_OK) << idclient_last_error();
  idclient_close(client);
  later.more = 1;
  EXPECT_EQ(idclient_open(&later.options, &client), IDCLIENT_INVALID);
  EXPECT_THAT(idclient_last_error(), HasSubstr("does not know"));
}

// The connection got number 0, and memory that was passed the next ones: what the program still
// wrote there went to the daemon and into rings.
TEST_F(ClientApi, NumbersOfClosedStandardDescriptorsAreNotUsed) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 0; fd <= 2; ++fd) ::close(fd);
    int used = 0;
    try {
      idclient::Client client(Options());
      const idclient::Tag tag = client.tag("orders");
      AwaitRing(tag);
      for (int fd = 0; fd <= 2; ++fd) used += ::fcntl(fd, F_GETFD) == -1 ? 0 : 1;
      static_cast<void>(tag.claim());
    } catch (const std::exception&) {
      used = 100;
    }
    ::_exit(used);
  }
  EXPECT_EQ(ExitOf(child), 0);
}

TEST_F(ClientApi, LogFunctionHearsOfTheConnection) {
  std::vector<std::string> heard;
  idclient::Options options = Options();
  options.log = [&heard](idclient_log_level level, std::string_view message) {
    heard.push_back((level == IDCLIENT_LOG_WARNING ? "! " : "  ") + std::string(message));
    if (heard.size() == 1) throw std::string("is lost");
  };
  idclient::Client client(options);
  const idclient::Tag tag = client.tag("orders");
  LeaveDry(tag);
  host_.daemon.Start();
  static_cast<void>(tag.claim());
  EXPECT_EQ(heard.at(0), "  connected to idd at " + host_.daemon.socket());
  EXPECT_THAT(heard, Contains(HasSubstr("! the connection to idd broke")));
  EXPECT_THAT(heard, Contains("  tag 'orders': attached to another ring"));
}

TEST_F(ClientApi, VersionOfTheHeaderIsThatOfTheLibrary) {
  EXPECT_EQ(std::string(idclient_version()), std::to_string(IDCLIENT_VERSION_MAJOR) + "." +
                                                 std::to_string(IDCLIENT_VERSION_MINOR) + "." +
                                                 std::to_string(IDCLIENT_VERSION_PATCH));
}

idclient_tag* handlers_tag = nullptr;
std::atomic<int> handled{0};
std::atomic<int> refused{0};

void ClaimInSignalHandler(int /*signal*/) {
  std::uint64_t id = 0;
  const idclient_status status = idclient_claim(handlers_tag, &id);
  ++handled;
  if (status == IDCLIENT_UNAVAILABLE) ++refused;
}

// It used to wait for the mutex that its own thread held.
TEST_F(ClientApi, SignalHandlerThatInterruptsAClaimIsRefusedAtOnce) {
  idclient::Client client(Options());
  const idclient::Tag tag = client.tag("orders");
  LeaveDry(tag);
  handlers_tag = tag.get();
  handled = refused = 0;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = ClaimInSignalHandler;
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  Set(SIG_UNBLOCK);  // for this thread, which claims
  itimerval often{};
  often.it_value.tv_usec = often.it_interval.tv_usec = 5'000;
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  const auto claimed = tag.try_claim(1s);
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_FALSE(claimed.has_value());
  EXPECT_GT(handled, 0);
  EXPECT_GT(refused, 0);
  host_.daemon.Start();
  EXPECT_TRUE(tag.try_claim(Patience(60s))) << "the thread is outside again";
}

TEST(ClientRange, IsIterated) {
  const idclient::Range range{.first = 5, .count = 3};
  EXPECT_EQ(std::vector<std::uint64_t>(range.begin(), range.end()),
            (std::vector<std::uint64_t>{5, 6, 7}));
  EXPECT_EQ(range.size(), 3U);
  EXPECT_TRUE(idclient::Range().empty());
  static_assert(std::forward_iterator<idclient::Range::iterator>);
}

}  // namespace
}  // namespace idd::harness
