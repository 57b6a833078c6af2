// SPDX-License-Identifier: Apache-2.0
'use strict';

const { addon } = require('./addon.js');
const { checkInteger, checkString, checkTimeout, readOptions } = require('./options.js');
const { Tag } = require('./tag.js');

const DEFAULT_TIMEOUT_MS = 500; // of the C library
const MAX_UID = 0xffff_ffff;
const MAX_BLOCK_SIZE = 65_536;

// A connection to the host's idd. Each of its tags keeps it open.
class Client {
  #native;
  #timeoutMs;
  #log; // the addon refers to it weakly
  #waitingTags = new Set(); // that have claims which wait

  // Waits, and blocks the event loop, for at most timeoutMs if there is no daemon yet.
  constructor(options) {
    const { socketPath, timeoutMs, trustedUid, openOnce = false, log } = readOptions(options);
    if (socketPath !== undefined) checkString('socketPath', socketPath);
    checkTimeout(timeoutMs);
    checkInteger('trustedUid', trustedUid, 0, MAX_UID);
    if (typeof openOnce !== 'boolean') throw new TypeError('openOnce must be a boolean');
    if (log !== undefined && typeof log !== 'function') {
      throw new TypeError('log must be a function');
    }
    this.#log = log;
    this.#timeoutMs = timeoutMs || DEFAULT_TIMEOUT_MS;
    this.#native = addon.open(socketPath, timeoutMs, trustedUid, openOnce, this.#log);
  }

  // Opens a tag. Waits like the constructor.
  tag(name, options) {
    const { blockSize = 0 } = readOptions(options);
    checkString('the name of a tag', name);
    checkInteger('blockSize', blockSize, 0, MAX_BLOCK_SIZE);
    return new Tag({
      client: this, // the tag keeps it, and so its log function
      name,
      native: this.#native.tag(name, blockSize),
      timeoutMs: this.#timeoutMs,
      waitingTags: this.#waitingTags,
    });
  }

  // Closes the client and all its tags. May be called again.
  close() {
    this.#native.close();
    for (const tag of [...this.#waitingTags]) tag.close();
  }
}
if (Symbol.dispose !== undefined) {
  Client.prototype[Symbol.dispose] = function dispose() {
    this.close();
  };
}

module.exports = { Client };
