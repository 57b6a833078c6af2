// SPDX-License-Identifier: Apache-2.0
//
// The driver of tests/clients/README.md for Node.js.
//
// The package is that of the repository, with the addon of $IDCLIENT_NODE_ADDON.
// IDCLIENT_NODE_PACKAGE names another one, for example an installed one.
'use strict';

const { fork } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');
const { isMainThread, parentPort, Worker, workerData } = require('node:worker_threads');

const { Client, IdClientError, version } = require(
  process.env.IDCLIENT_NODE_PACKAGE ?? path.join(__dirname, '../../../libclient/node'),
);

let client; // { native, socketPath, timeoutMs }
const handles = new Map(); // handle: { tag, name, blockSize }

function invalid(message) {
  return new IdClientError('INVALID', message);
}

function findHandle(handle) {
  const found = handles.get(handle);
  if (found === undefined) throw invalid(`there is no handle ${handle}`);
  return found;
}

function findTag(handle) {
  return findHandle(handle).tag;
}

// ---- Threads and processes of loop and fork -----------------------------------------------------

// What a thread or a process needs to open a handle's tag for itself.
function copyOf(handle) {
  const { name, blockSize } = findHandle(handle);
  return { socketPath: client.socketPath, timeoutMs: client.timeoutMs, name, blockSize };
}

function untilItSucceeds(attempt) {
  while (true) {
    try {
      return attempt();
    } catch (error) {
      if (!(error instanceof IdClientError) || !error.retryable) throw error;
    }
  }
}

function claimCopy({ socketPath, timeoutMs, name, blockSize, count }) {
  const own = untilItSucceeds(() => new Client({ socketPath, timeoutMs }));
  const tag = untilItSucceeds(() => own.tag(name, { blockSize }));
  const ids = new BigUint64Array(count);
  for (let i = 0; i < count; ++i) ids[i] = untilItSucceeds(() => tag.claim());
  own.close();
  return ids;
}

function describe(error) {
  return { status: error.status ?? 'SYSTEM', message: error.message };
}

// Claims, and gives the ids or the error to `send`.
function serve(request, send) {
  try {
    send({ ids: claimCopy(request) });
  } catch (error) {
    send({ error: describe(error) });
  }
}

function unpack({ ids, error }) {
  if (error !== undefined) throw new IdClientError(error.status, error.message);
  return ids;
}

async function claimInWorker(request) {
  const worker = new Worker(__filename, { workerData: request });
  const [answer] = await once(worker, 'message');
  return unpack(answer);
}

// The ids of a child process, and those that `claimHere` claims at the same time.
async function claimInProcess(request, claimHere) {
  const child = fork(__filename, ['child'], { serialization: 'advanced' });
  child.send(request);
  const answer = once(child, 'message');
  const ids = claimHere();
  return [...ids, ...unpack((await answer)[0])];
}

// ---- Commands -----------------------------------------------------------------------------------

const commands = {
  open(socketPath, timeoutMs) {
    client?.native.close();
    client = undefined;
    const options = { socketPath, timeoutMs: Number(timeoutMs) };
    client = { native: new Client(options), ...options };
  },

  tag(handle, name, block = '0') {
    if (client === undefined) throw invalid('there is no client');
    const blockSize = Number(block);
    handles.set(handle, { tag: client.native.tag(name, { blockSize }), name, blockSize });
  },

  // With a wait of its own, the asynchronous claim; otherwise the synchronous one.
  async claim(handle, timeoutMs) {
    const tag = findTag(handle);
    return timeoutMs === undefined
      ? tag.claim()
      : await tag.claimAsync({ timeoutMs: Number(timeoutMs) });
  },

  many(handle, count) {
    return [...findTag(handle).claimMany(Number(count))];
  },

  range(handle, count) {
    const { first, count: claimed } = findTag(handle).claimRange(Number(count));
    return [first, claimed];
  },

  info(handle) {
    const { mode, order, state, step, available } = findTag(handle).info();
    return [mode, order, state, step, available];
  },

  async loop(handle, count, threads, file) {
    const request = { ...copyOf(handle), count: Number(count) };
    const workers = Array.from({ length: Number(threads) }, () => claimInWorker(request));
    const lines = [];
    for (const [thread, ids] of (await Promise.all(workers)).entries()) {
      for (const id of ids) lines.push(`${thread} ${id}\n`);
    }
    fs.writeFileSync(file, lines.join(''));
  },

  async fork(handle, count) {
    const tag = findTag(handle);
    const request = { ...copyOf(handle), count: Number(count) };
    return claimInProcess(request, () =>
      Array.from({ length: request.count }, () => untilItSucceeds(() => tag.claim())),
    );
  },

  close(...words) {
    if (words.length > 0) {
      findTag(words.at(-1)).close();
    } else if (client === undefined) {
      throw invalid('there is no client');
    } else {
      client.native.close();
      client = undefined;
    }
  },

  version() {
    return version;
  },
};

async function answer(line) {
  const [command, ...words] = line.split(' ');
  try {
    if (!Object.hasOwn(commands, command)) throw invalid(`there is no command ${command}`);
    const results = [(await commands[command](...words)) ?? []].flat();
    return ['ok', ...results].join(' ');
  } catch (error) {
    const { status, message } = describe(error);
    return `error ${status} ${message.replaceAll(/\s+/g, ' ')}`;
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const text = `${await answer(line)}\n`;
    await new Promise((resolve) => process.stdout.write(text, resolve));
  }
  client?.native.close();
}

if (!isMainThread) {
  serve(workerData, (result) => parentPort.postMessage(result));
} else if (process.argv[2] === 'child') {
  process.once('message', (request) => {
    serve(request, (result) => process.send(result, () => process.disconnect()));
  });
} else {
  main();
}
