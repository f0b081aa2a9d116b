// Keyboard shortcuts: `g` and a letter opens a view, `/` goes to the search field, `?` lists them.
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { buildLink } from "../router";
import { Dialog } from "./dialog";

const TARGETS: Record<string, [string, string]> = {
  s: ["", "Start"], f: ["flags", "Flags"], i: ["insights", "Insights"], d: ["dashboards", "Dashboards"], l: ["live", "Live events"],
  p: ["persons", "Persons"], a: ["activity", "Activity"], k: ["keys", "Keys"],
};
const isHelpOpen = signal(false);

const isTyping = (target: EventTarget | null) => target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

export function useShortcuts(): void {
  // With the first paint: an effect after it would miss keys that are pressed at once.
  useLayoutEffect(() => {
    let isGoing = false;
    const handle = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      if (isGoing && TARGETS[event.key]) {
        event.preventDefault();
        location.hash = buildLink(TARGETS[event.key][0]);
      } else if (event.key === "/") {
        const search = document.querySelector<HTMLInputElement>("main input[type=search]");
        if (search) event.preventDefault();
        search?.focus();
      } else if (event.key === "?") {
        isHelpOpen.value = true;
      }
      isGoing = event.key === "g";
    };
    addEventListener("keydown", handle);
    return () => removeEventListener("keydown", handle);
  }, []);
}

export function KeyboardHelp() {
  const close = () => { isHelpOpen.value = false; };
  return (
    <>
      <button type="button" class="quiet keyboard" onClick={() => { isHelpOpen.value = true; }} aria-label="Keyboard shortcuts"><kbd>?</kbd></button>
      {isHelpOpen.value && (
        <Dialog title="Keyboard shortcuts" onClose={close}>
          <table>
            <thead><tr><th scope="col">Keys</th><th scope="col">Effect</th></tr></thead>
            <tbody>
              <tr><th scope="row"><kbd>/</kbd></th><td>go to the search field</td></tr>
              {Object.entries(TARGETS).map(([letter, [, title]]) => <tr key={letter}><th scope="row"><kbd>g</kbd> <kbd>{letter}</kbd></th><td>open {title}</td></tr>)}
              <tr><th scope="row"><kbd>Enter</kbd></th><td>add the typed value to a list of values</td></tr>
              <tr><th scope="row"><kbd>Esc</kbd></th><td>close suggestions or a dialog</td></tr>
            </tbody>
          </table>
        </Dialog>
      )}
    </>
  );
}
