// Shared code of the programs: the task on standard input, the result as the last line of standard output.
const { readFileSync } = require("node:fs");
const { createRequire } = require("node:module");

const task = JSON.parse(readFileSync(0, "utf8"));
const load = createRequire(`${task.packages}/package.json`);
const errors = [];
let slowest = 0;

// Runs `action`, and records the longest duration.
async function measure(action) {
  const began = performance.now();
  const value = await action();
  slowest = Math.max(slowest, performance.now() - began);
  return value;
}

const parsePayload = (payload) => (typeof payload === "string" ? JSON.parse(payload) : (payload ?? null));

// Evaluates every flag for every person.
async function evaluateAll(getValue, getPayload) {
  const results = [];
  for (const person of task.persons) {
    const options = { groups: person.groups, personProperties: person.properties };
    const values = {};
    for (const key of task.flags) {
      values[key] = (await measure(() => getValue(key, person.distinct_id, options))) ?? null;
    }
    const payload = await measure(() => getPayload("layout", person.distinct_id, options));
    results.push({ values, payload: parsePayload(payload) });
  }
  return results;
}

// Runs the program, which returns rounds of values.
async function run(program) {
  let rounds = [];
  try {
    rounds = await program();
  } catch (error) {
    errors.push(String(error?.stack ?? error));
  }
  console.log(JSON.stringify({ rounds, errors, slowest_ms: Math.round(slowest) }));
}

module.exports = { evaluateAll, errors, load, measure, parsePayload, run, task };
