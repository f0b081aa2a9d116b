// Small parts that most views use.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { formatAgo, formatTime } from "../format";
import { hasNavigated } from "../router";

/** The heading of a view, with its actions. It takes the focus after navigation, also from the heading that was there while loading. */
export function ViewHeader({ title, children, detail }: { title: string; children?: ComponentChildren; detail?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (hasNavigated() && document.activeElement === document.body) heading.current?.focus();
  }, []);
  return (
    <header class="view-header">
      <h1 tabIndex={-1} ref={heading}>{title}</h1>
      {detail && <div class="detail">{detail}</div>}
      {children && <div class="actions">{children}</div>}
    </header>
  );
}

/** What went wrong, and what to do next. */
export function ErrorBox({ error, retry }: { error: Error; retry?: () => void }) {
  const isScope = error instanceof ApiError && error.status === 403;
  return (
    <div class="box error" role="alert">
      <p>{error.message}</p>
      {isScope && error.message.includes("scope") && <p>Sign in with a key that has the scope: pennon keys create --label console --scope …</p>}
      {retry && <button type="button" onClick={retry}>Retry</button>}
    </div>
  );
}

export function Loading({ text = "Loading …" }: { text?: string }) {
  return <p class="loading" role="status">{text}</p>;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty">{children}</div>;
}

export function Time({ time }: { time: string | null | undefined }) {
  return time ? <time dateTime={time} title={formatTime(time)}>{formatAgo(time)}</time> : <span>never</span>;
}

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true), () => setCopied(false));
  return <button type="button" class="small" onClick={copy} onBlur={() => setCopied(false)}>{isCopied ? "Copied" : label}</button>;
}

/** A text to copy, such as a command. */
export function Code({ text, label }: { text: string; label: string }) {
  return (
    <div class="code">
      <pre tabIndex={0} aria-label={label}>{text}</pre>
      <CopyButton text={text} />
    </div>
  );
}

/** Buttons of which one is pressed: a choice between few values. */
export function Choice<T extends string>({ label, value, values, onChange }: { label: string; value: T; values: [T, string][]; onChange: (value: T) => void }) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {values.map(([one, name]) => (
        <button key={one} type="button" aria-pressed={one === value} onClick={() => onChange(one)}>{name}</button>
      ))}
    </div>
  );
}

export function Select<T extends string>({ label, value, values, onChange, isHidden }: { label: string; value: T; values: [T, string][]; onChange: (value: T) => void; isHidden?: boolean }) {
  return (
    <label class="field">
      <span class={isHidden ? "for-readers" : ""}>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {values.map(([one, name]) => <option key={one} value={one}>{name}</option>)}
      </select>
    </label>
  );
}

export function Field({ label, value, onInput, ...rest }: { label: string; value: string; onInput: (value: string) => void; placeholder?: string; required?: boolean; pattern?: string; hint?: string; autoFocus?: boolean; name?: string }) {
  const { hint, ...attributes } = rest;
  const id = useId();
  return (
    <div class="field">
      <label class="label" for={id}>{label}</label>
      <input id={id} type="text" autoComplete="off" spellcheck={false} aria-describedby={hint && `${id}-hint`} {...attributes} value={value} onInput={(event) => onInput(event.currentTarget.value)} />
      {hint && <small id={`${id}-hint`}>{hint}</small>}
    </div>
  );
}

/** Links to the previous and next page of a list by offset. */
export function Pager({ count, offset, limit, onChange }: { count: number; offset: number; limit: number; onChange: (offset: number) => void }) {
  if (count <= limit && offset === 0) return null;
  return (
    <nav class="pager" aria-label="Pages">
      <button type="button" disabled={offset === 0} onClick={() => onChange(Math.max(0, offset - limit))}>Previous</button>
      <span>{count === 0 ? 0 : offset + 1}–{Math.min(count, offset + limit)} of {count}</span>
      <button type="button" disabled={offset + limit >= count} onClick={() => onChange(offset + limit)}>Next</button>
    </nav>
  );
}
