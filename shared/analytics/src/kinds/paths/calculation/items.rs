//! The items of a partition's events, as dictionary codes.
//!
//! Must stay true: a name is converted once per distinct value of a column, and only if a row has it; equal items have one
//! code whatever their events; rows only look codes up.

use std::borrow::Cow;
use std::collections::HashMap;

use ahash::RandomState;
use arrow_buffer::ScalarBuffer;
use pennon_filters::error::CalcResult;
use pennon_filters::text::{text_length, text_of};
use pennon_filters::work_budget::WorkBudget;
use serde_json::Value;

use super::event_naming::{EventNaming, ItemSource};
use super::item_rules::ItemRules;
use crate::kinds::paths::query::trim_slash;
use crate::scan::{Column, EventRun};

/// The code of rows that are not in the paths.
pub(super) const NO_ITEM: u32 = u32::MAX;

/// Units of work of converting a name, beside its bytes.
const WORK_PER_NAME: usize = 16;

/// The distinct items of a partition, and their codes.
#[derive(Debug, Default)]
pub(super) struct ItemDictionary<'p> {
    codes: HashMap<Cow<'p, str>, u32, RandomState>,
}

impl<'p> ItemDictionary<'p> {
    /// The code of an item, which is added if it is new.
    pub(super) fn code(&mut self, item: Cow<'p, str>) -> u32 {
        // At most one item per row and per option of the query, and row counts fit into 32 bits.
        let next = u32::try_from(self.codes.len()).unwrap_or(NO_ITEM);
        *self.codes.entry(item).or_insert(next)
    }

    /// The code of an item, if an event has it.
    pub(super) fn get(&self, item: &str) -> Option<u32> {
        self.codes.get(item).copied()
    }

    /// All items, by code.
    pub(super) fn into_names(self) -> Vec<Cow<'p, str>> {
        let mut names = vec![Cow::Borrowed(""); self.codes.len()];
        for (name, code) in self.codes {
            if let Some(place) = names.get_mut(code as usize) {
                *place = name;
            }
        }
        names
    }
}

/// The items of a run's rows.
#[derive(Debug, Clone)]
pub(super) enum RowItems {
    /// All rows have the same item.
    Same(u32),
    /// By row a code of the source column, by code an item.
    Column { codes: ScalarBuffer<u32>, table: Vec<u32>, missing: u32 },
}

impl RowItems {
    /// The item of a row, or [`NO_ITEM`].
    #[inline]
    pub(super) fn of(&self, row: usize) -> u32 {
        match self {
            Self::Same(item) => *item,
            Self::Column { codes, table, missing } => {
                let item = codes.get(row).and_then(|code| table.get(*code as usize));
                item.copied().unwrap_or(*missing)
            }
        }
    }
}

/// Converts names to items of one partition.
pub(super) struct ItemReader<'a, 'p> {
    pub(super) naming: &'a EventNaming,
    pub(super) rules: &'a ItemRules,
    pub(super) dictionary: &'a mut ItemDictionary<'p>,
}

impl<'p> ItemReader<'_, 'p> {
    /// The items of the rows of a run for which `is_counted` is true; `None` if events of its name are not in the paths.
    pub(super) fn row_items(
        &mut self,
        run: &'p EventRun,
        is_counted: impl Fn(usize) -> bool,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<RowItems>> {
        let items = match self.naming.source(&run.event) {
            None => return Ok(None),
            Some(ItemSource::EventName) => RowItems::Same(self.item(Cow::Borrowed(&run.event), work)?),
            Some(ItemSource::Column { key, is_url }) => match run.column(key) {
                Some(column) => {
                    let name = |value: &'p Value| {
                        text_of(value).map(|text| if is_url { trim_url(text) } else { text })
                    };
                    self.column_items(column, name, &is_counted, work)?
                }
                None => RowItems::Same(self.item(Cow::Borrowed(""), work)?),
            },
            Some(ItemSource::Expression(expression)) => {
                let column = expression.column(run, work)?;
                let name = |value: &Value| text_of(value).map(|text| Cow::Owned(text.into_owned()));
                self.column_items(&column, name, &is_counted, work)?
            }
        };
        Ok(Some(items).filter(|items| !matches!(items, RowItems::Same(NO_ITEM))))
    }

    /// The items of a column. `name` is the text of a value; none counts as the empty text.
    fn column_items<'c>(
        &mut self,
        column: &'c Column,
        name: impl Fn(&'c Value) -> Option<Cow<'p, str>>,
        is_counted: &impl Fn(usize) -> bool,
        work: &WorkBudget<'_>,
    ) -> CalcResult<RowItems> {
        work.consume(column.codes.len())?;
        // Where all rows have one name, as that of the event by an expression, rows need no look-up.
        if let [value] = &**column.values
            && column.codes.iter().all(|code| *code == 0)
        {
            if !(0..column.codes.len()).any(is_counted) {
                return Ok(RowItems::Same(NO_ITEM));
            }
            return Ok(RowItems::Same(self.item(name(value).unwrap_or_default(), work)?));
        }
        let mut has_row = vec![false; column.values.len()];
        let mut misses = false;
        for (row, code) in column.codes.iter().enumerate() {
            if is_counted(row) {
                match has_row.get_mut(*code as usize) {
                    Some(has_row) => *has_row = true,
                    None => misses = true,
                }
            }
        }
        let mut table = vec![NO_ITEM; column.values.len()];
        for ((value, item), has_row) in column.values.iter().zip(&mut table).zip(has_row) {
            if has_row {
                work.consume(WORK_PER_NAME + text_length(value))?;
                *item = self.item(name(value).unwrap_or_default(), work)?;
            }
        }
        let missing = if misses { self.item(Cow::Borrowed(""), work)? } else { NO_ITEM };
        Ok(RowItems::Column { codes: column.codes.clone(), table, missing })
    }

    /// The code of a name's item.
    fn item(&mut self, name: Cow<'p, str>, work: &WorkBudget<'_>) -> CalcResult<u32> {
        Ok(self.rules.item(name, work)?.map_or(NO_ITEM, |item| self.dictionary.code(item)))
    }
}

fn trim_url(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(trim_slash(text)),
        Cow::Owned(text) => Cow::Owned(trim_slash(&text).to_owned()),
    }
}
