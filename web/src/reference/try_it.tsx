// A form that sends the operation's request to the server of this page.
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { Code, ErrorBox, Field, Select } from "../components/basics";
import { removeStoredKey, storeKey, storedKey } from "../stored_key";
import { type Entry, type Parameter, BASE_ADDRESS, Reference } from "./document";
import { type ApiResult, type FormValues, buildRequest, findExample, nameOf, sendRequest, writeCurl } from "./request";
import { describeType, followReference } from "./words";

/** More optional parameters than these are shown on demand. */
const OPTIONAL_SHOWN = 4;

function KeyField({ value, onInput }: { value: string; onInput: (key: string) => void }) {
  // Stored when it is complete, for the other operations and the console of this tab.
  const store = (key: string) => (key === "" ? removeStoredKey() : storeKey(key));
  return (
    <label class="field">
      <span>Personal API key</span>
      <input type="password" autoComplete="off" spellcheck={false} placeholder="phx_…" value={value}
        onInput={(event) => onInput(event.currentTarget.value.trim())} onChange={(event) => store(event.currentTarget.value.trim())} />
    </label>
  );
}

function ParameterField({ parameter, value, onInput }: { parameter: Parameter; value: string; onInput: (value: string) => void }) {
  const api = useContext(Reference);
  const schema = parameter.schema ?? true;
  const { enum: values } = followReference(api, schema).schema;
  if (values && !parameter.required) {
    return <Select label={parameter.name} value={value} values={["", ...values.map(String)].map((one) => [one, one])} onChange={onInput} />;
  }
  return <Field label={parameter.name} value={value} onInput={onInput} required={parameter.required} placeholder={describeType(api, schema).replaceAll("`", "")} />;
}

interface FieldsProps {
  parameters: Parameter[];
  values: Record<string, string>;
  onInput: (name: string, value: string) => void;
}

function ParameterFields({ parameters, values, onInput }: FieldsProps) {
  const required = parameters.filter((parameter) => parameter.required);
  const optional = parameters.filter((parameter) => !parameter.required);
  const [isOpen, setOpen] = useState(optional.length <= OPTIONAL_SHOWN);
  const shown = isOpen ? [...required, ...optional] : required;
  return (
    <>
      {shown.length > 0 && (
        <div class="fields">
          {shown.map((parameter) => {
            const name = nameOf(parameter);
            return <ParameterField key={name} parameter={parameter} value={values[name] ?? ""} onInput={(value) => onInput(name, value)} />;
          })}
        </div>
      )}
      {optional.length > OPTIONAL_SHOWN && (
        <button type="button" class="toggle" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{optional.length} optional parameters</button>
      )}
    </>
  );
}

function BodyField({ types, values, onChange }: { types: string[]; values: FormValues; onChange: (change: Partial<FormValues>) => void }) {
  return (
    <>
      {types.length > 1 && <Select label="Content type" value={values.mediaType} values={types.map((type) => [type, type])} onChange={(mediaType) => onChange({ mediaType })} />}
      <label class="field">
        <span>Body, {values.mediaType}</span>
        <textarea rows={4} spellcheck={false} value={values.body} onInput={(event) => onChange({ body: event.currentTarget.value })} />
      </label>
    </>
  );
}

const formatSize = (bytes: number) => (bytes < 1000 ? `${bytes} bytes` : `${(bytes / 1000).toFixed(1)} kB`);

function Result({ result }: { result: ApiResult }) {
  const { status, statusText, milliseconds, bytes, mediaType, text, isCut } = result;
  return (
    <div class="result">
      <p role="status"><span class={status < 400 ? "state on" : "state failed"}>{status} {statusText}</span> {Math.round(milliseconds)} ms, {formatSize(bytes)}{mediaType && `, ${mediaType}`}</p>
      {text !== "" && <pre tabIndex={0} role="region" aria-label="Response body">{text}</pre>}
      {isCut && <p class="note">Only the first 100 kB are shown. The command above fetches all of it.</p>}
    </div>
  );
}

function TryForm({ entry }: { entry: Entry }) {
  const api = useContext(Reference);
  const { operation, method, takesKey } = entry;
  const content = operation.requestBody?.content ?? {};
  // Files are for curl; a text area cannot contain them.
  const types = Object.keys(content).filter((type) => !type.startsWith("multipart/"));
  const exampleOf = (type: string) => (content[type] ? findExample(api, content[type]) : "");
  const [values, setValues] = useState<FormValues>(() => ({
    parameters: { "path project_id": "@current" }, mediaType: types[0] ?? "", body: exampleOf(types[0]), key: storedKey() ?? "",
  }));
  const [result, setResult] = useState<ApiResult | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [isSending, setSending] = useState(false);
  const controller = useRef<AbortController | null>(null);
  useEffect(() => () => controller.current?.abort(), []);
  const change = (changed: Partial<FormValues>) => setValues((previous) => ({ ...previous, ...(changed.mediaType && { body: exampleOf(changed.mediaType) }), ...changed }));
  const request = buildRequest(entry, values);
  const send = async (event: Event) => {
    event.preventDefault();
    if (isSending) return;
    controller.current = new AbortController();
    const { signal } = controller.current;
    setSending(true);
    setResult(null);
    setError(null);
    try {
      setResult(await sendRequest(request, signal));
    } catch (failure) {
      if (!signal.aborted) setError(failure instanceof TypeError ? new Error(`No response from ${BASE_ADDRESS}. Check that the server runs, and send the request again.`) : (failure as Error));
    }
    setSending(false);
  };
  return (
    <form class="try-form" onSubmit={send}>
      {takesKey && <KeyField value={values.key} onInput={(key) => change({ key })} />}
      <ParameterFields parameters={(operation.parameters ?? []).filter(({ name }) => name !== "Content-Encoding")} values={values.parameters}
        onInput={(name, value) => change({ parameters: { ...values.parameters, [name]: value } })} />
      {types.length > 0 && <BodyField types={types} values={values} onChange={change} />}
      <Code text={writeCurl(request, takesKey)} label="The request as a curl command" />
      <div class="send">
        {/* Not `disabled`, which would take the focus away. */}
        <button type="submit" class={method === "GET" ? "primary" : "danger"} aria-disabled={isSending}>Send {method} request</button>
        {method !== "GET" && <span class="note">It may change data of the project.</span>}
      </div>
      {error && <ErrorBox error={error} />}
      {result && <Result result={result} />}
    </form>
  );
}

export function TryIt({ entry }: { entry: Entry }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <section class="try-it">
      <h2><button type="button" class="toggle" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>Try it</button></h2>
      {isOpen && <TryForm entry={entry} />}
    </section>
  );
}
