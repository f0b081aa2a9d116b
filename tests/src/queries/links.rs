//! The links in responses to the people behind their numbers.

use serde_json::Value;

use super::{NOT_SUPPORTED, QueryCase, at};
use crate::TestApp;

/// A link, and how many people it has to lead to; none where the number is not one of people.
type Link = (String, Option<u64>);

/// The links of a response.
fn links(query: &QueryCase, result: &Value) -> Vec<Link> {
    match query.endpoint {
        "funnel" => of_steps(result),
        "correlation" => of_factors(result),
        _ => of_series(result),
    }
}

fn of_steps(result: &Value) -> Vec<Link> {
    let rows = result.as_array().map_or(&[][..], Vec::as_slice);
    let mut found = Vec::new();
    for row in rows {
        if row.is_array() {
            found.extend(of_steps(row));
        }
    }
    for (index, step) in rows.iter().enumerate() {
        if let Some(link) = step["converted_people_url"].as_str() {
            found.push((link.to_owned(), step["count"].as_u64()));
        }
        if let Some(link) = step["dropped_people_url"].as_str() {
            let before = rows[index - 1]["count"].as_u64().expect("a number");
            found.push((link.to_owned(), before.checked_sub(step["count"].as_u64().expect("a number"))));
        }
    }
    found
}

fn of_factors(result: &Value) -> Vec<Link> {
    let rows = result["events"].as_array().into_iter().flatten();
    let both = [("success_people_url", "success_count"), ("failure_people_url", "failure_count")];
    let of =
        |row: &Value| both.map(|(url, count)| Some((row[url].as_str()?.to_owned(), row[count].as_u64())));
    rows.flat_map(of).flatten().collect()
}

/// Of each series the links with the largest and with the last number.
fn of_series(result: &Value) -> Vec<Link> {
    let mut found = Vec::new();
    for series in result.as_array().into_iter().flatten().take(6) {
        let (data, urls) = (&series["data"], &series["persons_urls"]);
        let Some(data) = data.as_array().filter(|data| !data.is_empty()) else { continue };
        let number = |index: &usize| data[*index].as_f64().unwrap_or_default();
        let most =
            (0..data.len()).max_by(|one, other| number(one).total_cmp(&number(other))).expect("a number");
        let people = matches!(
            series["action"]["math"].as_str(),
            Some("dau" | "unique_group" | "weekly_active" | "monthly_active")
        );
        for index in [most, data.len() - 1] {
            if let Some(url) = urls[index]["url"].as_str() {
                found.push((url.to_owned(), people.then(|| data[index].as_f64().expect("a number") as u64)));
            }
        }
    }
    found
}

/// The outcomes of the links of a response.
#[derive(Debug, Default)]
pub struct Followed {
    /// The number of links with the right number of persons.
    pub right: usize,
    /// Refused as not supported yet.
    pub not_covered: Vec<String>,
    /// Others.
    pub wrong: Vec<String>,
}

impl QueryCase {
    /// The pages of people that the first links of the query's result lead to, as bytes: at most `most`.
    pub async fn people_pages(&self, app: &TestApp, result: &Value, most: usize) -> Vec<String> {
        let mut pages = Vec::new();
        for (link, _) in links(self, result).into_iter().take(most) {
            pages.push(format!("{link}: {}", at(app, &self.now, "GET", &link, Value::Null).await.text));
        }
        pages
    }

    /// Follows the links of the query's result.
    pub async fn follow(&self, app: &TestApp, result: &Value) -> Followed {
        let has = |text: &str| Value::Object(self.body.clone()).to_string().contains(text);
        // These numbers count people of other buckets or steps too.
        let is_sum =
            has("optionalInFunnel") || has("ActionsLineGraphCumulative") || has("smoothing_intervals");
        let mut followed = Followed::default();
        for (link, count) in links(self, result) {
            let page = at(app, &self.now, "GET", &link, Value::Null).await;
            if page.text.contains(NOT_SUPPORTED) {
                followed.not_covered.push(format!("{}: {}", self.name, page.text));
                continue;
            }
            let right = page.status == 200
                && (is_sum || count.is_none() || count == page.json()["total_count"].as_u64());
            match right {
                true => followed.right += 1,
                false => {
                    let output_text: String = page.text.chars().take(600).collect();
                    followed
                        .wrong
                        .push(format!("{}: {link} leads to other than {count:?}: {output_text}", self.name));
                }
            }
        }
        followed
    }
}
