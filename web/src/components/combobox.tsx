// A text field with suggestions from the server (the combobox pattern of the ARIA authoring practices). Free text is permitted.
import { useEffect, useId, useRef, useState } from "preact/hooks";

export interface Suggestion {
  value: string;
  note?: string;
}

interface ComboboxProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  /** Suggestions for the typed text. */
  suggest: (text: string, signal: AbortSignal) => Promise<Suggestion[]>;
  placeholder?: string;
  isLabelHidden?: boolean;
  /** Called with Enter, when no suggestion is chosen. */
  onEnter?: (value: string) => void;
  onBackspace?: () => void;
  id?: string;
}

const WAIT_MS = 120;
const MOST = 50;

/** Those that begin with the typed text come first. */
function sortSuggestions(found: Suggestion[], text: string): Suggestion[] {
  const begins = ({ value }: Suggestion) => (value.toLowerCase().startsWith(text.toLowerCase()) ? 0 : 1);
  return [...found].sort((one, other) => begins(one) - begins(other)).slice(0, MOST);
}

export function Combobox({ label, value, onChange, suggest, placeholder, isLabelHidden, onEnter, onBackspace }: ComboboxProps) {
  const id = useId();
  const [isOpen, setOpen] = useState(false);
  const [suggestions, setSuggestions] = useState<Suggestion[]>([]);
  const [active, setActive] = useState(-1);
  const list = useRef<HTMLUListElement>(null);

  useEffect(() => {
    if (!isOpen) return;
    const controller = new AbortController();
    const timer = setTimeout(() => {
      suggest(value, controller.signal).then(
        (found) => {
          if (!controller.signal.aborted) setSuggestions(sortSuggestions(found, value));
        },
        () => {
          if (!controller.signal.aborted) setSuggestions([]);
        },
      );
    }, WAIT_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [isOpen, value]);

  useEffect(() => list.current?.children[active]?.scrollIntoView({ block: "nearest" }), [active]);

  const close = () => {
    setOpen(false);
    setActive(-1);
  };
  const choose = (chosen: string) => {
    onChange(chosen);
    onEnter?.(chosen);
    close();
  };
  const handleKey = (event: KeyboardEvent) => {
    const last = suggestions.length - 1;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!isOpen) setOpen(true);
      else setActive(event.key === "ArrowDown" ? Math.min(last, active + 1) : Math.max(-1, active - 1));
    } else if (event.key === "Enter") {
      if (isOpen && active >= 0 && suggestions[active]) {
        event.preventDefault();
        choose(suggestions[active].value);
      } else if (onEnter && value !== "") {
        event.preventDefault();
        onEnter(value);
        close();
      } else {
        close();
      }
    } else if (event.key === "Escape" && isOpen) {
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (event.key === "Backspace" && value === "") {
      onBackspace?.();
    }
  };
  const isShown = isOpen && suggestions.length > 0;
  return (
    <div class="combobox">
      <label for={id} class={isLabelHidden ? "for-readers" : "label"}>{label}</label>
      <input
        id={id} type="text" role="combobox" autoComplete="off" spellcheck={false} aria-expanded={isShown} aria-autocomplete="list"
        aria-controls={`${id}-list`} aria-activedescendant={active >= 0 ? `${id}-${active}` : undefined} placeholder={placeholder} value={value}
        onInput={(event) => {
          onChange(event.currentTarget.value);
          setOpen(true);
          setActive(-1);
        }}
        onClick={() => setOpen(true)} onBlur={close} onKeyDown={handleKey}
      />
      <ul id={`${id}-list`} role="listbox" aria-label={label} ref={list} hidden={!isShown}>
        {suggestions.map((one, index) => (
          <li
            key={one.value} id={`${id}-${index}`} role="option" aria-selected={index === active}
            onMouseDown={(event) => {
              event.preventDefault();
              choose(one.value);
            }}
          >
            <span>{one.value}</span>
            {one.note && <small>{one.note}</small>}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Several values, each entered with Enter. */
export function ValueList({ label, values, onChange, suggest }: { label: string; values: string[]; onChange: (values: string[]) => void; suggest: ComboboxProps["suggest"] }) {
  const [text, setText] = useState("");
  const add = (value: string) => {
    if (value.trim() !== "" && !values.includes(value)) onChange([...values, value]);
    setText("");
  };
  return (
    <div class="value-list" onFocusOut={(event) => !event.currentTarget.contains(event.relatedTarget as Node | null) && add(text)}>
      {values.map((value) => (
        <span key={value} class="token">
          {value}
          <button type="button" aria-label={`Remove ${value}`} onClick={() => onChange(values.filter((one) => one !== value))}>×</button>
        </span>
      ))}
      <Combobox
        label={label} isLabelHidden value={text} onChange={setText} onEnter={add} suggest={suggest}
        placeholder={values.length === 0 ? "value, then Enter" : "another value"} onBackspace={() => onChange(values.slice(0, -1))}
      />
    </div>
  );
}
