//! Lifecycles: for each period, how many active actors are new, returning or resurrecting, and how many became dormant.
//!
//! [`CompiledLifecycle`] holds the compiled query. `partial` counts the statuses of the actors of one partition, partial results
//! add up in any order, and `finish` builds the four series.
//!
//! Must stay true: an event counts only if it matches all series; new, returning and resurrecting actors of a period are together
//! its active actors.

mod people;
mod periods;
mod statuses;

use chrono::DateTime;
use chrono_tz::Tz;
use pennon_filters::dates::range::DateRange;
use pennon_filters::dates::zone::utc_text;
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::actor_blocks::MatchingRows;
use crate::compiler::matcher::Matcher;
use crate::compiler::{Compiler, common_filter};
use crate::definitions::Definitions;
use crate::filter::{Parser, Predicate};
use crate::kinds::QueryOutput;
use crate::kinds::insight::CompiledInsight;
use crate::kinds::lifecycle::query::LifecycleStatus;
use crate::kinds::lifecycle::{LifecycleQuery, PATH, dialects};
use crate::mask::Mask;
use crate::people::MatchedActor;
use crate::people_links::PeopleLinks;
use crate::project::ProjectContext;
use crate::scan::{ActorKind, Partition};
pub use people::LifecyclePoint;
use people::{DATE, STATUS};
use periods::Periods;

/// A lifecycle query with resolved dates and compiled filters.
#[derive(Debug, Clone)]
pub struct CompiledLifecycle {
    query: LifecycleQuery,
    project_id: String,
    definitions: Definitions,
    now: DateTime<Tz>,
    periods: Periods,
    /// The filters of the query and of all series.
    shared: Predicate,
    matchers: Vec<Matcher>,
}

/// By status: the number of actors in each shown period.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LifecycleCounts([Vec<u64>; 4]);

impl LifecycleCounts {
    fn add(&mut self, status: LifecycleStatus, shown_period: usize) {
        let counts = &mut self.0[status as usize];
        if counts.len() <= shown_period {
            counts.resize(shown_period + 1, 0);
        }
        counts[shown_period] += 1;
    }

    /// Merges two partial results.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        for (counts, more) in self.0.iter_mut().zip(other.0) {
            if counts.len() < more.len() {
                counts.resize(more.len(), 0);
            }
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        self
    }
}

impl CompiledInsight for CompiledLifecycle {
    type Query = LifecycleQuery;
    type Partial = LifecycleCounts;
    type DataPoint = LifecyclePoint;

    fn compile(
        query: &LifecycleQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let common = &query.common;
        let explicit = common.dates.explicit;
        let periods = Periods::new(&range, common.interval, project.week_start, explicit)?;
        // Persons also where the project counts distinct ids: only persons have a creation time.
        let actors = query.group_type_index.map_or(ActorKind::Persons, ActorKind::Groups);
        compiler.add_actor_kind(actors);
        if let Some((first, last)) = periods.bounds() {
            compiler.extend_time_range(first, last);
            compiler.require_creations(actors, last);
        }
        let shared = compiler.compile_filter(&common_filter(common, project)?, "properties")?;
        let has_profile =
            json!([{"key": "$process_person_profile", "value": ["false"], "operator": "is_not"}]);
        let has_profile = Parser::default().parse(Some(&has_profile), "properties")?;
        let has_profile = compiler.compile_filter(&has_profile, "properties")?;
        let matcher = |series: &crate::query::Series| {
            let missing = || {
                let id = series.event_or_action.id();
                CalcError::invalid("actions", format!("Action ID {id} does not exist!"))
            };
            Matcher::new(&series.event_or_action, &series.properties, compiler, "properties")?
                .ok_or_else(missing)
        };
        let matchers = query.series.iter().map(matcher).collect::<CalcResult<Vec<_>>>()?;
        Ok(Self {
            query: query.clone(),
            project_id: project.project_id.clone(),
            definitions: project.definitions.clone(),
            now: compiler.now,
            periods,
            shared: Predicate::All(vec![shared, has_profile]),
            matchers,
        })
    }

    fn parse_data_point(_query: &LifecycleQuery, request: &Map<String, Value>) -> CalcResult<LifecyclePoint> {
        people::parse_point(request)
    }

    fn partial(&self, partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<LifecycleCounts> {
        let rows = self.matching_rows(partition, work)?;
        let mut counts = LifecycleCounts::default();
        statuses::for_each_status(&rows, &partition.created, &self.periods, work, |one| {
            // The hidden period has no status.
            if let Some(shown) = one.period.checked_sub(1) {
                counts.add(one.status, shown);
            }
        })?;
        Ok(counts)
    }

    fn merge(left: LifecycleCounts, right: LifecycleCounts) -> LifecycleCounts {
        left.merge(right)
    }

    fn finish(&self, counts: LifecycleCounts, work: &WorkBudget<'_>) -> CalcResult<QueryOutput> {
        work.check()?;
        let shown = self.periods.shown.len();
        let links =
            PeopleLinks::new(&self.project_id, PATH, self.link_node(), shown * LifecycleStatus::ALL.len());
        let series = LifecycleStatus::ALL.into_iter().zip(counts.0);
        let series = series.map(|(status, mut counts)| {
            counts.resize(shown, 0);
            self.series(status, &counts, &links)
        });
        Ok(series.collect::<Value>().into())
    }

    fn people(
        &self,
        partition: &Partition,
        point: &LifecyclePoint,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchedActor>> {
        self.list_people(partition, point, work)
    }
}

impl CompiledLifecycle {
    /// The runs with rows that match the query and all series.
    fn matching_rows<'a>(
        &self,
        partition: &'a Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<MatchingRows<'a>>> {
        let mut rows = Vec::new();
        for run in &partition.runs {
            work.check()?;
            let matches = |mask: Mask, matcher: &Matcher| -> CalcResult<Mask> {
                match mask {
                    Mask::Nothing => Ok(Mask::Nothing),
                    mask => Ok(mask.and(matcher.mask(run, work)?)),
                }
            };
            let mask = match self.matchers.iter().try_fold(Mask::Every, matches)? {
                Mask::Nothing => continue,
                mask => mask.and(self.shared.mask(run, work)?),
            };
            if mask != Mask::Nothing {
                rows.push(MatchingRows { run, mask });
            }
        }
        Ok(rows)
    }

    fn series(&self, status: LifecycleStatus, counts: &[u64], links: &PeopleLinks) -> Value {
        let series = self.query.series.first();
        let name = series.and_then(|series| series.event_or_action.name(&self.definitions));
        let label = name.unwrap_or("All events");
        #[expect(clippy::cast_precision_loss, reason = "counts of actors are below 2^53")]
        let number = |count: u64| match status {
            LifecycleStatus::Dormant if count > 0 => -(count as f64),
            _ => count as f64,
        };
        let mut action = json!({
            "id": name,
            "name": label,
            "type": series.map(|series| series.event_or_action.list_name()),
            "order": 0,
            "math": "total",
        });
        if let Some(custom_name) = series.and_then(|series| series.custom_name.as_ref()) {
            action["custom_name"] = json!(custom_name);
        }
        let mut object = json!({
            "action": action,
            "label": format!("{label} - {}", status.name()),
            "status": status.name(),
            "data": counts.iter().map(|count| number(*count)).collect::<Vec<f64>>(),
            "count": number(counts.iter().sum()),
            "days": self.periods.days,
            "labels": self.periods.labels,
        });
        let parameters =
            |start: &DateTime<Tz>| vec![(DATE, utc_text(start)), (STATUS, status.name().to_owned())];
        links.add_to(&mut object, self.periods.shown.iter().map(parameters));
        object
    }

    /// The query of the links: the same query over exactly the shown periods.
    fn link_node(&self) -> Map<String, Value> {
        let mut query = self.query.clone();
        if let (Some(first), Some(last)) = (self.periods.shown.first(), self.periods.shown.last()) {
            query.common.dates.from = Some(utc_text(first));
            query.common.dates.to = Some(utc_text(last));
            query.common.dates.explicit = true;
        }
        dialects::to_node(&query)
    }
}
