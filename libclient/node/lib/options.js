// SPDX-License-Identifier: Apache-2.0
'use strict';

// Checks of arguments. What the C library refuses by itself is left to it.

const { invalid } = require('./errors.js');

const MAX_TIMEOUT_MS = 3_600_000;

function readOptions(options) {
  if (options === undefined) return {};
  if (options === null || typeof options !== 'object') {
    throw new TypeError('the options must be an object');
  }
  return options;
}

// A whole number from `least` to `most`, or undefined.
function checkInteger(name, value, least, most) {
  if (value === undefined) return;
  if (typeof value !== 'number') throw new TypeError(`${name} must be a number`);
  if (!Number.isInteger(value) || value < least || value > most) {
    throw invalid(`${name} must be a whole number from ${least} to ${most}, got ${value}`);
  }
}

// A string that the C library can take as it is.
function checkString(name, value) {
  if (typeof value !== 'string') throw new TypeError(`${name} must be a string`);
  if (value.includes('\0')) throw invalid(`${name} must not contain a zero byte`);
  if (/\p{Surrogate}/u.test(value)) throw invalid(`${name} must be valid Unicode`);
}

function checkTimeout(value) {
  checkInteger('timeoutMs', value, 0, MAX_TIMEOUT_MS);
}

module.exports = { checkInteger, checkString, checkTimeout, readOptions };
