// One operation: what it does, who may call it, its parameters, its body, its responses.
import { useContext, useState } from "preact/hooks";
import { Code } from "../components/basics";
import { buildLink } from "../router";
import { type ApiResponse, type Entry, type Media, type Parameter, Reference } from "./document";
import { findExample } from "./request";
import { SchemaTree, TypeWords } from "./schema";
import { Deprecated, Method, Path, Text } from "./text";
import { TryIt } from "./try_it";

/** The sentences of a description about keys and scopes, which are shown apart. */
const ACCESS = /(?:Scope: [^.]*\.|The scope `[^`]+` is (?:accepted|required) too\.|Any key\.|No API key is required\.)(?=\s|$)/g;

function Parameters({ parameters }: { parameters: Parameter[] }) {
  return (
    <section>
      <h2>Parameters</h2>
      <table class="list parameters">
        <thead><tr><th scope="col">Name</th><th scope="col">In</th><th scope="col">Type</th><th scope="col">Description</th></tr></thead>
        <tbody>
          {parameters.map((parameter) => (
            <tr key={`${parameter.in} ${parameter.name}`}>
              <th scope="row"><code>{parameter.name}</code>{parameter.required && <span class="required">required</span>}{parameter.deprecated && <Deprecated />}</th>
              <td>{parameter.in}</td>
              <td><TypeWords schema={parameter.schema ?? true} isFull /></td>
              <td>{parameter.description && <Text text={parameter.description} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function MediaContent({ type, media, isExampleShown }: { type: string; media: Media; isExampleShown: boolean }) {
  const example = findExample(useContext(Reference), media);
  return (
    <div class="media">
      <p class="note"><code>{type}</code></p>
      {isExampleShown && example !== "" && <Code text={example} label={`Example of ${type}`} />}
      {media.schema !== undefined && <SchemaTree schema={media.schema} />}
    </div>
  );
}

function RequestBody({ body }: { body: NonNullable<Entry["operation"]["requestBody"]> }) {
  return (
    <section>
      <h2>Request body{body.required && <span class="required">required</span>}</h2>
      {body.description && <p><Text text={body.description} /></p>}
      {Object.entries(body.content).map(([type, media]) => <MediaContent key={type} type={type} media={media} isExampleShown />)}
    </section>
  );
}

function ResponseHeaders({ headers }: { headers: NonNullable<ApiResponse["headers"]> }) {
  const api = useContext(Reference);
  return (
    <ul class="parts">
      {Object.entries(headers).map(([name, header]) => {
        const { description, schema } = header.$ref ? { ...api.resolve<typeof header>(header.$ref), ...header } : header;
        return <li key={name}><div class="part"><span class="leaf">header <code>{name}</code></span><TypeWords schema={schema ?? true} /></div>{description && <p class="part-text"><Text text={description} /></p>}</li>;
      })}
    </ul>
  );
}

function Links({ links }: { links: NonNullable<ApiResponse["links"]> }) {
  const { entries } = useContext(Reference);
  return (
    <div>
      <h3>Next</h3>
      <ul class="links">
        {Object.entries(links).map(([name, { operationId = "", parameters = {} }]) => (
          <li key={name}>
            <a href={buildLink("operation", operationId)}>{entries.get(operationId)?.summary ?? operationId}</a>
            {Object.entries(parameters).map(([parameter, value]) => <span key={parameter}> <code>{parameter}</code> = <code>{String(value)}</code></span>)}
          </li>
        ))}
      </ul>
    </div>
  );
}

function ResponseRow({ status, response }: { status: string; response: ApiResponse }) {
  const [isOpen, setOpen] = useState(status.startsWith("2"));
  const { description = "", headers, content, links } = response;
  const hasContent = content !== undefined || headers !== undefined || links !== undefined;
  const label = <span class={status < "3" ? "state on" : "state off"}>{status}</span>;
  return (
    <li>
      <div class="part">
        {hasContent ? <button type="button" class="toggle" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{label}</button> : <span class="leaf">{label}</span>}
        <span><Text text={description} />{response["x-may-be-empty"] && " The body may be empty."}</span>
      </div>
      {isOpen && hasContent && (
        <div class="response-content">
          {headers && <ResponseHeaders headers={headers} />}
          {Object.entries(content ?? {}).map(([type, media]) => <MediaContent key={type} type={type} media={media} isExampleShown={media.example !== undefined} />)}
          {links && <Links links={links} />}
        </div>
      )}
    </li>
  );
}

export function OperationView({ entry }: { entry: Entry }) {
  const { operation, method, path, summary, takesKey } = entry;
  const text = operation.description ?? "";
  const access = (text.match(ACCESS) ?? [takesKey ? "Any key." : "No API key is required."]).join(" ");
  const description = text.replace(ACCESS, "").replace(/\s+/g, " ").trim();
  return (
    <>
      <header class="operation-header">
        <h1 tabIndex={-1}>{summary} {operation.deprecated && <Deprecated />}</h1>
        <p class="address"><Method method={method} /><Path path={path} /></p>
        {description !== "" && <p><Text text={description} /></p>}
        <p class="access"><span><Text text={access} /></span><small>{entry.tag} · <code>{entry.id}</code></small></p>
      </header>
      <TryIt entry={entry} />
      {operation.parameters && <Parameters parameters={operation.parameters} />}
      {operation.requestBody && <RequestBody body={operation.requestBody} />}
      <section>
        <h2>Responses</h2>
        <ul class="responses">{Object.entries(operation.responses).map(([status, response]) => <ResponseRow key={status} status={status} response={response} />)}</ul>
      </section>
    </>
  );
}
