// Unsaved changes of an editor: leaving it needs a confirmation.
import { useEffect } from "preact/hooks";
import { guardLeaving } from "./router";

export function useUnsaved(hasChanges: boolean, name: string): void {
  useEffect(() => {
    if (!hasChanges) return;
    const stop = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", stop);
    guardLeaving(() => confirm(`Discard the unsaved changes of ${name}?`));
    return () => {
      removeEventListener("beforeunload", stop);
      guardLeaving(null);
    };
  }, [hasChanges, name]);
}
