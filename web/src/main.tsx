// Starts the console: takes the key from the address or from the tab, and renders.
import { render } from "preact";
import { App } from "./app";
import { route } from "./router";
import { explainSignInError, signIn, signOut, takeKeyFromAddress } from "./session";
import { storedKey } from "./stored_key";
import "./theme";

takeKeyFromAddress();
route.value = { ...route.value, ...(location.hash === "#/" ? { view: "", id: null } : {}) };

async function start(): Promise<void> {
  const place = document.getElementById("console")!;
  const key = storedKey();
  let problem: string | null = null;
  if (key) {
    try {
      await signIn(key);
    } catch (error) {
      problem = explainSignInError(error);
      signOut();
    }
  }
  place.replaceChildren();
  render(<App problem={problem} />, place);
}

void start();
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#key=")) {
    takeKeyFromAddress();
    location.reload();
  }
});
