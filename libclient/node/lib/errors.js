// SPDX-License-Identifier: Apache-2.0
'use strict';

// A failure of the library. `status` is a status of the C API without its prefix, and `retryable`
// says whether the same call may succeed later.
class IdClientError extends Error {
  constructor(status, message, retryable = false) {
    super(message);
    this.status = status;
    this.code = `IDCLIENT_${status}`;
    this.retryable = retryable;
  }
}
Object.defineProperty(IdClientError.prototype, 'name', {
  value: 'IdClientError',
  writable: true,
  configurable: true,
});

function invalid(message) {
  return new IdClientError('INVALID', message);
}

// Makes the errors that the addon throws. `detail` is the id of a NUMBER_RANGE, and the number of
// ids that a failed batch has claimed.
function makeError(status, message, retryable, detail) {
  if (status === 'NUMBER_RANGE') {
    const error = new RangeError(message);
    Error.captureStackTrace(error, makeError);
    error.code = 'IDCLIENT_NUMBER_RANGE';
    error.id = detail;
    return error;
  }
  const error = new IdClientError(status, message, retryable);
  Error.captureStackTrace(error, makeError); // begins with the call that failed
  if (typeof detail === 'number') error.claimed = detail;
  return error;
}

module.exports = { IdClientError, invalid, makeError };
