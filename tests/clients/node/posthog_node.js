// posthog-node of any version: flags for each person, then events.
const { evaluateAll, errors, load, measure, parsePayload, run, task } = require("./program.js");

// All flags of a person with one request, which version 5 added.
async function evaluateWithOneRequest(client) {
  const results = [];
  for (const person of task.persons) {
    const options = { groups: person.groups, personProperties: person.properties };
    const flags = await measure(() => client.evaluateFlags(person.distinct_id, options));
    const values = Object.fromEntries(task.flags.map((key) => [key, flags.getFlag(key) ?? null]));
    results.push({ values, payload: parsePayload(flags.getFlagPayload("layout")) });
  }
  return results;
}

run(async () => {
  const { PostHog } = load(task.module);
  const client = new PostHog(task.token, { host: task.host });
  client.on("error", (error) => errors.push(String(error)));
  const rounds = [];
  rounds.push(await evaluateAll(
    (key, id, options) => client.getFeatureFlag(key, id, options),
    (key, id, options) => client.getFeatureFlagPayload(key, id, undefined, options),
  ));
  if (client.evaluateFlags) rounds.push(await evaluateWithOneRequest(client));
  for (let number = 0; number < task.events; number++) {
    client.capture({ distinctId: "node", event: task.event, properties: { number } });
  }
  // Until version 4 the function that waits has a different name.
  await measure(() => (client.shutdownAsync ? client.shutdownAsync() : client.shutdown()));
  return rounds;
});
