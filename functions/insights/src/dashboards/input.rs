//! Validation of the bodies of writes of dashboards.
//!
//! Must stay true: the first invalid field is reported, in the order of [`DashboardInput`]; unsupported fields are rejected,
//! never ignored.

use std::collections::BTreeMap;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Fields;
use pennon_filters::body::FieldError;
use pennon_filters::body::fields::{self, BodyField, TextRule, invalid_choice};
use pennon_filters::body::{json, python};
use serde_json::{Map, Value};

use crate::limits;
use crate::placement::{COLLABORATORS_EDIT, MEMBERS_EDIT};
use crate::resource::body::{Body, invalid};

/// The writable fields of a body; `None` is absent.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::option_option, reason = "absent and null are different")]
pub struct DashboardInput {
    /// `name`
    pub name: Option<Option<String>>,
    /// `description`
    pub description: Option<String>,
    /// `pinned`
    pub pinned: Option<bool>,
    /// `tags`
    pub tags: Option<Vec<String>>,
    /// `filters`
    pub filters: Option<Map<String, Value>>,
    /// `restriction_level`
    pub restriction_level: Option<u8>,
    /// `deleted`
    pub deleted: Option<bool>,
    /// `delete_insights`: a deletion also deletes the insights that are on no other dashboard.
    pub delete_insights: bool,
    /// `tiles`, by their ids.
    pub tiles: BTreeMap<u64, TileInput>,
}

/// The writable fields of a tile.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::option_option, reason = "absent and null are different")]
pub struct TileInput {
    /// `layouts`
    pub layouts: Option<Value>,
    /// `color`
    pub color: Option<Option<String>>,
}

impl DashboardInput {
    /// Validates a body. Only an update has tiles.
    pub fn parse(fields: &Fields, is_update: bool) -> ApiResult<DashboardInput> {
        let body = Body(fields);
        body.reject_unsupported(&["use_template", "use_dashboard", "duplicate_tiles", "variables"])?;
        let level = BodyField::of(fields, "restriction_level").sent(restriction_level).map_err(invalid)?;
        Ok(DashboardInput {
            name: body.name(true)?,
            description: body.text("description", limits::DESCRIPTION_CHARS)?,
            pinned: body.boolean("pinned")?,
            tags: body.tags("A dashboard")?,
            filters: body.object("filters")?,
            restriction_level: level,
            deleted: body.boolean("deleted")?,
            delete_insights: body.boolean("delete_insights")?.unwrap_or(false),
            tiles: match is_update {
                true => body.list("tiles")?.map(|list| tiles(&list)).transpose()?.unwrap_or_default(),
                false => BTreeMap::new(),
            },
        })
    }
}

fn restriction_level(name: &str, value: &Value) -> Result<u8, FieldError> {
    let level = fields::as_integer(value).and_then(|level| u8::try_from(level).ok());
    let known = level.filter(|level| [MEMBERS_EDIT, COLLABORATORS_EDIT].contains(level));
    known.ok_or_else(|| invalid_choice(name, &python::text(value)))
}

fn tiles(list: &[Value]) -> ApiResult<BTreeMap<u64, TileInput>> {
    if list.len() > limits::DASHBOARD_TILES {
        let detail = format!("A dashboard must not have more than {} tiles.", limits::DASHBOARD_TILES);
        return Err(ApiError::invalid("invalid_input", detail, Some("tiles")));
    }
    let mut tiles = BTreeMap::new();
    for (at, sent) in list.iter().enumerate() {
        let (id, tile) = tile(at, sent).map_err(invalid)?;
        tiles.insert(id, tile);
    }
    Ok(tiles)
}

fn tile(at: usize, sent: &Value) -> Result<(u64, TileInput), FieldError> {
    const COLOR: TextRule = TextRule { max_chars: limits::TEXT_CHARS, blank: true, trim: false };
    let sent = fields::object(&format!("tiles__{at}"), sent)?;
    let attr = |name: &str| format!("tiles__{at}__{name}");
    let (id, layouts, color) = (attr("id"), attr("layouts"), attr("color"));
    for name in ["text", "button_tile", "deleted", "filters_overrides"] {
        if sent.get(name).is_some_and(|value| !json::is_nothing(value)) {
            return Err(FieldError::invalid(&attr(name), format!("Not supported yet: {name} of a tile.")));
        }
    }
    let number = |name: &str, value: &Value| {
        let number = fields::integer(name, value, None)?;
        u64::try_from(number).map_err(|_| fields::does_not_exist(name, number))
    };
    let object = |name: &str, value: &Value| {
        if json::text_bytes(value) > limits::LAYOUTS_BYTES {
            let detail =
                format!("layouts must not be larger than {} KiB as JSON.", limits::LAYOUTS_BYTES / 1024);
            return Err(FieldError::invalid(name, detail));
        }
        fields::object(name, value).map(|object| Value::Object(object.clone()))
    };
    let tile = TileInput {
        layouts: BodyField::new(&layouts, sent.get("layouts")).sent(object)?,
        color: BodyField::new(&color, sent.get("color"))
            .nullable(|name, value| fields::string(name, value, COLOR))?,
    };
    Ok((BodyField::new(&id, sent.get("id")).required(number)?, tile))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parse(body: Value) -> ApiResult<DashboardInput> {
        DashboardInput::parse(body.as_object().unwrap(), true)
    }

    #[test]
    fn a_wrong_field_is_named() {
        let many = |count: usize| json!({"tiles": vec![json!({"id": 1}); count]});
        let large = json!({"tiles": [{"id": 1, "layouts": {"a": "x".repeat(limits::LAYOUTS_BYTES)}}]});
        for (body, code, attr) in [
            (json!({"name": "x".repeat(401)}), "max_length", "name"),
            (json!({"description": {}}), "invalid_input", "description"),
            (json!({"pinned": null}), "null", "pinned"),
            (json!({"tags": {}}), "not_a_list", "tags"),
            (json!({"filters": []}), "not_a_dict", "filters"),
            (json!({"filters": "x"}), "invalid_input", "filters"),
            (json!({"restriction_level": 5}), "invalid_choice", "restriction_level"),
            (json!({"restriction_level": "all"}), "invalid_choice", "restriction_level"),
            (json!({"use_template": "x"}), "invalid_input", "use_template"),
            (json!({"tiles": {}}), "not_a_list", "tiles"),
            (json!({"tiles": [1]}), "not_a_dict", "tiles__0"),
            (json!({"tiles": [{}]}), "required", "tiles__0__id"),
            (json!({"tiles": [{"id": "x"}]}), "invalid_input", "tiles__0__id"),
            (json!({"tiles": [{"id": 1, "layouts": []}]}), "not_a_dict", "tiles__0__layouts"),
            (json!({"tiles": [{"id": 1, "color": {}}]}), "invalid_input", "tiles__0__color"),
            (json!({"tiles": [{"id": 1}, {"id": 2, "deleted": true}]}), "invalid_input", "tiles__1__deleted"),
            (json!({"tiles": [{"text": {"body": "x"}}]}), "invalid_input", "tiles__0__text"),
            (large, "invalid_input", "tiles__0__layouts"),
            (many(limits::DASHBOARD_TILES + 1), "invalid_input", "tiles"),
        ] {
            let error = parse(body.clone()).unwrap_err().body();
            assert_eq!((&error["code"], &error["attr"]), (&json!(code), &json!(attr)), "{body}");
        }
        assert!(parse(many(limits::DASHBOARD_TILES)).is_ok());
        let tile =
            parse(json!({"tiles": [{"id": "7", "layouts": {"sm": {"x": 1}}, "color": null}]})).unwrap();
        let expected = TileInput { layouts: Some(json!({"sm": {"x": 1}})), color: Some(None) };
        assert_eq!(tile.tiles, BTreeMap::from([(7, expected)]));
        let new = json!({"name": "", "restriction_level": "37", "tiles": 5, "use_template": ""});
        let new = DashboardInput::parse(new.as_object().unwrap(), false).unwrap();
        assert_eq!((new.name, new.restriction_level), (Some(Some(String::new())), Some(37)));
    }
}
