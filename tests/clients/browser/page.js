// Shared code of the pages: the task, the result, and every error that a client reports.

export const errors = [];
for (const level of ["error", "warn"]) {
  const report = console[level];
  console[level] = (...parts) => {
    errors.push(parts.map(String).join(" ").slice(0, 500));
    report.apply(console, parts);
  };
}
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("unhandledrejection", (event) => errors.push(`unhandled rejection: ${event.reason}`));

let slowest = 0;

// Runs `action`, and records the longest duration.
export async function measure(action) {
  const began = performance.now();
  const value = await action();
  slowest = Math.max(slowest, performance.now() - began);
  return value;
}

export const parsePayload = (payload) => (typeof payload === "string" ? JSON.parse(payload) : (payload ?? null));

// A client for one person; other clients run on the same page.
export function startPostHog(posthog, task, person, index, options = {}) {
  return posthog.init(
    task.token,
    {
      api_host: task.host,
      persistence: "memory",
      persistence_name: `person-${index}`,
      bootstrap: { distinctID: person.distinct_id, isIdentifiedID: true },
      autocapture: false,
      capture_pageview: false,
      capture_pageleave: false,
      disable_session_recording: true,
      ...options,
    },
    `person${index}`,
  );
}

// Runs the client program and posts the rounds of values that it returns.
export async function run(program) {
  const task = await (await fetch("/task")).json();
  let rounds = [];
  try {
    rounds = await program(task);
  } catch (error) {
    errors.push(`${error}\n${error?.stack}`);
  }
  const body = JSON.stringify({ rounds, errors, slowest_ms: Math.round(slowest) });
  await fetch("/result", { method: "POST", body });
}
