// posthog-js of any version: flags for each person, then events of one user who logs in.
import { errors, measure, parsePayload, run, startPostHog } from "./page.js";

// Waits for the next response with flags. A new listener is called immediately if flags are loaded already.
function nextFlags(client) {
  return new Promise((resolve) => {
    let isRegistered = false;
    client.onFeatureFlags(() => isRegistered && resolve());
    isRegistered = true;
  });
}

// There are no surveys and no early access features: both call back with an empty list. Version 1.57 has no surveys.
async function checkLists(posthog) {
  for (const name of ["getSurveys", "getEarlyAccessFeatures"]) {
    if (!posthog[name]) continue;
    const [list, context] = await measure(() => new Promise((resolve) => posthog[name]((...given) => resolve(given), true)));
    if (list.length !== 0 || context?.error) errors.push(`${name}: ${JSON.stringify([list, context])}`);
  }
}

run(async (task) => {
  const { default: posthog } = await import(task.module);
  const results = [];
  for (const [index, person] of task.persons.entries()) {
    const client = startPostHog(posthog, task, person, index);
    await measure(() => nextFlags(client));
    client.setPersonPropertiesForFlags(person.properties, false);
    for (const [type, key] of Object.entries(person.groups)) client.group(type, key);
    client.reloadFeatureFlags();
    await measure(() => nextFlags(client));
    const values = Object.fromEntries(task.flags.map((key) => [key, client.getFeatureFlag(key) ?? null]));
    results.push({ values, payload: parsePayload(client.getFeatureFlagPayload("layout")) });
  }
  // As on a typical site: other options keep their defaults.
  posthog.init(task.token, {
    api_host: task.host,
    persistence: "memory",
    bootstrap: { distinctID: `${task.event}-anonymous` },
  });
  posthog.identify(`${task.event}-user`);
  for (let number = 0; number < task.events; number++) posthog.capture(task.event, { number });
  await checkLists(posthog);
  return [results];
});
