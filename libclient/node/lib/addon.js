// SPDX-License-Identifier: Apache-2.0
'use strict';

// Loads the addon: $IDCLIENT_NODE_ADDON, else the one of the package for this platform.

const path = require('node:path');
const { makeError } = require('./errors.js');
const { version } = require('../package.json');

const platform = `${process.platform}-${process.arch}`;
const file = process.env.IDCLIENT_NODE_ADDON
  ? path.resolve(process.env.IDCLIENT_NODE_ADDON)
  : path.join(__dirname, '..', 'prebuilt', platform, 'idclient.node');

function load() {
  try {
    return require(file);
  } catch (cause) {
    const [why] = cause.message.split('\n', 1);
    const hint = 'build it with libclient/node/build.sh, or set IDCLIENT_NODE_ADDON';
    throw new Error(`idclient: cannot load the addon for ${platform}: ${why}; ${hint}`, {
      cause,
    });
  }
}

const addon = load();
if (addon.version() !== version) {
  throw new Error(
    `idclient: the package has version ${version}, but libidclient.so.0 beside ${file} has ` +
      `version ${addon.version()}; install both from one release`,
  );
}
addon.setErrorFactory(makeError);

module.exports = { addon, version };
