// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/snapshots.h"

#include <memory>
#include <utility>

#include "platform/turns.h"

namespace idd::daemon {
namespace {

struct Taking {
  explicit Taking(EventLoop& loop) : turns(loop) {}

  Turns turns;
  std::string at;
  std::vector<TagSnapshot> taken;
};

}  // namespace

void TakeSnapshots(EventLoop& loop, NextSnapshot next,
                   std::function<void(std::vector<TagSnapshot>)> done) {
  const auto taking = std::make_shared<Taking>(loop);
  taking->turns.Begin([taking, next = std::move(next), done = std::move(done)] {
    if (next(taking->at, taking->taken)) return Turns::Next::kStep;
    done(std::move(taking->taken));
    return Turns::Next::kEnd;
  });
}

}  // namespace idd::daemon
