// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_UNIT_SUPPORT_OWN_VIEW_CLAIMER_H_
#define IDD_TESTS_UNIT_SUPPORT_OWN_VIEW_CLAIMER_H_

#include "idd/shm/abi.h"
#include "idd/shm/claim_point.h"
#include "idd/shm/ring_claimer.h"

namespace idd::shm {

struct OwnView {
  ClaimView view{DryPoint()};
};

// A claimer with its own view, like the one of a client's tag.
class OwnViewClaimer : private OwnView, public RingClaimer {
 public:
  OwnViewClaimer(const Table& table, Cursors& cursors) noexcept
      : RingClaimer(table, cursors, OwnView::view) {}
};

}  // namespace idd::shm

#endif  // IDD_TESTS_UNIT_SUPPORT_OWN_VIEW_CLAIMER_H_
