// SPDX-License-Identifier: Apache-2.0
//
// The cost of a claim, beside an addon function that only returns such a value.
//
//   node bench.js SOCKET TAG [ROUNDS]
//
// Prints the median over the rounds, in which the functions take turns. The ids are used up. The
// tag needs a step of some millions: a dry ring would be measured too.
'use strict';

const { randomUUID } = require('node:crypto');
const { addon } = require('./lib/addon.js');
const { Client } = require('./lib/index.js');

const CALLS = 200_000;
const BATCH = 1000;

// A function of its own for each case, so that the compiler sees one callee at each call.
function makeLoop(expression) {
  const body = `let last; for (let i = 0; i < count; ++i) last = ${expression}; return last;`;
  return new Function('orders', 'blocks', 'addon', 'randomUUID', 'ids', 'counter', 'count', body);
}

const CASES = [
  ['floor: an addon function that returns a BigInt', 'addon.floorBigInt()', 1],
  ['claim()', 'orders.claim()', 1],
  ['tryClaim()', 'orders.tryClaim()', 1],
  ['claim() with blockSize 1000', 'blocks.claim()', 1],
  ['floor: an addon function that returns a number', 'addon.floorNumber()', 1],
  ['claimNumber()', 'orders.claimNumber()', 1],
  [`claimInto() of ${BATCH}, per id`, 'orders.claimInto(ids)', BATCH],
  ['Atomics.add() of a BigInt64Array', 'Atomics.add(counter, 0, 1n)', 1],
  ['crypto.randomUUID()', 'randomUUID()', 1],
].map(([name, expression, batch]) => ({ name, batch, run: makeLoop(expression), costs: [] }));

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

function main([socketPath, tagName, roundsText = '9']) {
  if (tagName === undefined) {
    console.error('usage: bench.js SOCKET TAG [ROUNDS]');
    process.exitCode = 2;
    return;
  }
  const client = new Client({ socketPath, timeoutMs: 5000 });
  const orders = client.tag(tagName);
  const blocks = client.tag(tagName, { blockSize: 1000 });
  const ids = new BigUint64Array(BATCH);
  const counter = new BigInt64Array(new SharedArrayBuffer(8));
  const rounds = Number(roundsText);
  for (let round = -1; round < rounds; ++round) {
    for (const { batch, run, costs } of CASES) {
      const count = batch === 1 ? CALLS : CALLS / 100;
      const startedAt = process.hrtime.bigint();
      run(orders, blocks, addon, randomUUID, ids, counter, count);
      const cost = Number(process.hrtime.bigint() - startedAt) / (count * batch);
      if (round >= 0) costs.push(cost); // the first one compiles
    }
  }
  client.close();

  let floor;
  for (const { name, costs } of CASES) {
    const cost = median(costs);
    if (name.startsWith('floor')) floor = cost;
    const ratio = (cost / floor).toFixed(2);
    console.log(`${name.padEnd(48)} ${cost.toFixed(1).padStart(8)} ns   ${ratio} x floor`);
  }
}

main(process.argv.slice(2));
