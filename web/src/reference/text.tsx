// Texts of the document. Their only Markdown is code between backticks.

/** The text with its code spans as elements. */
export function Text({ text }: { text: string }) {
  return <>{text.split(/`([^`]+)`/).map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>;
}

export function Method({ method }: { method: string }) {
  return <span class={`method ${method.toLowerCase()}`}>{method}</span>;
}

/** The path, which may wrap after each slash. */
export function Path({ path }: { path: string }) {
  return <code class="path">{path.split(/(?<=\/)/).flatMap((part) => [part, <wbr />])}</code>;
}

export const Deprecated = () => <span class="state stale">deprecated</span>;
