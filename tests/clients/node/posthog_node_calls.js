// posthog-node evaluates one flag for many users, and sends `$feature_flag_called` for each.
const { errors, load, measure, run, task } = require("./program.js");

run(async () => {
  const { PostHog } = load(task.module);
  const client = new PostHog(task.token, { host: task.host });
  client.on("error", (error) => errors.push(String(error)));
  for (let number = 0; number < task.calls; number++) {
    await measure(() => client.getFeatureFlag(task.flag, `caller-${number}`));
  }
  await client.shutdown();
  return [];
});
