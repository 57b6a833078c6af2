// SPDX-License-Identifier: Apache-2.0
#include "tags/service_meter.h"

#include <utility>

#include "idd/base/clock.h"

namespace idd::daemon {

ClaimDone MeterDryClaim(ServiceMeter& meter, ClaimDone done) {
  meter.dry_claims.Increment();
  return [&meter, done = std::move(done), since = MonotonicClock::now()](Result<ClaimGrant> grant) {
    meter.claim_wait.Observe(Seconds(MonotonicClock::now() - since));
    const auto code = static_cast<std::size_t>(grant.status().code());
    if (code != 0 && code < meter.failed_claims.size()) meter.failed_claims[code].Increment();
    done(std::move(grant));
  };
}

}  // namespace idd::daemon
