// What an application needs to send its first event, for five SDKs and for curl.
import { useState } from "preact/hooks";
import { baseAddress } from "../api/client";
import { Choice, Code } from "../components/basics";
import { project } from "../session";

type Sdk = "curl" | "browser" | "node" | "python" | "go" | "ruby";
const SDKS: [Sdk, string][] = [["curl", "curl"], ["browser", "Browser"], ["node", "Node.js"], ["python", "Python"], ["go", "Go"], ["ruby", "Ruby"]];

function writeSnippet(sdk: Sdk, token: string, host: string): string {
  switch (sdk) {
    case "browser": return `// npm install posthog-js
import posthog from "posthog-js";

posthog.init("${token}", { api_host: "${host}" });
posthog.capture("first event");`;
    case "node": return `// npm install posthog-node
import { PostHog } from "posthog-node";

const client = new PostHog("${token}", { host: "${host}" });
client.capture({ distinctId: "ada", event: "first event" });
await client.shutdown();`;
    case "python": return `# pip install posthog
from posthog import Posthog

client = Posthog("${token}", host="${host}")
client.capture("first event", distinct_id="ada")
client.shutdown()`;
    case "go": return `// go get github.com/posthog/posthog-go
client, _ := posthog.NewWithConfig("${token}", posthog.Config{Endpoint: "${host}"})
defer client.Close()
client.Enqueue(posthog.Capture{DistinctId: "ada", Event: "first event"})`;
    case "ruby": return `# gem install posthog-ruby
require "posthog"

client = PostHog::Client.new(api_key: "${token}", host: "${host}")
client.capture(distinct_id: "ada", event: "first event")
client.shutdown`;
    default: return `curl -s ${host}/batch/ -H 'Content-Type: application/json' \\
  -d '{"api_key": "${token}", "batch": [{"event": "first event", "distinct_id": "ada"}]}'`;
  }
}

export function Snippets() {
  const [sdk, setSdk] = useState<Sdk>("curl");
  const token = project.value?.api_token || "PROJECT_TOKEN";
  return (
    <>
      <Choice label="SDK" value={sdk} values={SDKS} onChange={setSdk} />
      <Code text={writeSnippet(sdk, token, baseAddress().replace(/\/$/, ""))} label={`First event with ${SDKS.find(([one]) => one === sdk)?.[1]}`} />
    </>
  );
}
