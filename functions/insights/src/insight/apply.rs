//! Applies the body of a write to an insight.
//!
//! Must stay true: the effect of a write depends only on the record, the body, the instant and the user.

use chrono::{DateTime, Utc};
use pennon_core::model::User;
use serde_json::Map;

use super::input::InsightInput;
use super::record::Insight;
use crate::placement::tiles;

impl Insight {
    /// A new insight.
    pub fn create(
        id: u64,
        short_id: String,
        input: &InsightInput,
        user: &User,
        now: DateTime<Utc>,
    ) -> Insight {
        let blank = Insight {
            id,
            short_id,
            name: None,
            derived_name: None,
            description: None,
            filters: Map::new(),
            query: None,
            order: None,
            deleted: false,
            favorited: false,
            saved: false,
            tags: Vec::new(),
            tiles: Vec::new(),
            created_at: now,
            created_by: user.clone(),
            updated_at: now,
            last_modified_at: now,
            last_modified_by: user.clone(),
            row_version: 0,
        };
        blank.apply(input, user, now)
    }

    /// The insight after a write, except for its dashboards ([`tiles::with_dashboards`]). Content that was sent counts as
    /// modified, even if it is equal; a deletion removes the insight from all dashboards.
    #[must_use]
    pub fn apply(&self, input: &InsightInput, user: &User, now: DateTime<Utc>) -> Insight {
        fn sent<T: Clone>(new: &Option<T>, old: &T) -> T {
            new.as_ref().unwrap_or(old).clone()
        }
        let InsightInput {
            name,
            derived_name,
            description,
            filters,
            query,
            order,
            deleted,
            favorited,
            saved,
            tags,
            dashboards: _,
        } = input;
        let mut after = Insight {
            name: sent(name, &self.name),
            derived_name: sent(derived_name, &self.derived_name),
            description: sent(description, &self.description),
            filters: sent(filters, &self.filters),
            query: sent(query, &self.query),
            order: sent(order, &self.order),
            deleted: sent(deleted, &self.deleted),
            favorited: sent(favorited, &self.favorited),
            saved: sent(saved, &self.saved),
            tags: sent(tags, &self.tags),
            updated_at: now,
            ..self.clone()
        };
        if after.deleted && !self.deleted {
            after.tiles = tiles::remove_all(&self.tiles);
        }
        if input.has_content() {
            after.last_modified_at = now;
            after.last_modified_by = user.clone();
        }
        after
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::insight::record::tests::{insight, instant, user};

    #[test]
    fn only_content_changes_the_modification_time() {
        let before = insight(1, json!({"name": "a"}));
        let later = instant("2024-01-02T00:00:00Z");
        let write = |body: Value| {
            let input = InsightInput::parse(body.as_object().unwrap()).unwrap();
            before.apply(&input, &user(2), later)
        };
        for body in [
            json!({}),
            json!({"favorited": true, "saved": 1, "tags": ["x"], "order": 3, "derived_name": "d"}),
        ] {
            let after = write(body);
            assert_eq!((after.updated_at, after.last_modified_at), (later, before.last_modified_at));
            assert_eq!(after.last_modified_by, user(1));
        }
        for body in [
            json!({"name": "a"}),
            json!({"description": null}),
            json!({"filters": {}}),
            json!({"query": null}),
        ] {
            let after = write(body);
            assert_eq!((after.last_modified_at, after.last_modified_by), (later, user(2)));
        }
        assert_eq!(write(json!({"name": ""})).name.as_deref(), Some(""));
        assert_eq!(write(json!({"name": null})).name, None);
        assert_eq!(write(json!({"description": "x"})).name.as_deref(), Some("a"));
    }
}
