// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "idd/base/check.h"
#include "platform/random.h"

namespace idd::simulation {
namespace {

World* the_world = nullptr;
Thread* running_thread = nullptr;

std::uint64_t SplitMix(std::uint64_t& state) noexcept {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

MonotonicTime ProductTime() noexcept {
  const Process* const process = Process::Current();
  const Nanos offset = process == nullptr ? 0 : process->clock().monotonic_offset();
  return MonotonicTime(std::chrono::nanoseconds(the_world->now() + offset));
}

// Outside of all processes, on a server or for an operator, it is the true time.
std::int64_t ProductWallTime() noexcept {
  const Process* const process = Process::Current();
  if (process != nullptr) return process->clock().wall_ms();
  return kWorldBeganMs + the_world->now() / kMillisecond;
}

std::uint64_t ProductRandom() { return the_world->product_random().Next(); }

// How long it takes until a thread that was woken runs.
Nanos WakeLatency() { return World::Get().random().Between(1, 20) * kMicrosecond; }

}  // namespace

// --- Random

Random::Random(std::uint64_t seed) noexcept : state_{} {
  for (std::uint64_t& word : state_) word = SplitMix(seed);
}

std::uint64_t Random::Next() noexcept {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

// The remainder's bias is below 2^-40 for the ranges that are used here.
std::uint64_t Random::Below(std::uint64_t n) noexcept { return Next() % n; }

std::int64_t Random::Between(std::int64_t low, std::int64_t high) noexcept {
  return low + static_cast<std::int64_t>(Below(static_cast<std::uint64_t>(high - low) + 1));
}

// --- World

World::World(std::uint64_t seed) : random_(seed), product_random_(seed ^ 0x5851f42d4c957f2d) {
  IDD_CHECK(the_world == nullptr);
  the_world = this;
  MonotonicClock::SetSource(ProductTime);
  WallClock::SetSource(ProductWallTime);
  daemon::RandomBits::SetSource(ProductRandom);
}

World::~World() {
  MonotonicClock::SetSource(nullptr);
  WallClock::SetSource(nullptr);
  daemon::RandomBits::SetSource(nullptr);
  the_world = nullptr;
}

World& World::Get() {
  IDD_CHECK(the_world != nullptr);
  return *the_world;
}

void World::At(Nanos time, std::function<void()> event) {
  queue_.push_back(
      {.time = std::max(time, now_), .number = next_number_++, .call = std::move(event)});
  std::push_heap(queue_.begin(), queue_.end(), IsLater());
}

void World::RunUntil(Nanos time) {
  while (!queue_.empty() && queue_.front().time <= time) {
    std::pop_heap(queue_.begin(), queue_.end(), IsLater());
    const Event event = std::move(queue_.back());
    queue_.pop_back();
    now_ = event.time;
    ++events_;
    event.call();
  }
  now_ = std::max(now_, time);
}

void World::Trace(std::string line) {
  const auto add = [this](unsigned char byte) {
    trace_hash_ = (trace_hash_ ^ byte) * 0x100000001b3;
  };
  for (unsigned shift = 0; shift < 64; shift += 8) {
    add(static_cast<unsigned char>(static_cast<std::uint64_t>(now_) >> shift));
  }
  for (const char c : line) add(static_cast<unsigned char>(c));
  if (tracer_) tracer_(now_, line);
}

void World::Met(std::string_view situation) {
  const auto it = std::find_if(met_.begin(), met_.end(),
                               [situation](const auto& met) { return met.first == situation; });
  if (it == met_.end()) {
    met_.emplace_back(situation, 1);
  } else {
    ++it->second;
  }
}

// --- Thread

Thread* Thread::Current() noexcept { return running_thread; }

Thread::Thread(Process& process, std::function<void()> body)
    : process_(process), fiber_([this, body = std::move(body)] {
        try {
          if (!process_.is_dead_) body();
        } catch (const Killed&) {
        }
      }) {}

void Thread::Resume() {
  Thread* const outer = std::exchange(running_thread, this);
  fiber_.Resume();
  running_thread = outer;
}

void Thread::ContinueAt(Nanos time) {
  World::Get().At(time, [this, wait = wait_, exists = std::weak_ptr(exists_)] {
    if (!exists.expired()) Continue(wait);
  });
}

bool Thread::TryWait(std::optional<Nanos> until) {
  IDD_CHECK(running_thread == this);
  if (process_.is_dead_) return false;
  is_waiting_ = true;
  ++wait_;
  if (until.has_value()) ContinueAt(*until);
  Fiber::Yield();
  is_waiting_ = false;
  return !process_.is_dead_;
}

void Thread::Wait(std::optional<Nanos> until) {
  if (!TryWait(until)) ThrowIfKilled();
}

void Thread::ThrowIfKilled() {
  if (!process_.is_dead_ || is_unwinding_) return;
  is_unwinding_ = true;
  throw Killed();
}

void Thread::Sleep(Nanos duration) { Wait(World::Get().now() + duration); }

void Thread::Wake() {
  if (is_waiting_ && !process_.is_dead_) ContinueAt(World::Get().now() + WakeLatency());
}

void Thread::Continue(std::uint64_t wait) {
  if (process_.is_dead_ || !is_waiting_ || wait != wait_) return;
  if (process_.is_suspended_) {
    process_.held_up_.push_back(this);
    return;
  }
  Resume();
}

// --- Process

Process* Process::Current() noexcept {
  return running_thread == nullptr ? nullptr : &running_thread->process();
}

Process::Process(std::string name, const HostClock& clock)
    : name_(std::move(name)), clock_(clock) {}

Process::~Process() { Kill(); }

void Process::Start(std::function<void()> main, std::function<void()> on_exit) {
  AddThread([this, main = std::move(main), on_exit = std::move(on_exit)] {
    main();
    if (!is_dead_) World::Get().After(0, on_exit);
  });
}

Thread& Process::AddThread(std::function<void()> body) {
  threads_.push_back(std::unique_ptr<Thread>(new Thread(*this, std::move(body))));
  Thread& thread = *threads_.back();
  thread.is_waiting_ = true;
  thread.ContinueAt(World::Get().now() + WakeLatency());
  return thread;
}

void Process::Remove(Thread& thread) {
  if (is_dead_ && !thread.has_ended()) thread.Resume();  // it unwinds
  IDD_CHECK(thread.has_ended());
  std::erase(held_up_, &thread);
  threads_.remove_if([&thread](const auto& other) { return other.get() == &thread; });
}

// The main thread's objects own the other threads, and remove them while it unwinds.
void Process::Kill() {
  IDD_CHECK(running_thread == nullptr);
  is_dead_ = true;
  held_up_.clear();
  while (!threads_.empty()) {
    Thread& thread = *threads_.front();
    if (!thread.has_ended()) thread.Resume();
    IDD_CHECK(thread.has_ended());
    threads_.remove_if([&thread](const auto& other) { return other.get() == &thread; });
  }
}

void Process::Die() {
  is_dead_ = true;
  running_thread->is_unwinding_ = true;
  throw Killed();
}

void Process::Unsuspend() {
  is_suspended_ = false;
  for (Thread* const thread : std::exchange(held_up_, {})) thread->Wake();
}

}  // namespace idd::simulation
