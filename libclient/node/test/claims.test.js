// SPDX-License-Identifier: Apache-2.0
'use strict';

const assert = require('node:assert/strict');
const { after, before, describe, it } = require('node:test');

const { Client, IdClientError, version } = require('../lib/index.js');
const packageJson = require('../package.json');
const { failsWith, startDaemon } = require('./support.js');

describe('claims', () => {
  let daemon;
  let client;
  before(async () => {
    daemon = await startDaemon();
    daemon.createTag('orders', '--step', '100000');
    daemon.createTag('big', '--step', '1000', '--start', String(2n ** 53n - 2n));
    client = daemon.connect();
  });
  after(async () => {
    client.close();
    await daemon.remove();
  });

  it('claim gives rising BigInts', () => {
    const orders = client.tag('orders');
    const first = orders.claim();
    assert.equal(typeof first, 'bigint');
    assert.ok(orders.claim() > first);
    assert.ok(orders.claim({}) > first);
    assert.ok(orders.claim({ timeoutMs: 1 }) > first);
    assert.ok(orders.tryClaim() > first);
  });

  it('claim needs no this and keeps its client open', () => {
    const { claim } = daemon.connect().tag('orders');
    globalThis.gc?.();
    assert.equal(typeof claim(), 'bigint');
  });

  it('claim refuses wrong options', () => {
    const orders = client.tag('orders');
    for (const options of [null, 1, { timeoutMs: -1 }, { timeoutMs: 1.5 }, { timeoutMs: 'x' }]) {
      assert.throws(() => orders.claim(options), failsWith('INVALID'));
    }
    const options = {
      get timeoutMs() {
        throw new Error('mine');
      },
    };
    assert.throws(() => orders.claim(options), { message: 'mine' });
  });

  it('claimAsync gives an id', async () => {
    const orders = client.tag('orders');
    const ids = await Promise.all(Array.from({ length: 100 }, () => orders.claimAsync()));
    assert.equal(new Set(ids).size, 100);
    await assert.rejects(orders.claimAsync({ timeoutMs: 3_600_001 }), failsWith('INVALID'));
    await assert.rejects(orders.claimAsync({ signal: AbortSignal.abort() }), {
      name: 'AbortError',
    });
  });

  it('claimNumber gives a number', () => {
    const orders = client.tag('orders');
    const before = orders.claim();
    const id = orders.claimNumber();
    assert.equal(typeof id, 'number');
    assert.ok(BigInt(id) > before);
  });

  it('claimNumber refuses ids above 2^53 - 1 instead of rounding them', () => {
    const big = client.tag('big');
    assert.equal(big.claimNumber(), Number.MAX_SAFE_INTEGER - 1);
    assert.equal(big.claimNumber(), Number.MAX_SAFE_INTEGER);
    const refused = { name: 'RangeError', code: 'IDCLIENT_NUMBER_RANGE', id: 2n ** 53n };
    assert.throws(() => big.claimNumber(), refused);
    assert.equal(big.claim(), 2n ** 53n + 1n);
  });

  it('claimMany and claimInto give rising ids', () => {
    const orders = client.tag('orders');
    const ids = orders.claimMany(5000);
    assert.ok(ids instanceof BigUint64Array);
    assert.equal(ids.length, 5000);
    assert.ok(ids.every((id, i) => i === 0 || id > ids[i - 1]));
    assert.equal(orders.claimMany(0).length, 0);

    const shared = new BigUint64Array(new SharedArrayBuffer(96), 32, 3);
    assert.equal(orders.claimInto(shared), 3);
    assert.ok(shared[0] > ids[4999] && shared[2] > shared[1]);
    for (const wrong of [undefined, [], new BigInt64Array(2), new Float64Array(2)]) {
      assert.throws(() => orders.claimInto(wrong), failsWith('INVALID'));
    }
    for (const wrong of [undefined, -1, 1.5, '3', 3n]) {
      assert.throws(() => orders.claimMany(wrong), failsWith('INVALID'));
    }
  });

  it('claimRange gives contiguous ids', () => {
    const orders = client.tag('orders');
    const range = orders.claimRange(10);
    assert.ok(range.count >= 1 && range.count <= 10);
    const ids = [...range];
    assert.equal(ids.length, range.count);
    assert.equal(ids[0], range.first);
    assert.equal(ids.at(-1), range.first + BigInt(range.count) - 1n);
    for (const wrong of [undefined, 0, -1, 1.5]) {
      assert.throws(() => orders.claimRange(wrong), failsWith('INVALID'));
    }
  });

  it('a tag with a block size claims ids of its own', () => {
    const blocks = client.tag('orders', { blockSize: 100 });
    const first = blocks.claim();
    assert.equal(blocks.claim(), first + 1n);
    assert.throws(() => client.tag('orders', { blockSize: 65_537 }), failsWith('INVALID'));
    blocks.close();
  });

  it('info shows the ring', () => {
    const info = client.tag('orders').info();
    assert.deepEqual(
      { mode: info.mode, order: info.order, state: info.state, step: info.step },
      { mode: 'segment', order: 'host', state: 'ok', step: 100_000 },
    );
    assert.ok(info.available > 0);
  });

  it('a tag that does not exist is NO_SUCH_TAG', () => {
    assert.throws(
      () => client.tag('nosuch'),
      (error) =>
        failsWith('NO_SUCH_TAG')(error) && !error.retryable && error.name === 'IdClientError',
    );
  });

  it('names and options are checked', () => {
    for (const name of ['', 'a\0b', 'x'.repeat(129), '\ud800']) {
      assert.throws(() => client.tag(name), failsWith('INVALID'));
    }
    assert.throws(() => client.tag(7), TypeError);
    assert.throws(() => new Client({ timeoutMs: -1 }), failsWith('INVALID'));
    assert.throws(() => new Client({ timeoutMs: 3_600_001 }), failsWith('INVALID'));
    assert.throws(() => new Client({ socketPath: 7 }), TypeError);
    assert.throws(() => new Client({ log: 7 }), TypeError);
    assert.throws(() => new Client(7), TypeError);
  });

  it('no daemon is UNAVAILABLE', () => {
    assert.throws(
      () => new Client({ socketPath: `${daemon.socket}.none`, openOnce: true }),
      (error) => failsWith('UNAVAILABLE')(error) && error.retryable,
    );
  });

  it('IDD_SOCKET is the default', () => {
    process.env.IDD_SOCKET = daemon.socket;
    const other = new Client();
    delete process.env.IDD_SOCKET;
    assert.equal(typeof other.tag('orders').claim(), 'bigint');
    other.close();
  });

  it('works from an ES module', async () => {
    const module = await import('../lib/index.js');
    assert.equal(module.Client, Client);
    assert.equal(module.IdClientError, IdClientError);
    assert.equal(module.version, packageJson.version);
    assert.equal(version, packageJson.version);
  });
});
