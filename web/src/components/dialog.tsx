// A modal dialog: the browser keeps the focus inside, closes it with Escape, and returns the focus.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Dialog({ title, onClose, children, isWide }: { title: string; onClose: () => void; children: ComponentChildren; isWide?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => opener?.focus?.();
  }, []);
  return (
    <dialog ref={dialog} class={isWide ? "wide" : ""} aria-label={title} onClose={onClose} onClick={(event) => event.target === dialog.current && onClose()}>
      <div class="dialog-content">
        <header>
          <h2>{title}</h2>
          <button type="button" aria-label="Close" onClick={onClose}>×</button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
