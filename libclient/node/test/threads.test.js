// SPDX-License-Identifier: Apache-2.0
'use strict';

const assert = require('node:assert/strict');
const { fork } = require('node:child_process');
const { once } = require('node:events');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const { Worker } = require('node:worker_threads');

const { countDescriptors, drain, startDaemon } = require('./support.js');

const CLAIMER = path.join(__dirname, 'claimer.js');

// The next message of a worker or a child; fails if it ends without one. A child's last message may
// come after its exit, but not after its channel is closed.
function receive(claimer) {
  return new Promise((resolve, reject) => {
    claimer.once('message', resolve);
    claimer.once('error', reject);
    claimer.once('exit', (code) => {
      const fail = () => reject(new Error(`ended with ${code}`));
      if (claimer.connected) claimer.once('disconnect', fail);
      else fail();
    });
  });
}

// Claims in a worker or in a process until `stop()`, which gives the ids.
function startWorker(options) {
  const worker = new Worker(CLAIMER, { workerData: options });
  const ids = receive(worker);
  return () => {
    worker.postMessage('stop');
    return ids;
  };
}

function startProcess(options) {
  const child = fork(CLAIMER, { serialization: 'advanced' });
  child.send(options);
  const ids = receive(child);
  return () => {
    child.send('stop');
    return ids;
  };
}

describe('threads and processes', () => {
  let daemon;
  before(async () => {
    daemon = await startDaemon();
    daemon.createTag('orders', '--step', '1000', '--max-prefetch', '20000');
    daemon.createTag('scarce', '--step', '10', '--max-prefetch', '20');
  });
  after(() => daemon.remove());

  it('no id comes twice while the daemon is killed and restarted', async (context) => {
    const request = { socketPath: daemon.socket, tag: 'orders' };
    const claimers = [
      startWorker(request),
      startWorker({ ...request, blockSize: 50 }),
      startWorker({ ...request, isAsync: true }),
      startProcess(request),
      startProcess({ ...request, isAsync: true }),
    ];
    for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL', 'SIGKILL']) {
      await sleep(500);
      await daemon.restart(signal);
    }
    await sleep(300);
    const lists = await Promise.all(claimers.map((stop) => stop()));
    const all = new Set();
    for (const ids of lists) {
      assert.ok(ids.length > 100, `only ${ids.length} ids`);
      assert.ok(ids.every((id, i) => i === 0 || id > ids[i - 1]), 'ids rise in a thread');
      for (const id of ids) all.add(id);
    }
    const count = lists.reduce((sum, ids) => sum + ids.length, 0);
    context.diagnostic?.(`${count} ids in ${lists.map((ids) => ids.length)}`);
    assert.equal(all.size, count);
  });

  it('a worker can be terminated in the middle of claims', async () => {
    daemon.connect().close();
    const before = countDescriptors();
    for (const isAsync of [false, true]) {
      for (let i = 0; i < 5; ++i) {
        const request = { socketPath: daemon.socket, tag: 'orders', isAsync, isLogging: true };
        const worker = new Worker(CLAIMER, { workerData: { ...request, isEndless: true } });
        await receive(worker);
        await sleep(20 * i);
        await worker.terminate();
      }
    }
    assert.ok(countDescriptors() <= before + 1, `${countDescriptors()} descriptors`);
  });

  it('the end of a worker or a process does not wait for its claims', async () => {
    const client = daemon.connect();
    const scarce = client.tag('scarce');
    const options = { socketPath: daemon.socket, tag: 'scarce', isWaiting: true };
    const worker = new Worker(CLAIMER, { workerData: options });
    await receive(worker);
    const child = fork(CLAIMER);
    child.send(options);
    await receive(child);
    await daemon.stop();
    drain(scarce);
    client.close();

    worker.postMessage('wait');
    child.send('wait');
    await sleep(200);
    const startedAt = performance.now();
    await worker.terminate();
    const exited = once(child, 'exit');
    child.send('exit');
    const [code] = await exited;
    assert.equal(code, 7);
    assert.ok(performance.now() - startedAt < 60_000);
  });
});
