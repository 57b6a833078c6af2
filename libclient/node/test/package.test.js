// SPDX-License-Identifier: Apache-2.0
//
// The npm package that build.sh has put beside the addon.
'use strict';

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');

const { version } = require('../package.json');

const addon = process.env.IDCLIENT_NODE_ADDON ?? '';
const tarball = path.join(path.dirname(addon), `idclient-${version}.tgz`);

describe('package', { skip: !fs.existsSync(tarball) }, () => {
  let directory;
  before(() => {
    directory = fs.mkdtempSync(path.join(os.tmpdir(), 'idclient-node-'));
    const modules = path.join(directory, 'node_modules');
    fs.mkdirSync(modules);
    execFileSync('tar', ['-xzf', tarball, '-C', modules]);
    fs.renameSync(path.join(modules, 'package'), path.join(modules, 'idclient'));
  });
  after(() => fs.rmSync(directory, { recursive: true, force: true }));

  function run(file, text) {
    fs.writeFileSync(path.join(directory, file), text);
    const env = { ...process.env };
    delete env.IDCLIENT_NODE_ADDON;
    return execFileSync(process.execPath, [file], { cwd: directory, env, encoding: 'utf8' });
  }

  it('loads the addon and library that it brings', () => {
    const output = run('main.cjs', "console.log(require('idclient').version);");
    assert.equal(output, `${version}\n`);
  });

  it('can be imported', () => {
    const output = run(
      'main.mjs',
      "import { Client, IdClientError, version } from 'idclient'; console.log(version);",
    );
    assert.equal(output, `${version}\n`);
  });

  it('refuses a library of another version', () => {
    const file = path.join(directory, 'node_modules/idclient/package.json');
    const text = fs.readFileSync(file, 'utf8');
    fs.writeFileSync(file, text.replace(`"version": "${version}"`, '"version": "0.0.9"'));
    const script = "try { require('idclient') } catch (e) { console.log(e.message) }";
    assert.match(run('main.cjs', script), /0\.0\.9.*install both from one release/);
    fs.writeFileSync(file, text);
  });
});
