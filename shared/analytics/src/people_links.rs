//! The links of a result to the actors behind its numbers, for kinds whose links hold the query as a node.
//!
//! Must stay true: the links of a result together have at most [`limits::LINKS_BYTES`], one of them at most
//! [`limits::LINK_BYTES`]; otherwise there are none, and the reason is known.

use serde_json::{Map, Value, json};

use crate::limits;
use crate::url::{push_pair, push_value};

/// Bytes that the parameters of one number add to a link, at most.
const PARAMETERS_BYTES: usize = 128;

/// The links to the actors behind the numbers of one series.
#[derive(Debug)]
pub(crate) struct PeopleLinks {
    base: String,
    /// How many links the result has.
    links: usize,
}

impl PeopleLinks {
    /// Links below `persons/<path>/` that hold `node`; the result has `links` of them in all its series.
    pub(crate) fn new(project_id: &str, path: &str, node: Map<String, Value>, links: usize) -> Self {
        let mut base = format!("/api/projects/{project_id}/persons/{path}/?");
        push_value(&mut base, "query", &Value::Object(node));
        Self { base, links }
    }

    /// Adds the fields `persons_urls`, with a link for each number, and `persons_urls_omitted`, the reason for a null, to a
    /// series. `numbers` has the parameters that select each number.
    pub(crate) fn add_to<'a>(
        &self,
        series: &mut Value,
        numbers: impl Iterator<Item = Vec<(&'a str, String)>>,
    ) {
        if !limits::links_fit(self.base.len() + PARAMETERS_BYTES, self.links) {
            series["persons_urls"] = Value::Null;
            series["persons_urls_omitted"] = json!(format!(
                "{} links to people would take more than {} bytes together, or one of them more than {}. For links, use a \
                 longer interval, a shorter range or fewer filters.",
                self.links,
                limits::LINKS_BYTES,
                limits::LINK_BYTES
            ));
            return;
        }
        let link = |parameters: Vec<(&str, String)>| {
            let mut url = self.base.clone();
            for (key, value) in parameters {
                push_pair(&mut url, key, &value);
            }
            json!({"url": url})
        };
        series["persons_urls"] = numbers.map(link).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_do_not_fit_are_omitted_with_the_reason() {
        let link = |node_bytes: usize, links: usize| {
            let node = json!({"kind": "x".repeat(node_bytes)});
            let node = node.as_object().cloned().unwrap_or_default();
            let mut series = json!({});
            let numbers = (0..2).map(|number| vec![("bar", format!("{number} &"))]);
            PeopleLinks::new("7", "stickiness", node, links).add_to(&mut series, numbers);
            series
        };
        let base = "/api/projects/7/persons/stickiness/?query=%7B%22kind%22%3A%22xx%22%7D";
        let want = json!({"persons_urls": [{"url": format!("{base}&bar=0%20%26")}, {"url": format!("{base}&bar=1%20%26")}]});
        assert_eq!(link(2, 2), want);
        let fits = limits::LINK_BYTES - PARAMETERS_BYTES - (base.len() - 2);
        assert!(link(fits, 2)["persons_urls"].is_array());
        for (bytes, links) in [(fits + 1, 2), (fits, limits::LINKS_BYTES / limits::LINK_BYTES + 1)] {
            let omitted = link(bytes, links);
            assert!(omitted["persons_urls"].is_null());
            assert!(
                omitted["persons_urls_omitted"]
                    .as_str()
                    .is_some_and(|why| why.starts_with(&links.to_string()))
            );
        }
    }
}
