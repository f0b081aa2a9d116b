// The picture of a query while it is edited, and the same query for other clients.
import { useState } from "preact/hooks";
import type { QueryNode, QueryResponse } from "../api/types";
import { buildPicture } from "../charts/kinds";
import { Choice, Code, Empty, ErrorBox, Time } from "../components/basics";
import { PictureBox } from "../components/picture";
import { useRequest, useSettled } from "../use_request";
import { calculate } from "./calculate";
import { writeCurl, writeJson, writePython } from "./code";
import { prepareQuery } from "./model";

function ResultState({ response, isLoading, onRefresh }: { response: QueryResponse; isLoading: boolean; onRefresh: () => void }) {
  return (
    <p class="result-state">
      {isLoading ? "Calculating …" : <>Calculated <Time time={response.last_refresh} />{response.is_cached ? ", from the cache" : ""}.</>}
      {" "}<button type="button" class="small quiet" onClick={onRefresh}>Recalculate</button>
    </p>
  );
}

export function QueryResult({ query, name }: { query: QueryNode; name: string }) {
  const settled = useSettled(query, 300);
  const prepared = prepareQuery(settled);
  const [round, setRound] = useState(0);
  const { data, error, isLoading, reload } = useRequest(
    (signal) => (typeof prepared === "string" ? null : calculate(prepared, signal, round > 0 ? "force_blocking" : "blocking").then((response) => ({ response, query: prepared }))),
    [JSON.stringify(prepared), round],
  );
  if (typeof prepared === "string") return <Empty>{prepared}</Empty>;
  if (error) return <ErrorBox error={error} retry={reload} />;
  const picture = data ? buildPicture(data.query, data.response.results) : null;
  const isEmpty = data !== null && Array.isArray(data.response.results) && data.response.results.length === 0;
  return (
    <section class={isLoading ? "result loading-result" : "result"} aria-label="Result" aria-busy={isLoading}>
      {!data && <p class="loading" role="status">Calculating …</p>}
      {isEmpty && <Empty>No event matches in this range.</Empty>}
      {picture && !isEmpty && <PictureBox picture={picture} caption={`Numbers of ${name}`} height={300} isTableOpen />}
      {data && <ResultState response={data.response} isLoading={isLoading} onRefresh={() => setRound(round + 1)} />}
    </section>
  );
}

type Language = "curl" | "python" | "json";
const LANGUAGES: [Language, string][] = [["curl", "curl"], ["python", "Python"], ["json", "JSON"]];

export function QueryCode({ query }: { query: QueryNode }) {
  const [language, setLanguage] = useState<Language>("curl");
  const prepared = prepareQuery(query);
  if (typeof prepared === "string") return null;
  const text = language === "curl" ? writeCurl(prepared) : language === "python" ? writePython(prepared) : writeJson(prepared);
  return (
    <section aria-label="The same query for other clients">
      <h2>The same query elsewhere</h2>
      <Choice label="Language" value={language} values={LANGUAGES} onChange={setLanguage} />
      <Code text={text} label={`The query as ${language}`} />
      {language !== "json" && <p class="note">PENNON_KEY is the environment variable with a personal API key.</p>}
    </section>
  );
}
