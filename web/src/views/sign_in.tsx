// Sign in with a personal API key, which is kept for this tab; then the choice of the project.
import { useState } from "preact/hooks";
import { baseAddress, keyRejected } from "../api/client";
import { chooseProject, explainSignInError, session, signIn, signOut } from "../session";
import { Code } from "../components/basics";

export function SignIn({ problem }: { problem: string | null }) {
  const [text, setText] = useState("");
  const [error, setError] = useState<string | null>(problem);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(text.trim());
    } catch (failure) {
      setError(explainSignInError(failure));
    } finally {
      setBusy(false);
    }
  };
  const shown = error ?? keyRejected.value;
  return (
    <main class="sign-in" id="content">
      <h1 class="brand"><span aria-hidden="true" class="flag-mark" />Pennon</h1>
      <form onSubmit={submit}>
        <label class="field">
          <span>Personal API key</span>
          <input
            type="password" name="key" autoComplete="off" required placeholder="phx_…" value={text} autoFocus
            onInput={(event) => setText(event.currentTarget.value)} aria-describedby={shown ? "sign-in-error" : undefined}
          />
        </label>
        <button type="submit" class="primary" disabled={isBusy}>Sign in</button>
      </form>
      {shown && <p class="box error" role="alert" id="sign-in-error">{shown}</p>}
      <p>The key stays in this tab until it is closed. It is sent to {baseAddress()} and to no other address.</p>
      <p>The first start of <code>pennon serve</code> prints a key. This command creates another one:</p>
      <Code text="pennon keys create --label console" label="Command that creates a key" />
    </main>
  );
}

export function ChooseProject() {
  const [id, setId] = useState("");
  const [error, setError] = useState<string | null>(null);
  const choose = (chosen: number) => chooseProject(chosen).catch((failure: Error) => setError(failure.message));
  const projects = session.value?.projects ?? [];
  return (
    <main class="sign-in" id="content">
      <h1>Choose a project</h1>
      {projects.length > 0 ? (
        <ul class="projects">
          {projects.map((one) => <li key={one.id}><button type="button" onClick={() => choose(one.id)}>{one.name} <small>{one.id}</small></button></li>)}
        </ul>
      ) : (
        <form onSubmit={(event) => { event.preventDefault(); choose(Number(id)); }}>
          <p>This key lists no projects: it lacks the scope project:read, or its owner has none.</p>
          <label class="field"><span>Id of the project</span><input type="number" min={1} required value={id} onInput={(event) => setId(event.currentTarget.value)} /></label>
          <button type="submit" class="primary">Open</button>
        </form>
      )}
      {error && <p class="box error" role="alert">{error}</p>}
      <button type="button" onClick={signOut}>Sign out</button>
    </main>
  );
}
