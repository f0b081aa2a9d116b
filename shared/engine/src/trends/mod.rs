//! Trends: how many events or people, over time or in all.
//!
//! Must stay true: every bucket of the range is in the answer; a person counts once in a bucket (once in all for a
//! total, in the first bucket only for a running sum), whatever series of runs its events lie in.

mod count;
#[allow(dead_code, reason = "trends with a formula are still refused")]
pub(crate) mod formula;
mod result;

use serde_json::Value;

use crate::dates::Interval;
use crate::dates::buckets::Buckets;
use crate::dates::range::DateRange;
use crate::definitions::Definitions;
use crate::error::{CalcError, CalcResult};
use crate::filter::{Mask, Predicate};
use crate::limits;
use crate::matcher::Matcher;
use crate::plan::{Compiler, Partial, ProjectContext, shared_filter};
use crate::query::{Display, Math, TrendsQuery};
use crate::regroup::ActorKind;
use crate::scan::{Micros, Partition, Run};
use count::{Counted, Per};

/// A trend made ready.
#[derive(Debug, Clone)]
pub(crate) struct Trend {
    query: TrendsQuery,
    project_id: String,
    range: DateRange,
    /// First and last instant counted.
    bounds: (Micros, Micros),
    buckets: Buckets,
    definitions: Definitions,
    shared: Predicate,
    /// None for an action that does not exist.
    series: Vec<Option<Matcher>>,
}

impl Trend {
    pub(crate) fn new(
        query: &TrendsQuery,
        project: &ProjectContext,
        range: DateRange,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        if query.series.iter().any(|series| series.math == Math::Dau) {
            compiler.count(ActorKind::of(project, None));
        }
        let interval = if query.display.is_total() { Interval::Day } else { query.common.interval };
        // One number needs no buckets, so its range may be as long as it likes.
        let span = if query.display.is_total() { DateRange { from: range.to, ..range } } else { range };
        let buckets = Buckets::new(&span, interval, project.week_start)?;
        if buckets.len() * query.series.len() > limits::POINTS {
            return Err(limits::too_many("interval", "intervals in all series together", limits::POINTS));
        }
        // The end is compared in whole seconds.
        let bounds = (range.first.timestamp_micros(), range.to.timestamp() * 1_000_000);
        compiler.cover(bounds.0, bounds.1);
        let shared = compiler.predicate(&shared_filter(&query.common, project)?, "properties")?;
        let series = query
            .series
            .iter()
            .map(|entry| Matcher::new(&entry.source, &entry.properties, compiler, "properties"))
            .collect::<CalcResult<Vec<_>>>()?;
        let (project_id, definitions) = (project.project_id.clone(), project.definitions.clone());
        Ok(Self { query: query.clone(), project_id, range, bounds, buckets, definitions, shared, series })
    }

    /// Numbers of one series.
    fn width(&self) -> usize {
        if self.query.display.is_total() { 1 } else { self.buckets.len() }
    }

    pub(crate) fn partial(&self, partition: &Partition, stop: &dyn Fn() -> bool) -> CalcResult<Partial> {
        let (width, actors) = (self.width(), partition.actors.len());
        let mut counts = vec![0; width * self.series.len()];
        if width == 0 {
            return Ok(Partial { counts, ..Partial::default() });
        }
        let shared: Vec<Mask> = partition.runs.iter().map(|run| self.shared.mask(run)).collect();
        for ((series, own), counts) in
            self.query.series.iter().zip(&self.series).zip(counts.chunks_mut(width))
        {
            let Some(own) = own else { continue };
            let mut rows: Vec<(&Run, Mask)> = Vec::new();
            for (run, shared) in partition.runs.iter().zip(&shared) {
                if stop() {
                    return Err(CalcError::timeout());
                }
                if *shared != Mask::Nothing {
                    match own.mask(run).and(shared.clone()) {
                        Mask::Nothing => {}
                        mask => rows.push((run, mask)),
                    }
                }
            }
            let buckets = (!self.query.display.is_total()).then_some(&self.buckets);
            let counted = Counted { rows: &rows, buckets, bounds: self.bounds };
            match (series.math, self.query.display) {
                (Math::Total, _) => counted.events(counts),
                (Math::Dau, Display::ActionsLineGraphCumulative) => {
                    counted.persons(Per::Person, actors, counts)
                }
                (Math::Dau, _) => counted.persons(Per::Bucket, actors, counts),
            }
        }
        Ok(Partial { counts, ..Partial::default() })
    }

    pub(crate) fn finish(&self, sum: &Partial) -> Value {
        let width = self.width();
        let empty = vec![0; width];
        let context = result::Context::new(self);
        let series = self.query.series.iter().enumerate().filter(|(order, _)| self.series[*order].is_some());
        let series = series.map(|(order, series)| {
            let data = sum.counts.get(order * width..(order + 1) * width).unwrap_or(&empty);
            context.series(order, series, data)
        });
        series.collect()
    }
}
