// SPDX-License-Identifier: Apache-2.0
'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const v8 = require('node:v8');
const vm = require('node:vm');

const { countDescriptors, drain, failsWith, startDaemon, until } = require('./support.js');

v8.setFlagsFromString('--expose-gc');
const gc = vm.runInNewContext('gc');

function countMappedRings() {
  return fs.readFileSync('/proc/self/maps', 'utf8').match(/memfd:/g)?.length ?? 0;
}

async function assertClosed(tag) {
  const calls = [
    () => tag.claim(),
    () => tag.claim({ timeoutMs: 0 }),
    () => tag.tryClaim(),
    () => tag.claimNumber(),
    () => tag.claimMany(3),
    () => tag.claimInto(new BigUint64Array(3)),
    () => tag.claimRange(3),
    () => tag.info(),
  ];
  for (const call of calls) assert.throws(call, failsWith('INVALID'));
  await assert.rejects(tag.claimAsync(), failsWith('INVALID'));
}

describe('close', () => {
  let daemon;
  before(async () => {
    daemon = await startDaemon();
    daemon.createTag('orders', '--step', '100000');
  });
  after(() => daemon.remove());

  it('use after close is INVALID', async () => {
    const client = daemon.connect();
    const [first, second] = [client.tag('orders'), client.tag('orders')];
    first.close();
    first.close();
    await assertClosed(first);
    assert.equal(typeof second.claim(), 'bigint');
    client.close();
    client.close();
    await assertClosed(second);
    assert.throws(() => client.tag('orders'), failsWith('INVALID'));
  });

  it('Symbol.dispose closes', { skip: Symbol.dispose === undefined }, async () => {
    const client = daemon.connect();
    const tag = client.tag('orders');
    tag[Symbol.dispose]();
    await assertClosed(tag);
    client[Symbol.dispose]();
    assert.throws(() => client.tag('orders'), failsWith('INVALID'));
  });

  it('a failed open leaves nothing', () => {
    const before = countDescriptors();
    const client = daemon.connect();
    for (let i = 0; i < 50; ++i) assert.throws(() => client.tag('nosuch'));
    client.close();
    assert.equal(countDescriptors(), before);
  });

  it('1000 clients that are closed leave no descriptors', () => {
    daemon.connect().close();
    const before = countDescriptors();
    for (let i = 0; i < 1000; ++i) {
      const client = daemon.connect({ log: i % 2 === 0 ? () => {} : undefined });
      client.tag('orders', { blockSize: i % 3 === 0 ? 10 : 0 }).claim();
      client.close();
    }
    assert.ok(countDescriptors() <= before + 2, `${countDescriptors()} descriptors`);
  });

  it('clients that are garbage leave no descriptors', async () => {
    const before = countDescriptors();
    for (let i = 0; i < 50; ++i) {
      const client = daemon.connect({ log: () => client }); // a cycle through the log function
      client.tag('orders').claim();
    }
    assert.ok(countDescriptors() > before);
    await until(() => {
      gc();
      return countDescriptors() <= before + 2;
    });
  });

  it('a tag keeps its client open', async () => {
    const tag = (() => daemon.connect().tag('orders'))();
    for (let i = 0; i < 10; ++i) {
      gc();
      await sleep(5);
      assert.equal(typeof tag.claim(), 'bigint');
    }
    tag.close();
  });

  it('the log reports on the event loop, also after close', async () => {
    const messages = [];
    daemon.connect({ log: (level, message) => messages.push(`${level} ${message}`) }).close();
    assert.deepEqual(messages, []);
    await until(() => messages.length > 0);
    assert.match(messages[0], /^info .*connected/);
  });

  it('what the log throws is an uncaught exception', async () => {
    const script = `
      const { Client } = require(${JSON.stringify(path.join(__dirname, '../lib/index.js'))});
      process.on('uncaughtException', ({ message }) => process.exit(message === 'mine' ? 7 : 8));
      const log = () => { throw new Error('mine'); };
      new Client({ socketPath: ${JSON.stringify(daemon.socket)}, timeoutMs: 5000, log }).close();
      setTimeout(() => {}, 5000);
    `;
    const [code] = await once(spawn(process.execPath, ['-e', script]), 'exit');
    assert.equal(code, 7);
  });

  describe('while the daemon is dead and the ring is dry', () => {
    let client;
    before(async () => {
      daemon.createTag('scarce', '--step', '10', '--max-prefetch', '20');
      client = daemon.connect();
      client.tag('scarce');
      await daemon.stop();
      drain(client.tag('scarce'));
    });

    it('close of a tag or a client ends claims that wait', async () => {
      const tags = [client.tag('scarce'), client.tag('scarce')];
      const claims = tags.map((tag) => tag.claimAsync({ timeoutMs: 60_000 }));
      for (const claim of claims) claim.catch(() => {}); // it is awaited later
      await sleep(50);
      tags[0].close();
      await assert.rejects(claims[0], failsWith('INVALID'));
      await assertClosed(tags[0]);
      client.close();
      await assert.rejects(claims[1], failsWith('INVALID'));
      await assertClosed(tags[1]);
      // The rings stay mapped until the threads have ended their waits.
      assert.ok(countMappedRings() > 0);
      await until(() => countMappedRings() === 0);
    });
  });
});
