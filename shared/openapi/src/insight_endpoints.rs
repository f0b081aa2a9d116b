//! The two endpoints of a kind of insight with series and without a breakdown: its results, and the people behind a number.

use serde_json::Value;

use crate::calculation::with_result_response;
use crate::calculation_input::{InputField, concat_fields, with_query_fields};
use crate::operation::{Operation, Security};
use crate::persons::with_people_response;
use crate::schema::{any, boolean, constant, instant, list, nullable, object, schema_ref, text};

const CALCULATION: &str = "Calculation";
const PERSONS: &str = "Persons";
const READ_INSIGHTS: Security = Security::Scope("insight:read");
const READ_PERSONS: Security = Security::Scope("person:read");

/// What differs from one kind to the other. The schemas are `<name>Request`, `<name>PeopleRequest` and `<name>Result`.
pub(crate) struct InsightEndpoints {
    pub(crate) name: &'static str,
    /// The path of results, and the operation ids of GET and POST.
    pub(crate) results: (&'static str, [&'static str; 2]),
    /// The path of people, and the operation ids of GET and POST.
    pub(crate) people: (&'static str, [&'static str; 2]),
    /// The summaries of both.
    pub(crate) summaries: [&'static str; 2],
    pub(crate) description: &'static str,
    /// The fields of the query.
    pub(crate) fields: fn() -> Vec<InputField>,
    /// The fields that select a number, after those of the query.
    pub(crate) point: fn() -> Vec<InputField>,
}

impl InsightEndpoints {
    /// The operations of both endpoints.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.result_operations().into_iter().chain(self.people_operations()).collect()
    }

    fn result_operations(&self) -> [Operation; 2] {
        let (path, [get, post]) = self.results;
        let schema = || {
            object([
                ("result", schema_ref(&format!("{}Result", self.name))),
                ("timezone", text()),
                ("last_refresh", instant()),
                ("is_cached", boolean()),
                ("next", constant(Value::Null)),
            ])
        };
        let get = Operation::new(get, "GET", path, CALCULATION, self.summaries[0], READ_INSIGHTS)
            .with_description(self.description);
        let post = Operation::new(post, "POST", path, CALCULATION, self.summaries[0], READ_INSIGHTS)
            .with_description(
                "Fields are accepted in the query string too; the body takes precedence, except for `properties`. In a body \
                 lists and objects may be JSON texts.",
            );
        let body = format!("{}Request", self.name);
        [
            with_result_response(with_query_fields(get, (self.fields)()), None, schema()),
            with_result_response(post, Some(&body), schema()),
        ]
    }

    fn people_operations(&self) -> [Operation; 2] {
        let (path, [get, post]) = self.people;
        let results = self.results.0.trim_start_matches("/api/projects/{project_id}/");
        let get = Operation::new(get, "GET", path, PERSONS, self.summaries[1], READ_PERSONS).with_description(
            "The links in results have this target, with the query as a node in `query`. The scope `insight:read` is \
             accepted too.",
        );
        let post = Operation::new(post, "POST", path, PERSONS, self.summaries[1], READ_PERSONS)
            .with_description(format!(
                "The query is a node in `query`, or has the fields of `{results}`. Fields are accepted in the query string \
                 too; in a body lists and objects may be JSON texts. The scope `insight:read` is accepted too.",
            ));
        let body = format!("{}PeopleRequest", self.name);
        [
            with_people_response(with_query_fields(get, self.people_fields()), None),
            with_people_response(post, Some(&body)),
        ]
    }

    /// The fields of a request for people.
    pub(crate) fn people_fields(&self) -> Vec<InputField> {
        let text =
            format!("A query node of kind `{}Query`, instead of the other fields of the query.", self.name);
        let node = InputField::json("query", any(), text);
        concat_fields([(self.fields)(), vec![node], (self.point)()])
    }
}

/// The links to people of a series in a result.
pub(crate) fn people_links() -> [(&'static str, Value); 2] {
    [
        ("persons_urls", nullable(list(object([("url", text())])))),
        // Only where links were left out: they would be too long, or in lists and tiles.
        ("persons_urls_omitted", text()),
    ]
}
