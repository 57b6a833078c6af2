// SPDX-License-Identifier: Apache-2.0
//
// A daemon of a test's own. IDD_TEST_IDD and IDD_TEST_IDCTL name the programs.
'use strict';

const { execFileSync, spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

const { Client, IdClientError } = require('../lib/index.js');

class Daemon {
  #directory = fs.mkdtempSync(path.join(os.tmpdir(), 'idclient-node-'));
  #process;

  get socket() {
    return path.join(this.#directory, 'idd.sock');
  }

  // Waits until it answers.
  async start() {
    const state = path.join(this.#directory, 'state');
    fs.mkdirSync(state, { recursive: true });
    const log = fs.openSync(path.join(this.#directory, 'log'), 'a');
    this.#process = spawn(
      process.env.IDD_TEST_IDD,
      [
        ...['--database', `sqlite:${path.join(this.#directory, 'idd.db')}`],
        ...['--socket', this.socket, '--state-dir', state],
      ],
      { stdio: ['ignore', log, log] },
    );
    fs.closeSync(log);
    new Client({ socketPath: this.socket, timeoutMs: 20_000 }).close();
  }

  // SIGKILL; SIGTERM makes it close its rings.
  async stop(signal = 'SIGKILL') {
    if (this.#process === undefined) return;
    const exited = once(this.#process, 'exit');
    this.#process.kill(signal);
    this.#process = undefined;
    await exited;
  }

  async restart(signal) {
    await this.stop(signal);
    await this.start();
  }

  createTag(name, ...options) {
    execFileSync(process.env.IDD_TEST_IDCTL, [
      ...['--socket', this.socket, 'tag', 'create', name],
      ...options,
    ]);
  }

  // A client with a wait that is long enough for a busy machine.
  connect(options) {
    return new Client({ socketPath: this.socket, timeoutMs: 5000, ...options });
  }

  async remove() {
    await this.stop();
    fs.rmSync(this.#directory, { recursive: true, force: true });
  }
}

async function startDaemon() {
  const daemon = new Daemon();
  try {
    await daemon.start();
  } catch (error) {
    await daemon.remove();
    throw error;
  }
  return daemon;
}

// A matcher for assert.throws and assert.rejects.
function failsWith(status) {
  return (error) => {
    if (!(error instanceof IdClientError)) return false;
    return error.status === status && error.code === `IDCLIENT_${status}`;
  };
}

// Claims what the ring has.
function drain(tag) {
  const ids = [];
  for (let id = tag.tryClaim(); id !== undefined; id = tag.tryClaim()) ids.push(id);
  return ids;
}

function countDescriptors() {
  return fs.readdirSync('/proc/self/fd').length;
}

// Polls until `check` holds.
async function until(check, timeoutMs = 10_000) {
  const deadline = Date.now() + timeoutMs;
  while (!check()) {
    if (Date.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${check}`);
    await sleep(10);
  }
}

module.exports = { countDescriptors, drain, failsWith, startDaemon, until };
