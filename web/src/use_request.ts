// Loads data for a view, and cancels the request when its inputs change or the view is left.
import { useCallback, useEffect, useState } from "preact/hooks";

export interface Loaded<T> {
  data: T | null;
  error: Error | null;
  isLoading: boolean;
  reload: () => void;
}

/** Calls `load` again whenever one of `inputs` changes. The data of the previous inputs stay until the new ones arrive. */
export function useRequest<T>(load: (signal: AbortSignal) => Promise<T> | null, inputs: unknown[]): Loaded<T> {
  const [state, setState] = useState<{ data: T | null; error: Error | null; isLoading: boolean }>({ data: null, error: null, isLoading: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    const loading = load(controller.signal);
    if (loading === null) {
      setState({ data: null, error: null, isLoading: false });
      return;
    }
    setState((previous) => ({ ...previous, isLoading: true }));
    loading.then(
      (data) => {
        if (!controller.signal.aborted) setState({ data, error: null, isLoading: false });
      },
      (error) => {
        if (!controller.signal.aborted) setState({ data: null, error, isLoading: false });
      },
    );
    return () => controller.abort();
  }, [...inputs, round]);
  const reload = useCallback(() => setRound((previous) => previous + 1), []);
  return { ...state, reload };
}

/** The value, once it has not changed for `milliseconds`. */
export function useSettled<T>(value: T, milliseconds: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [JSON.stringify(value)]);
  return settled;
}
