// SPDX-License-Identifier: Apache-2.0
'use strict';

const { performance } = require('node:perf_hooks');
const { IdClientError, invalid } = require('./errors.js');

// The longest wait in one piece on a thread of libuv. A wait that has begun there cannot be
// stopped, and the end of a worker or of the process waits for it.
const LONGEST_WAIT_MS = 250;
// The same for a tag without a ring. Each of its claims asks the allocator, and the answer to a
// request that was given up is a gap: so it must be longer than the allocator needs.
const LONGEST_WAIT_WITHOUT_RING_MS = 10_000;
const STATE_NO_RING = 0;
const INFO_STATE = 2; // index in the addon's info()

// The claims of one tag that found its ring dry, first come, first served.
//
// However many there are, only one thread of libuv waits, for one id. When it has got one, the
// others are served from the ring on the event loop's thread.
class WaitingClaims {
  #native;
  #onBusy;
  #onIdle;
  #claims = new Set(); // in the order in which they came
  #isWaiting = false;
  #waitsUntil = 0; // the end of the wait that is running
  #isClosed = false;
  #hadRing = false;

  constructor(native, { onBusy, onIdle }) {
    this.#native = native;
    this.#onBusy = onBusy;
    this.#onIdle = onIdle;
  }

  // A promise of an id.
  add(timeoutMs, signal) {
    return new Promise((resolve, reject) => {
      const claim = { resolve, reject, signal, deadline: performance.now() + timeoutMs };
      if (signal !== undefined) {
        claim.onAbort = () => this.#end(claim, reject, signal.reason);
        signal.addEventListener('abort', claim.onAbort, { once: true });
      }
      this.#claims.add(claim);
      if (!this.#isWaiting) {
        this.#waitForIds();
      } else if (claim.deadline < this.#waitsUntil) {
        claim.timer = setTimeout(() => this.#end(claim, reject, outOfTime()), timeoutMs);
      }
    });
  }

  close() {
    this.#isClosed = true;
    this.#endAll(invalid('the tag was closed'));
  }

  async #waitForIds() {
    this.#isWaiting = true;
    this.#onBusy();
    try {
      while (this.#claims.size > 0) await this.#waitOnce();
    } catch (error) {
      this.#endAll(error);
    } finally {
      this.#isWaiting = false;
      this.#onIdle();
    }
  }

  async #waitOnce() {
    const startedAt = performance.now();
    const timeoutMs = this.#chooseWait(startedAt);
    this.#waitsUntil = startedAt + timeoutMs;
    const result = await this.#native.wait(timeoutMs);
    if (this.#isClosed) return;
    if (typeof result === 'bigint') {
      this.#serve(result);
      return;
    }
    // More waiting does not help against an error before the end of the wait. But a daemon that
    // answers TIMEOUT does so a little earlier.
    const isEarly = performance.now() < this.#waitsUntil && result.status !== 'TIMEOUT';
    if (!result.retryable || isEarly) {
      this.#endAll(result);
    } else {
      this.#endLate(result);
    }
  }

  // Until the earliest deadline, in pieces.
  #chooseWait(now) {
    let earliest = Infinity;
    for (const { deadline } of this.#claims) earliest = Math.min(earliest, deadline);
    // A ring that idd has closed is one that the tag will have again.
    if (this.#native.info()[INFO_STATE] !== STATE_NO_RING) this.#hadRing = true;
    const longest = this.#hadRing ? LONGEST_WAIT_MS : LONGEST_WAIT_WITHOUT_RING_MS;
    return Math.min(Math.max(Math.ceil(earliest - now), 1), longest);
  }

  // Gives out the id, and then what the ring has. An id that no claim wants any more is a gap.
  #serve(id) {
    for (const claim of [...this.#claims]) {
      this.#end(claim, claim.resolve, id);
      if (this.#claims.size === 0) return;
      id = this.#native.tryClaim();
      if (id === undefined) return;
    }
  }

  // Ends the claims that had until the end of this wait.
  #endLate(error) {
    for (const claim of [...this.#claims]) {
      if (claim.deadline <= this.#waitsUntil) this.#end(claim, claim.reject, error);
    }
  }

  #endAll(error) {
    for (const claim of [...this.#claims]) this.#end(claim, claim.reject, error);
  }

  // Does nothing for a claim that has ended.
  #end(claim, settle, result) {
    if (!this.#claims.delete(claim)) return;
    clearTimeout(claim.timer);
    claim.signal?.removeEventListener('abort', claim.onAbort);
    settle(result);
  }
}

function outOfTime() {
  return new IdClientError('TIMEOUT', 'nothing to claim in time', true);
}

module.exports = { WaitingClaims };
