// SPDX-License-Identifier: Apache-2.0
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs/promises');
const { after, before, beforeEach, describe, it } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');

const { drain, failsWith, startDaemon } = require('./support.js');

// The largest delay of a timer while `promise` is pending.
async function measureLag(promise) {
  const intervalMs = 10;
  let longest = 0;
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    longest = Math.max(longest, now - last - intervalMs);
    last = now;
  }, intervalMs);
  await promise.catch(() => {});
  clearInterval(timer);
  return longest;
}

describe('claims that wait', () => {
  let daemon;
  let client;
  let scarce;
  before(async () => {
    daemon = await startDaemon();
    daemon.createTag('scarce', '--step', '10', '--max-prefetch', '20');
    client = daemon.connect();
    scarce = client.tag('scarce');
  });
  beforeEach(async () => {
    await daemon.stop();
    drain(scarce);
  });
  after(async () => {
    client.close();
    await daemon.remove();
  });

  it('tryClaim does not wait', () => {
    const startedAt = performance.now();
    assert.equal(scarce.tryClaim(), undefined);
    assert.throws(() => scarce.claim({ timeoutMs: 0 }), failsWith('TIMEOUT'));
    assert.ok(performance.now() - startedAt < 4000);
  });

  it('claim blocks for its timeoutMs', () => {
    const startedAt = performance.now();
    assert.throws(
      () => scarce.claim({ timeoutMs: 200 }),
      (error) => error.retryable,
    );
    const passed = performance.now() - startedAt;
    assert.ok(passed >= 199 && passed < 60_000, `${passed} ms`);
  });

  it('claimAsync does not block the event loop', async (context) => {
    const startedAt = performance.now();
    const claims = Array.from({ length: 50 }, () => scarce.claimAsync({ timeoutMs: 1000 }));
    const lag = await measureLag(Promise.allSettled(claims));
    const passed = performance.now() - startedAt;
    for (const claim of claims) await assert.rejects(claim, (error) => error.retryable);
    context.diagnostic?.(`failed after ${passed.toFixed(0)} ms, lag ${lag.toFixed(1)} ms`);
    assert.ok(passed >= 990 && passed < 60_000, `${passed} ms`);
    assert.ok(lag < 900, `lag ${lag} ms`);
  });

  it('claimAsync without a wait ends at once', async () => {
    await assert.rejects(scarce.claimAsync({ timeoutMs: 0 }), failsWith('TIMEOUT'));
  });

  it('claims that wait leave threads to others', async () => {
    const claims = Array.from({ length: 50 }, () => scarce.claimAsync({ timeoutMs: 2000 }));
    const settled = Promise.allSettled(claims);
    const startedAt = performance.now();
    await Promise.all(Array.from({ length: 20 }, () => fs.readFile(__filename)));
    assert.ok(performance.now() - startedAt < 1900);
    await settled;
  });

  it('each claimAsync has its own deadline', async () => {
    const startedAt = performance.now();
    const ended = [];
    const claim = (timeoutMs) =>
      scarce.claimAsync({ timeoutMs }).catch(() => {
        ended.push(timeoutMs);
        const passed = performance.now() - startedAt;
        assert.ok(passed >= timeoutMs - 10 && passed < timeoutMs + 60_000, `${passed} ms`);
      });
    await Promise.all([claim(900), claim(100), claim(500)]);
    assert.deepEqual(ended, [100, 500, 900]);
  });

  it('a signal ends a claimAsync', async () => {
    const controller = new AbortController();
    const other = scarce.claimAsync({ timeoutMs: 500 });
    const claim = scarce.claimAsync({ timeoutMs: 60_000, signal: controller.signal });
    setTimeout(() => controller.abort(), 50);
    const startedAt = performance.now();
    await assert.rejects(claim, { name: 'AbortError' });
    assert.ok(performance.now() - startedAt < 50_000);
    await assert.rejects(other, (error) => error.retryable);
  });

  it('claimAsync gets its id when the daemon is back', async () => {
    const claims = Array.from({ length: 60 }, () => scarce.claimAsync({ timeoutMs: 20_000 }));
    const settled = Promise.all(claims);
    await sleep(300);
    await daemon.start();
    const ids = await settled;
    assert.equal(new Set(ids).size, 60);
    assert.ok(ids.every((id, i) => i === 0 || id > ids[i - 1]), 'first come, first served');
  });

  it('claims attach again after a stop that closed the ring', async () => {
    await daemon.start();
    const last = await scarce.claimAsync({ timeoutMs: 20_000 });
    await daemon.restart('SIGTERM');
    assert.ok((await scarce.claimAsync({ timeoutMs: 20_000 })) > last);
  });

  it('a failed batch keeps what it has claimed', async () => {
    await daemon.start();
    const impatient = daemon.connect({ timeoutMs: 300 });
    const tag = impatient.tag('scarce');
    await tag.claimAsync({ timeoutMs: 20_000 });
    await daemon.stop();
    assert.throws(
      () => tag.claimMany(1000),
      ({ retryable, ids, claimed }) => retryable && claimed > 0 && ids.length === claimed,
    );
    assert.throws(
      () => tag.claimInto(new BigUint64Array(5)),
      (error) => error.retryable,
    );
    impatient.close();
  });
});
