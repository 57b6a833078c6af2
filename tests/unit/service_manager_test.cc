// SPDX-License-Identifier: Apache-2.0
//
// ServiceManager with a manager that reads slowly.
#include "platform/service_manager.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/temp_dir.h"

namespace idd::daemon {
namespace {

class ServiceManagerTest : public ::testing::Test {
 protected:
  ServiceManagerTest() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    const timeval patience{.tv_sec = 60, .tv_usec = 0};  // a missing message fails the test
    EXPECT_EQ(::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  }
  ~ServiceManagerTest() override { ::unsetenv("NOTIFY_SOCKET"); }  // NOLINT(concurrency-mt-unsafe)

  // Sends until there is no more room. The buffer of one sender may be full before the queue is.
  std::size_t FillQueue() {
    std::size_t sent = 0;
    for (std::size_t before = 1; sent != before;) {
      before = sent;
      sent += SendAll();
    }
    return sent;
  }
  // Sends until a new sender may not send more.
  std::size_t SendAll() {
    const ScopedFd sender(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    std::size_t sent = 0;
    while (::sendto(sender.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&address),
                    sizeof address) == 1) {
      ++sent;
    }
    return sent;
  }
  // The next message. The number of its descriptors goes to `fds`, the descriptors to received_.
  std::string Read(std::size_t& fds) {
    std::array<char, 4096> text{};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 4)> control{};
    iovec part{.iov_base = text.data(), .iov_len = text.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t bytes = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    fds = 0;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_type != SCM_RIGHTS) continue;
      for (; CMSG_LEN((fds + 1) * sizeof(int)) <= header->cmsg_len; ++fds) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + fds * sizeof fd, sizeof fd);
        received_.emplace_back(fd);
      }
    }
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
  }

  const harness::TempDir dir_;
  const std::string path_ = dir_.File("notify.sock");
  const ScopedFd socket_{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  std::vector<ScopedFd> received_;
  EventLoop loop_;
};

// A ring whose descriptor is not kept is lost at the next restart.
TEST_F(ServiceManagerTest, SignalThatInterruptsACallLosesNoDescriptor) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);  // without SA_RESTART
  ServiceManager manager(loop_);
  ASSERT_TRUE(manager.keeps());
  const std::size_t others = FillQueue();
  ASSERT_GT(others, 0U);
  const ScopedFd kept(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::atomic<bool> is_done{false};
  std::thread caller([&] {
    manager.Keep("ring", kept.get());
    manager.Drop("old");
    manager.Notify("READY=1");
    is_done = true;
  });
  // By now it waits for room, or will soon; an earlier signal does no harm.
  for (int i = 0; i < 20; ++i) {
    ::pthread_kill(caller.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(is_done) << "the queue was not full: the test shows nothing";
  std::size_t fds = 0;
  for (std::size_t i = 0; i < others; ++i) static_cast<void>(Read(fds));
  EXPECT_EQ(Read(fds), "FDSTORE=1\nFDNAME=ring");
  EXPECT_EQ(fds, 1U);
  EXPECT_EQ(Read(fds), "FDSTOREREMOVE=1\nFDNAME=old");
  EXPECT_EQ(Read(fds), "READY=1");
  caller.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

// Earlier messages may wait in the queue for room.
TEST_F(ServiceManagerTest, CallsBackOnceTheManagerHasHandledWhatWasSent) {
  ServiceManager manager(loop_);
  const ScopedFd kept(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (int round = 0; round < 2; ++round) {
    manager.Keep("ring", kept.get());
    bool is_handled = false;
    manager.WhenHandled([&is_handled] { is_handled = true; });
    std::size_t fds = 0;
    EXPECT_EQ(Read(fds), "FDSTORE=1\nFDNAME=ring");
    loop_.RunOne(std::chrono::milliseconds(20));
    EXPECT_FALSE(is_handled) << "the second message is not read";
    EXPECT_EQ(Read(fds), "BARRIER=1");
    EXPECT_EQ(fds, 1U);
    loop_.RunOne(std::chrono::milliseconds(20));
    EXPECT_FALSE(is_handled) << "it may still be running";
    received_.clear();
    while (!is_handled) loop_.RunOne(std::chrono::seconds(60));
  }
}

TEST_F(ServiceManagerTest, WithoutAManagerEverythingIsHandled) {
  ::unsetenv("NOTIFY_SOCKET");  // NOLINT(concurrency-mt-unsafe): one thread
  ServiceManager manager(loop_);
  bool is_handled = false;
  manager.WhenHandled([&is_handled] { is_handled = true; });
  EXPECT_FALSE(is_handled) << "on the loop";
  loop_.RunUntilIdle();
  EXPECT_TRUE(is_handled);
}

}  // namespace
}  // namespace idd::daemon
