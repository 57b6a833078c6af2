// SPDX-License-Identifier: Apache-2.0
'use strict';

const { IdClientError, invalid } = require('./errors.js');
const { checkTimeout, readOptions } = require('./options.js');
const { WaitingClaims } = require('./waiting_claims.js');

// As the enums of idclient.h number them.
const MODES = ['unknown', 'segment', 'snowflake', 'ticket'];
const ORDERS = ['unknown', 'host', 'cpu'];
const STATES = ['no_ring', 'ok', 'dry', 'quarantined', 'drained'];

// Contiguous ids [first, first + count). Iterating over it gives each id as a BigInt.
class IdRange {
  constructor(first, count) {
    this.first = first;
    this.count = count;
  }

  *[Symbol.iterator]() {
    const end = this.first + BigInt(this.count);
    for (let id = this.first; id < end; ++id) yield id;
  }
}

// One tag, made by Client.tag(). claim, tryClaim and claimNumber are native functions that know
// their tag: a claim calls them without a detour, and they need no `this`.
class Tag {
  #client;
  #native;
  #timeoutMs;
  #waiting;

  constructor({ client, name, native, timeoutMs, waitingTags }) {
    this.#client = client;
    this.#native = native;
    this.#timeoutMs = timeoutMs;
    this.#waiting = new WaitingClaims(native, {
      onBusy: () => waitingTags.add(this),
      onIdle: () => waitingTags.delete(this),
    });
    this.name = name;
    this.claim = native.claim;
    this.tryClaim = native.tryClaim;
    this.claimNumber = native.claimNumber;
  }

  // Claims one id without blocking the event loop.
  async claimAsync(options) {
    const { timeoutMs = this.#timeoutMs, signal } = readOptions(options);
    checkTimeout(timeoutMs);
    signal?.throwIfAborted();
    try {
      const id = this.#native.tryClaim();
      if (id !== undefined) return id;
    } catch (error) {
      if (!(error instanceof IdClientError) || !error.retryable) throw error;
    }
    // Without a wait: this gives the id or the reason why there is none.
    if (timeoutMs === 0) return this.#native.claim({ timeoutMs: 0 });
    return this.#waiting.add(timeoutMs, signal);
  }

  // Claims `count` rising ids.
  claimMany(count) {
    if (!Number.isSafeInteger(count) || count < 0) {
      throw invalid(`the count of claimMany must be a whole number, got ${String(count)}`);
    }
    const ids = new BigUint64Array(count);
    try {
      this.#native.claimInto(ids);
    } catch (error) {
      if (error instanceof IdClientError) error.ids = ids.subarray(0, error.claimed);
      throw error;
    }
    return ids;
  }

  // Fills a BigUint64Array. Returns how many ids it could claim; throws if it is none.
  claimInto(ids) {
    try {
      return this.#native.claimInto(ids);
    } catch (error) {
      if (error instanceof IdClientError && error.claimed > 0) return error.claimed;
      throw error;
    }
  }

  // Claims contiguous ids: the largest run up to `count` that is there; at least one.
  claimRange(count) {
    const [first, claimed] = this.#native.claimRange(count);
    return new IdRange(first, claimed);
  }

  // What this process can see of the tag, without a request.
  info() {
    const [mode, order, state, step, available, coverMs] = this.#native.info();
    return {
      mode: MODES[mode] ?? 'unknown',
      order: ORDERS[order] ?? 'unknown',
      state: STATES[state] ?? 'unknown',
      step,
      available,
      coverMs: coverMs < 0 ? undefined : coverMs,
    };
  }

  // Claims that wait end with an error. May be called again.
  close() {
    this.#native.close();
    this.#waiting.close();
  }
}
if (Symbol.dispose !== undefined) {
  Tag.prototype[Symbol.dispose] = function dispose() {
    this.close();
  };
}

module.exports = { IdRange, Tag };
