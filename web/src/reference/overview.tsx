// The description of the API, and the operations of each tag.
import { useContext } from "preact/hooks";
import { buildLink } from "../router";
import { BASE_ADDRESS, Reference, type TagEntries } from "./document";
import { Deprecated, Method, Path, Text } from "./text";

function TagSection({ tag: { name, description, entries } }: { tag: TagEntries }) {
  return (
    <section>
      <h2>{name}</h2>
      {description && <p><Text text={description} /></p>}
      <ul class="rows">
        {entries.map(({ id, method, path, summary, operation }) => (
          <li key={id}>
            <a href={buildLink("operation", id)}>
              <Method method={method} /><Path path={path} />
              <span>{summary} {operation.deprecated && <Deprecated />}</span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Overview() {
  const { document, tags } = useContext(Reference);
  return (
    <>
      <h1 tabIndex={-1}>{document.info.title} API</h1>
      {document.info.description && <p class="description"><Text text={document.info.description} /></p>}
      <p class="note">OpenAPI document: <a href={`${BASE_ADDRESS}api/schema?format=json`}>JSON</a>, <a href={`${BASE_ADDRESS}api/schema?format=yaml`}>YAML</a></p>
      {tags.map((tag) => <TagSection key={tag.name} tag={tag} />)}
    </>
  );
}
