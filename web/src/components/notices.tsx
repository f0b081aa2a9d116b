// Notices after a change, with its undo.
import { signal } from "@preact/signals";

interface Notice {
  id: number;
  text: string;
  isError: boolean;
  shownAt: number;
  undo?: () => Promise<void>;
}

const notices = signal<Notice[]>([]);
let lastId = 0;

export function removeNotice(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

/** Shows a notice until it is closed, until the next one replaces it, or until another view is opened later. */
export function showNotice(text: string, undo?: () => Promise<void>): void {
  lastId += 1;
  notices.value = [{ id: lastId, text, isError: false, shownAt: Date.now(), undo }];
}

export function showError(error: unknown): void {
  lastId += 1;
  notices.value = [{ id: lastId, text: error instanceof Error ? error.message : String(error), isError: true, shownAt: Date.now() }];
}

const STAYS_MS = 8000;

addEventListener("hashchange", () => {
  notices.value = notices.value.filter(({ shownAt }) => Date.now() - shownAt < STAYS_MS);
});

async function runUndo(notice: Notice): Promise<void> {
  removeNotice(notice.id);
  try {
    await notice.undo?.();
    showNotice("Undone.");
  } catch (error) {
    showError(error);
  }
}

export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map((notice) => (
        <div key={notice.id} class={notice.isError ? "notice error" : "notice"}>
          <span>{notice.text}</span>
          {notice.undo && <button type="button" onClick={() => runUndo(notice)}>Undo</button>}
          <button type="button" aria-label="Close the notice" onClick={() => removeNotice(notice.id)}>×</button>
        </div>
      ))}
    </div>
  );
}
