// SPDX-License-Identifier: Apache-2.0
//
// idclient: cluster-unique 64-bit ids from the host's idd. index.d.ts documents the API.
'use strict';

const { version } = require('./addon.js');
const { Client } = require('./client.js');
const { IdClientError } = require('./errors.js');
const { IdRange, Tag } = require('./tag.js');

module.exports = { Client, IdClientError, IdRange, Tag, version };
