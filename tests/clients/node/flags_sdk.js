// The PostHog adapter of the Flags SDK. Its client is private and ends once its events are sent.
const { evaluateAll, load, run, task } = require("./program.js");

run(async () => {
  const { createPostHogAdapter } = load("@flags-sdk/posthog");
  const adapter = createPostHogAdapter({
    postHogKey: task.token,
    postHogOptions: { host: task.host, flushInterval: 500 },
  });
  const decide = (kind, key, distinctId) => kind.decide({ key, entities: { distinctId } });
  const results = await evaluateAll(
    (key, id, options) => decide(adapter.featureFlagValue(options), key, id),
    (key, id, options) => decide(adapter.featureFlagPayload((payload) => payload, options), key, id),
  );
  return [results];
});
