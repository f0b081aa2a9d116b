#!/usr/bin/env node
// Starts the program that the package of this platform contains.
const { spawn } = require("node:child_process");

const name = `pennon-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/pennon`);
} catch {
  console.error(`pennon: the package ${name} is not installed. It is optional: install it by name, or build Pennon from source if there is none for this platform.`);
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends SIGINT to the program too; other signals reach only this process.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`pennon: ${program} does not start: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
