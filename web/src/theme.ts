// Dark or light: that of the system, or the one that the switch chose.
import { effect, signal } from "@preact/signals";

const ITEM = "pennon.theme";
export type Theme = "system" | "light" | "dark";
export const THEMES: Theme[] = ["system", "light", "dark"];

const stored = localStorage.getItem(ITEM) as Theme | null;
export const theme = signal<Theme>(stored && THEMES.includes(stored) ? stored : "system");

effect(() => {
  if (theme.value === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem(ITEM);
  } else {
    document.documentElement.dataset.theme = theme.value;
    localStorage.setItem(ITEM, theme.value);
  }
});
