//! Builds the result of flag impact.

use pennon_filters::dates::zone::utc_text;
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Value, json};

use super::CompiledFlagImpact;
use super::comparison::{Comparison, Estimation};
use super::counts::{FlagImpactCounts, VariantCounts};
use super::people::{CONVERTED, EXPOSED, OUTCOME, SEVERAL_VARIANTS, VARIANT};
use crate::inference::posterior::{Posterior, chance_to_be_largest};
use crate::inference::sample_ratio::{EXPECTED_PERSONS_MIN, SampleRatioTest};
use crate::kinds::flag_impact::PERSONS_PATH;
use crate::kinds::flag_impact::limits;
use crate::kinds::flag_impact::metric::Metric;
use crate::kinds::flag_impact::query::{FlagImpactQuery, InferenceMethod};
use crate::kinds::insight::InsightQuery;
use crate::url::{push_pair, push_value};

/// A variant with its name.
type NamedCounts<'a> = (&'a str, &'a VariantCounts);

/// Builds the result.
pub(super) fn build(
    impact: &CompiledFlagImpact,
    counts: &FlagImpactCounts,
    work: &WorkBudget<'_>,
) -> CalcResult<Value> {
    let query = &impact.query;
    let unseen = VariantCounts::default();
    let control = choose_control(query, counts);
    let variants = order_variants(query, counts, &control, &unseen);
    let estimation =
        Estimation { is_rate: query.metric.is_rate(), method: query.method, level: query.confidence_level };
    let sample_ratio = SampleRatio::new(query, counts);
    let links = PeopleLinks::new(impact, variants.len());
    let posteriors: Vec<Option<Posterior>> =
        variants.iter().map(|(_, counts)| estimation.posterior(counts)).collect();
    let control_counts = counts.variants.get(&control).unwrap_or(&unseen);
    let mut rows = Vec::new();
    for (index, (name, own)) in variants.iter().copied().enumerate() {
        work.check()?;
        let is_control = name == control;
        let comparison = if is_control { None } else { estimation.compare(own, control_counts) };
        let verdict = if is_control {
            None
        } else {
            let control = (control.as_str(), control_counts);
            Some(verdict(query, (name, own), control, comparison.as_ref(), &sample_ratio))
        };
        let best = (query.method == InferenceMethod::Bayesian)
            .then(|| chance_to_be_best(&posteriors, index))
            .flatten();
        rows.push(variant_json(estimation, (name, own, is_control), comparison, best, verdict, &links));
    }
    let exposed: u64 = counts.variants.values().map(|own| own.exposed).sum();
    Ok(json!({
        "flag_key": query.flag.key,
        "metric": if matches!(query.metric, Metric::Funnel(_)) { "funnel" } else { "trend" },
        "measure": if estimation.is_rate { "rate" } else { "mean" },
        "actors": if query.flag.group_type_index.is_some() { "groups" } else { "persons" },
        "exposure": query.exposure.name(),
        "exposure_event": query.exposure.event(),
        "method": query.method.name(),
        "confidence_level": query.confidence_level,
        "minimum_sample": query.minimum_sample,
        "date_from": utc_text(&impact.range.from),
        "date_to": utc_text(&impact.range.to),
        "control": control,
        "exposed": exposed,
        "several_variants": {
            "exposed": counts.several,
            "persons_url": links.url(&[(OUTCOME, SEVERAL_VARIANTS)]),
        },
        "sample_ratio": sample_ratio.to_json(),
        "variants": rows,
    }))
}

/// The control: the requested one, else `control`, `false`, or the first variant.
fn choose_control(query: &FlagImpactQuery, counts: &FlagImpactCounts) -> String {
    if let Some(control) = &query.control {
        return control.clone();
    }
    let known = || query.flag.variants.iter().map(|variant| &variant.key).chain(counts.variants.keys());
    let named = ["control", "false"].into_iter().find(|name| known().any(|variant| variant == name));
    named.map(str::to_owned).or_else(|| known().next().cloned()).unwrap_or_else(|| "control".to_owned())
}

/// The variants of a result in their order: the control, then those of the flag, then others by name.
fn order_variants<'a>(
    query: &FlagImpactQuery,
    counts: &'a FlagImpactCounts,
    control: &'a str,
    unseen: &'a VariantCounts,
) -> Vec<NamedCounts<'a>> {
    let mut rows: Vec<NamedCounts<'a>> =
        counts.variants.iter().map(|(name, counts)| (name.as_str(), counts)).collect();
    if !counts.variants.contains_key(control) {
        rows.push((control, unseen));
    }
    // Stable: others stay ordered by name.
    rows.sort_by_key(|(name, _)| (*name != control, query.flag.position(name)));
    rows
}

/// The probability that a variant is the best of those with a posterior distribution.
fn chance_to_be_best(posteriors: &[Option<Posterior>], index: usize) -> Option<f64> {
    posteriors.get(index)?.as_ref()?;
    let position = posteriors.iter().take(index).flatten().count();
    let known: Vec<Posterior> = posteriors.iter().flatten().copied().collect();
    (known.len() > 1).then(|| chance_to_be_largest(&known, position))
}

/// A verdict: its name, and a sentence.
type Verdict = (&'static str, String);

fn verdict(
    query: &FlagImpactQuery,
    (name, own): NamedCounts<'_>,
    (control_name, control): NamedCounts<'_>,
    comparison: Option<&Comparison>,
    sample_ratio: &SampleRatio,
) -> Verdict {
    let least = query.minimum_sample;
    if own.exposed < least || control.exposed < least {
        let sentence = format!(
            "No verdict yet: {} saw {name} and {} saw {control_name}, and {least} of each are needed.",
            own.exposed, control.exposed
        );
        return ("too_few_exposed", sentence);
    }
    if sample_ratio.is_mismatch() {
        let sentence = "No verdict: the variants do not have as many persons as the flag's split gives them, so the \
                        difference may come from persons that are missing. Find the cause first.";
        return ("sample_ratio_mismatch", sentence.to_owned());
    }
    // Rounded, so that 0.57 is 57%.
    let level = (1e4 * query.confidence_level).round() / 1e2;
    let interval = match query.method {
        InferenceMethod::Bayesian => format!("{level}% credible interval of the difference"),
        InferenceMethod::Frequentist => format!("{level}% confidence sequence of the difference"),
    };
    match comparison.and_then(|comparison| comparison.deciding_interval(query.method)) {
        Some((low, _)) if low > 0.0 => {
            ("higher", format!("{name} is higher than {control_name}: the {interval} is above 0."))
        }
        Some((_, high)) if high < 0.0 => {
            ("lower", format!("{name} is lower than {control_name}: the {interval} is below 0."))
        }
        Some(_) => (
            "no_difference_shown",
            format!("No difference between {name} and {control_name} is shown: the {interval} contains 0."),
        ),
        None => (
            "no_difference_shown",
            format!("No difference between {name} and {control_name} is shown: their numbers do not vary."),
        ),
    }
}

fn variant_json(
    estimation: Estimation,
    (name, counts, is_control): (&str, &VariantCounts, bool),
    comparison: Option<Comparison>,
    chance_to_be_best: Option<f64>,
    verdict: Option<Verdict>,
    links: &PeopleLinks,
) -> Value {
    let mut row = json!({
        "variant": name,
        "is_control": is_control,
        "exposed": counts.exposed,
        "converted": counts.converted,
    });
    row[if estimation.is_rate { "rate" } else { "mean" }] = json!(estimation.estimate(counts));
    if !estimation.is_rate {
        row["sum"] = json!(counts.numbers.sum());
        row["standard_deviation"] = json!(counts.numbers.variance().sqrt());
    }
    row["interval"] = json!(estimation.interval(counts));
    row["chance_to_be_best"] = json!(chance_to_be_best);
    row["comparison"] = comparison.map_or(Value::Null, |comparison| {
        json!({
            "difference": comparison.difference,
            "difference_interval": comparison.difference_interval,
            "relative_difference": comparison.relative_difference,
            "relative_interval": comparison.relative_interval,
            "p_value": comparison.p_value,
            "chance_to_win": comparison.chance_to_win,
            "always_valid_p_value": comparison.always_valid_p_value,
            "always_valid_interval": comparison.always_valid_interval,
        })
    });
    let (verdict, sentence) = verdict.unzip();
    row["verdict"] = json!(verdict);
    row["sentence"] = json!(sentence);
    row["exposed_persons_url"] = links.url(&[(VARIANT, name), (OUTCOME, EXPOSED)]);
    row["converted_persons_url"] = links.url(&[(VARIANT, name), (OUTCOME, CONVERTED)]);
    row
}

/// The check of the sample ratio, or why there is none.
struct SampleRatio {
    /// The variants that are compared, and how many saw them.
    observed: Vec<(String, u64)>,
    outcome: Result<SampleRatioTest, String>,
}

impl SampleRatio {
    fn new(query: &FlagImpactQuery, counts: &FlagImpactCounts) -> Self {
        let flag = &query.flag;
        let expected = flag.variants.iter().filter_map(|variant| {
            let exposed = counts.variants.get(&variant.key).map_or(0, |counts| counts.exposed);
            Some(((variant.key.clone(), exposed), flag.expected_share(&variant.key)?))
        });
        let (observed, shares): (Vec<(String, u64)>, Vec<f64>) = expected.unzip();
        if let Some(reason) = &flag.no_split_reason {
            return Self { observed, outcome: Err(reason.clone()) };
        }
        if observed.len() < 2 {
            let reason = "The flag gives fewer than two variants a share of the persons.";
            return Self { observed, outcome: Err(reason.to_owned()) };
        }
        let persons: Vec<u64> = observed.iter().map(|(_, persons)| *persons).collect();
        let outcome = SampleRatioTest::new(&persons, &shares).ok_or_else(|| {
            format!("A variant is expected to have fewer than {EXPECTED_PERSONS_MIN} exposures.")
        });
        Self { observed, outcome }
    }

    fn is_mismatch(&self) -> bool {
        self.outcome.as_ref().is_ok_and(SampleRatioTest::is_mismatch)
    }

    fn to_json(&self) -> Value {
        match &self.outcome {
            Err(reason) => json!({"is_checked": false, "reason": reason}),
            Ok(test) => {
                let variants = self.observed.iter().zip(&test.expected).map(|((variant, observed), expected)| {
                    json!({"variant": variant, "exposed": observed, "expected": expected})
                });
                json!({
                    "is_checked": true,
                    "is_mismatch": test.is_mismatch(),
                    "p_value": test.p_value,
                    "chi_square": test.chi_square,
                    "degrees_of_freedom": test.freedom,
                    "variants": variants.collect::<Vec<_>>(),
                })
            }
        }
    }
}

/// The links to the actors behind the numbers.
struct PeopleLinks {
    base: String,
    /// How many links the result has.
    links: usize,
}

impl PeopleLinks {
    /// The links of a result with so many variants: with absolute dates, so that they list the same persons later.
    fn new(impact: &CompiledFlagImpact, variants: usize) -> Self {
        let mut query = impact.query.clone();
        let dates = &mut query.metric.common_mut().dates;
        dates.from = Some(utc_text(&impact.range.from));
        dates.to = Some(utc_text(&impact.range.to));
        dates.explicit = true;
        let mut base = format!("/api/projects/{}/persons/{PERSONS_PATH}/?", impact.project_id);
        for (key, value) in query.to_insight_filters() {
            push_value(&mut base, &key, &value);
        }
        Self { base, links: 2 * variants + 1 }
    }

    /// A link with parameters; null where it would be too long, or all together.
    fn url(&self, parameters: &[(&str, &str)]) -> Value {
        let mut url = self.base.clone();
        parameters.iter().for_each(|(key, value)| push_pair(&mut url, key, value));
        if limits::links_fit(url.len(), self.links) { Value::from(url) } else { Value::Null }
    }
}
