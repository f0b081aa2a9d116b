// OpenFeature's own provider for any service with its remote protocol.
import { OFREPWebProvider } from "@openfeature/ofrep-web-provider";
import { OpenFeature } from "@openfeature/web-sdk";
import { measure, run } from "./page.js";

run(async (task) => {
  const results = [];
  for (const [index, person] of task.persons.entries()) {
    const domain = `person-${index}`;
    const provider = new OFREPWebProvider({
      baseUrl: task.host,
      headers: [["Authorization", `Bearer ${task.token}`]],
      pollInterval: -1,
    });
    const context = { targetingKey: person.distinct_id, groups: person.groups, ...person.properties };
    await measure(() => OpenFeature.setProviderAndWait(domain, provider, context));
    const client = OpenFeature.getClient(domain);
    const values = Object.fromEntries(task.flags.map((key) => [key, client.getBooleanValue(key, false)]));
    const layout = client.getStringDetails("layout", "default");
    values.layout = layout.value;
    results.push({ values, payload: JSON.parse(layout.flagMetadata.payload ?? "null") });
  }
  return [results];
});
