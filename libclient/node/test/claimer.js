// SPDX-License-Identifier: Apache-2.0
//
// Claims in a worker or a child process of threads.test.js.
'use strict';

const { isMainThread, parentPort, workerData } = require('node:worker_threads');

const { Client, IdClientError } = require('../lib/index.js');

const PAUSE_EVERY = 100; // claims

function isRetryable(error) {
  return error instanceof IdClientError && error.retryable;
}

async function claimOne(tag, isAsync) {
  while (true) {
    try {
      return isAsync ? await tag.claimAsync() : tag.claim();
    } catch (error) {
      if (!isRetryable(error)) throw error;
    }
  }
}

function untilItSucceeds(attempt) {
  while (true) {
    try {
      return attempt();
    } catch (error) {
      if (!isRetryable(error)) throw error;
    }
  }
}

async function run(options, { send, listen, end }) {
  const { socketPath, tag: name, blockSize, isAsync, isEndless, isLogging, isWaiting } = options;
  const log = isLogging ? () => {} : undefined;
  const client = untilItSucceeds(() => new Client({ socketPath, timeoutMs: 1000, log }));
  const tag = untilItSucceeds(() => client.tag(name, { blockSize }));
  if (isWaiting) {
    listen((message) => {
      if (message === 'exit') process.exit(7);
      for (let i = 0; i < 10; ++i) tag.claimAsync({ timeoutMs: 3_600_000 });
    });
    send('ready');
    return;
  }
  let isStopped = false;
  listen(() => {
    isStopped = true;
  });
  if (isEndless) send('ready');
  const ids = [];
  while (!isStopped) {
    const id = await claimOne(tag, isAsync);
    if (!isEndless) ids.push(id);
    // Pauses, so that the ids of a test stay few and messages come through.
    if (ids.length % PAUSE_EVERY === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  client.close();
  end(ids);
}

if (isMainThread) {
  process.once('message', (options) => {
    run(options, {
      send: (message) => process.send(message),
      listen: (listener) => process.on('message', listener),
      end: (ids) => process.send(ids, () => process.disconnect()),
    });
  });
} else {
  run(workerData, {
    send: (message) => parentPort.postMessage(message),
    listen: (listener) => parentPort.on('message', listener),
    end: (ids) => {
      parentPort.postMessage(ids);
      parentPort.close();
    },
  });
}
