// PostHog's OpenFeature provider for web pages, over the newest posthog-js.
import { OpenFeature } from "@openfeature/web-sdk";
import { PostHogWebProvider } from "@posthog/openfeature-web-provider";
import posthog from "posthog-js";
import { measure, run, startPostHog } from "./page.js";

// The provider loads flags itself, once it has the context.
const options = { advanced_disable_feature_flags_on_first_load: true };

run(async (task) => {
  const results = [];
  for (const [index, person] of task.persons.entries()) {
    const domain = `person-${index}`;
    const context = { targetingKey: person.distinct_id, groups: person.groups, ...person.properties };
    const provider = new PostHogWebProvider(startPostHog(posthog, task, person, index, options));
    await measure(() => OpenFeature.setProviderAndWait(domain, provider, context));
    const client = OpenFeature.getClient(domain);
    const values = Object.fromEntries(task.flags.map((key) => [key, client.getBooleanValue(key, false)]));
    values.layout = client.getStringValue("layout", "default");
    results.push({ values, payload: client.getObjectValue("layout", {}) });
  }
  for (let number = 0; number < task.events; number++) posthog.person0.capture(task.event, { number });
  return [results];
});
