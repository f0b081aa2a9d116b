//! `pennon impact`: compares a metric between the persons that saw the variants of a flag.

use chrono::Utc;
use pennon_calculation::calculator::{CacheScope, KeyedQuery};
use pennon_calculation::{Calculator, flag_impact_query};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::http::Fields;
use pennon_core::store::keys::{self, RecordKind};
use pennon_core::store::{Item, Store};
use pennon_eventstore::EventStore;
use pennon_flag_rules::{Flag, is_possible_key};
use serde_json::{Value, json};

use super::{ResolvedQuery, ResultForm, calculate, error_text, load_project, read_file};
use crate::args::Impact;

/// Calculates the impact of the flag of `options` over the tables of `store` and the `events`. Returns the text to print. With
/// `stores_results` the API can use the result.
pub async fn run(
    options: &Impact,
    store: Store,
    events: EventStore,
    stores_results: bool,
) -> Result<String, String> {
    let now = options.now.unwrap_or_else(Utc::now);
    let project = load_project(options.project, &store).await?;
    let flag = find_flag(&store, project.id, &options.flag).await?;
    let (query, _) = flag_impact_query(&flag, &build_request_body(options)?).map_err(|e| e.to_string())?;
    let resolved = ResolvedQuery { project, keyed: KeyedQuery::new(query, CacheScope::Request, None) };
    let app = App::new(store, Clock::Frozen(now));
    let calculator = Calculator::new(&app, events);
    let calculator =
        if options.now.is_some() || !stores_results { calculator.without_cache_writes() } else { calculator };
    let (calculator, measured) = calculator.measured();
    let read = calculator.read(&resolved.project, &[&resolved.keyed]).await.map_err(|e| error_text(&e))?;
    let form = ResultForm { json: options.json, csv: options.csv, stats: options.stats };
    let printed = calculate(form, &resolved, (&calculator, &measured), &read.known, now).await?;
    printed.format_plain(form, &resolved.keyed.query)
}

/// The options as the body of a request to the API.
fn build_request_body(options: &Impact) -> Result<Fields, String> {
    let name = &options.metric;
    let text = read_file(name)?.ok_or_else(|| format!("there is no file {name} with the metric"))?;
    let metric: Value = serde_json::from_str(&text).map_err(|e| format!("{name}: not JSON: {e}"))?;
    let fields = [
        ("query", Some(metric)),
        ("exposure", options.exposure.as_ref().map(|text| json!(text))),
        ("exposure_event", options.exposure_event.as_ref().map(|text| json!(text))),
        ("method", options.method.as_ref().map(|text| json!(text))),
        ("confidence_level", options.confidence_level.map(|level| json!(level))),
        ("minimum_sample", options.minimum_sample.map(|count| json!(count))),
        ("control", options.control.as_ref().map(|text| json!(text))),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let mut fields: Fields = fields.collect();
    if options.date_from.is_some() || options.date_to.is_some() {
        let dates = json!({"date_from": options.date_from, "date_to": options.date_to});
        fields.insert("dateRange".to_owned(), dates);
    }
    Ok(fields)
}

/// The flag with this id or key that is not deleted.
async fn find_flag(store: &Store, project: u64, name: &str) -> Result<Flag, String> {
    let records = &store.records;
    let by_key = if is_possible_key(name) {
        let claim = records.get(&keys::flag_key_live(project, name)).await.map_err(|e| e.to_string())?;
        claim.and_then(|claim| u64::try_from(claim.count).ok())
    } else {
        None
    };
    let record = match by_key.or_else(|| name.parse().ok()) {
        Some(id) => {
            let key = keys::record(project, RecordKind::Flag, id);
            records.get(&key).await.map_err(|e| e.to_string())?
        }
        None => None,
    };
    let decode = |item: Item| item.body::<Flag>().map_err(|e| e.to_string());
    let flag = record.map(decode).transpose()?.filter(|flag| !flag.deleted);
    flag.ok_or_else(|| {
        format!(
            "project {project} has no flag \"{name}\"; a flag is named by its id or its key, as GET \
                 /api/projects/{project}/feature_flags/ lists them"
        )
    })
}
