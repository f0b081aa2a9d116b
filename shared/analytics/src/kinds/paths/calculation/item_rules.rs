//! What becomes of the name of an item: path cleaning, groupings, exclusion.
//!
//! Must stay true: rules are applied to distinct names, never to rows; the order is cleaning (each filter on the result of the
//! one before), grouping, exclusion; the work and the size of a cleaned name are bounded.

use std::borrow::Cow;
use std::collections::BTreeSet;

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::regex_bounds::BoundedRegex;
use pennon_filters::work_budget::WorkBudget;
use pennon_filters::{CompileBudget, re2};
use serde_json::Value;

use crate::compiler::Compiler;
use crate::kinds::paths::{CleaningFilter, PathsQuery, limits};
use crate::project::ProjectContext;

/// The name of the project's setting in errors.
const OF_PROJECT: &str = "path_cleaning_filters";

/// Validates the path cleaning filters of a project.
pub(in super::super) fn validate_cleaning_filters(filters: &[Value]) -> CalcResult<()> {
    let mut budget = CompileBudget::default();
    for filter in CleaningFilter::parse_list(filters, OF_PROJECT)? {
        CleaningRule::new(&filter, OF_PROJECT, &mut |pattern, attr| {
            re2::compile(pattern, &mut budget, attr)
        })?;
    }
    Ok(())
}

/// The compiled rules of a query.
#[derive(Debug, Clone)]
pub(super) struct ItemRules {
    cleaning: Vec<CleaningRule>,
    groupings: Vec<Grouping>,
    excluded: BTreeSet<String>,
}

/// Replaces all matches of a pattern.
#[derive(Debug, Clone)]
struct CleaningRule {
    pattern: BoundedRegex,
    regex: String,
    replacement: Vec<ReplacementPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplacementPart {
    Text(String),
    /// A group of the match; 0 is the whole match.
    Group(usize),
}

/// A pattern in which `*` is any text.
#[derive(Debug, Clone)]
struct Grouping {
    /// The grouping itself, which replaces the items that it matches.
    name: String,
    /// The texts between the `*`, none empty.
    texts: Vec<String>,
}

impl ItemRules {
    /// Compiles the rules of a query and, if it uses them, of its project.
    pub(super) fn new(
        query: &PathsQuery,
        project: &ProjectContext,
        compiler: &mut Compiler<'_>,
    ) -> CalcResult<Self> {
        let mut compile = |pattern: &str, attr: &str| compiler.compile_pattern(pattern, attr);
        let mut cleaning = Vec::new();
        if query.uses_project_cleaning {
            for filter in CleaningFilter::parse_list(&project.path_cleaning_filters, OF_PROJECT)? {
                cleaning.push(CleaningRule::new(&filter, OF_PROJECT, &mut compile)?);
            }
        }
        for filter in &query.cleaning_filters {
            cleaning.push(CleaningRule::new(filter, "localPathCleaningFilters", &mut compile)?);
        }
        let groupings = query.groupings.iter().map(|name| Grouping::new(name)).collect();
        Ok(Self { cleaning, groupings, excluded: query.excluded_items.clone() })
    }

    /// The item of a name; `None` if it is excluded.
    pub(super) fn item<'a>(
        &self,
        name: Cow<'a, str>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<Cow<'a, str>>> {
        let mut item = name;
        for rule in &self.cleaning {
            item = rule.replace_all(item, work)?;
        }
        if let Some(grouping) = self.find_grouping(&item, work)? {
            item = Cow::Owned(grouping.name.clone());
        }
        Ok(Some(item).filter(|item| !self.excluded.contains(item.as_ref())))
    }

    /// The grouping whose match ends first, and of those the first one.
    fn find_grouping(&self, item: &str, work: &WorkBudget<'_>) -> CalcResult<Option<&Grouping>> {
        if self.groupings.is_empty() {
            return Ok(None);
        }
        work.consume_comparisons(self.groupings.len(), item.len())?;
        let matches =
            self.groupings.iter().filter_map(|grouping| Some((grouping.match_end(item)?, grouping)));
        Ok(matches.min_by_key(|(end, _)| *end).map(|(_, grouping)| grouping))
    }
}

impl CleaningRule {
    /// Compiles a filter with `compile`, which returns `None` for an invalid pattern.
    fn new(
        filter: &CleaningFilter,
        attr: &str,
        compile: &mut dyn FnMut(&str, &str) -> CalcResult<Option<BoundedRegex>>,
    ) -> CalcResult<Self> {
        let pattern = compile(&filter.regex, attr)?.ok_or_else(|| {
            let detail =
                format!("{attr}: the regex \"{}\" is not a valid RE2 regular expression.", filter.regex);
            CalcError::invalid(attr, detail)
        })?;
        Ok(Self { pattern, regex: filter.regex.clone(), replacement: parse_replacement(&filter.alias) })
    }

    fn replace_all<'a>(&self, text: Cow<'a, str>, work: &WorkBudget<'_>) -> CalcResult<Cow<'a, str>> {
        work.consume_comparisons(1, text.len())?;
        self.pattern.consume_budget(text.len(), work)?;
        if !self.pattern.is_match(&text) {
            return Ok(text);
        }
        let most = limits::CLEANED_BYTES.max(text.len());
        let mut cleaned = String::with_capacity(text.len());
        let mut copied = 0;
        let push = |cleaned: &mut String, part: &str| {
            cleaned.push_str(part);
            if cleaned.len() > most { Err(limits::cleaned_name_too_long(&self.regex)) } else { Ok(()) }
        };
        for captures in self.pattern.regex().captures_iter(&text) {
            let Some(matched) = captures.get(0) else { continue };
            push(&mut cleaned, &text[copied..matched.start()])?;
            for part in &self.replacement {
                work.consume(1)?;
                match part {
                    ReplacementPart::Text(text) => push(&mut cleaned, text)?,
                    ReplacementPart::Group(group) => {
                        push(&mut cleaned, captures.get(*group).map_or("", |group| group.as_str()))?;
                    }
                }
            }
            copied = matched.end();
        }
        push(&mut cleaned, &text[copied..])?;
        work.consume(cleaned.len())?;
        Ok(Cow::Owned(cleaned))
    }
}

/// Splits an alias at `\0` to `\9`. All other characters stand for themselves.
fn parse_replacement(alias: &str) -> Vec<ReplacementPart> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut characters = alias.chars().peekable();
    while let Some(character) = characters.next() {
        let group = characters.peek().and_then(|digit| digit.to_digit(10)).filter(|_| character == '\\');
        match group {
            Some(group) => {
                characters.next();
                if !text.is_empty() {
                    parts.push(ReplacementPart::Text(std::mem::take(&mut text)));
                }
                parts.push(ReplacementPart::Group(group as usize));
            }
            None => text.push(character),
        }
    }
    if !text.is_empty() {
        parts.push(ReplacementPart::Text(text));
    }
    parts
}

impl Grouping {
    fn new(name: &str) -> Self {
        let texts = name.split('*').filter(|text| !text.is_empty()).map(str::to_owned).collect();
        Self { name: name.to_owned(), texts }
    }

    /// The end of the match that ends first: each text at its first place behind the one before.
    fn match_end(&self, item: &str) -> Option<usize> {
        self.texts.iter().try_fold(0, |end, text| {
            let place = item.get(end..)?.find(text.as_str())?;
            Some(end + place + text.len())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rules(cleaning: &[(&str, &str)], groupings: &[&str]) -> ItemRules {
        let rule = |(regex, alias): &(&str, &str)| {
            let pattern = BoundedRegex::compile(regex, limits::REGEX_COMPILED_BYTES).unwrap();
            CleaningRule { pattern, regex: (*regex).to_owned(), replacement: parse_replacement(alias) }
        };
        ItemRules {
            cleaning: cleaning.iter().map(rule).collect(),
            groupings: groupings.iter().map(|name| Grouping::new(name)).collect(),
            excluded: BTreeSet::from(["out".to_owned()]),
        }
    }

    fn item(rules: &ItemRules, name: &str) -> CalcResult<Option<String>> {
        let item = rules.item(Cow::Borrowed(name), &WorkBudget::new(&|| false))?;
        Ok(item.map(Cow::into_owned))
    }

    #[test]
    fn filters_are_applied_one_after_the_other_to_all_matches() {
        let rules = rules(&[(r"\d+", "<id>"), ("<id>/<id>", "<ids>"), ("(b)(x)?", r"[\1\2\0\9]\z")], &[]);
        assert_eq!(item(&rules, "/1/22/a/3").unwrap().unwrap(), "/<ids>/a/<id>");
        assert_eq!(item(&rules, "b").unwrap().unwrap(), r"[bb]\z");
        assert_eq!(item(&rules, "plain").unwrap().unwrap(), "plain");
    }

    #[test]
    fn the_grouping_that_ends_first_wins_and_of_equal_ones_the_first() {
        let all = ["/3?q=1", "/3*", "/bar/*/foo", "a*c", "*bc"];
        let all = rules(&[], &all);
        for (name, want) in [
            ("/3?q=1", "/3*"),
            ("/2/bar/1/foo/x", "/bar/*/foo"),
            ("/bar/foo", "/bar/foo"),
            ("/bar//foo", "/bar/*/foo"),
            ("abc", "a*c"),
            ("xbc", "*bc"),
            ("none", "none"),
        ] {
            assert_eq!(item(&all, name).unwrap().unwrap(), want, "{name}");
        }
        assert_eq!(item(&rules(&[], &["*"]), "").unwrap().unwrap(), "*");
    }

    #[test]
    fn items_are_excluded_after_they_were_renamed() {
        let renamed = rules(&[("in", "out")], &["gone*"]);
        assert_eq!(item(&renamed, "in").unwrap(), None);
        assert_eq!(item(&renamed, "out").unwrap(), None);
        assert_eq!(item(&renamed, "gone").unwrap().unwrap(), "gone*");
    }

    #[test]
    fn a_name_grows_up_to_the_limit() {
        let doubles = |times: usize| rules(&vec![("^(.*)$", r"\1\1"); times], &[]);
        let start = "a".repeat(16);
        let longest = item(&doubles(12), &start).unwrap().unwrap();
        assert_eq!(longest.len(), limits::CLEANED_BYTES);
        let error = item(&doubles(13), &start).unwrap_err();
        assert!(error.detail.contains("shorter alias"), "{error}");
    }
}
