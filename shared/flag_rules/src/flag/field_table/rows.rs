//! The rows of the table.
//!
//! A new field of [`Flag`] is a row here, at its place in responses; as a position it gets the next free one.

use pennon_filters::body::fields::{TextRule, boolean, datetime, integer, string, tags};
use serde_json::Value;

use super::{
    DefinitionRule, DefinitionsValue, FieldKind, FieldValue, FieldWrite, FlagField, LogRule, RequestValue,
    ResponseValue, Sortable, WorkspaceRule,
};
use crate::flag::input::{
    DEVICE_ID, one_of, parse_dashboards, parse_filters, parse_key, parse_rollback_conditions,
};
use crate::flag::status::Status;
use crate::flag::{Flag, FlagRow, UserAccessLevel};
use crate::limits;

/// The parts of the product that can create a flag.
const CREATION_CONTEXTS: [&str; 6] =
    ["feature_flags", "experiments", "surveys", "early_access_features", "web_experiments", "product_tours"];
/// Where a flag may be evaluated.
const EVALUATION_RUNTIMES: [&str; 3] = ["server", "client", "all"];
/// The identifiers that can be hashed.
const BUCKETING_IDENTIFIERS: [&str; 2] = ["distinct_id", DEVICE_ID];
const NAME: TextRule = TextRule { max_chars: limits::NAME_CHARS, blank: true, trim: false };

/// A field that is not in the record: the other properties are added to it.
const NOT_STORED: FlagField = FlagField {
    name: "",
    kind: FieldKind::AnyJson,
    nullable: false,
    stored: |_| FieldValue::Null,
    write: FieldWrite::Ignored,
    response: ResponseValue::Absent,
    log: LogRule::No,
    sort: Sortable::No,
    definitions: DefinitionRule::No,
    workspace: WorkspaceRule::No,
};

/// A field that is always an empty list.
const fn empty_list(name: &'static str, definitions: DefinitionRule) -> FlagField {
    FlagField {
        name,
        kind: FieldKind::EmptyList,
        response: ResponseValue::Computed(|_| Value::Array(Vec::new())),
        definitions,
        ..NOT_STORED
    }
}

/// All fields of a flag: first those of responses, in their order, then those that only requests or definitions have.
pub static FLAG_FIELDS: [FlagField; 37] = [
    FlagField {
        name: "id",
        kind: FieldKind::Id,
        nullable: false,
        stored: |flag| (&flag.id).into(),
        write: FieldWrite::Ignored,
        response: ResponseValue::Stored,
        log: LogRule::No,
        sort: Sortable::At(1, |left, right, _| left.id.cmp(&right.id)),
        definitions: DefinitionRule::At(1, DefinitionsValue::Stored),
        workspace: WorkspaceRule::No,
    },
    FlagField {
        name: "name",
        kind: FieldKind::Text(NAME),
        nullable: false,
        stored: |flag| (&flag.name).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| {
                sent.not_null(|name, value| string(name, value, NAME), &mut input.values.name)
            },
            apply: |flag, values| flag.name.clone_from(&values.name),
        },
        response: ResponseValue::Stored,
        log: LogRule::At(2),
        sort: Sortable::At(3, |left, right, _| left.name.cmp(&right.name)),
        definitions: DefinitionRule::At(3, DefinitionsValue::Stored),
        workspace: WorkspaceRule::At(2),
    },
    FlagField {
        name: "key",
        kind: FieldKind::Key,
        nullable: false,
        stored: |flag| (&flag.key).into(),
        write: FieldWrite::Stored {
            parse: parse_key,
            apply: |flag, values| flag.key.clone_from(&values.key),
        },
        response: ResponseValue::Stored,
        log: LogRule::At(1),
        sort: Sortable::At(2, |left, right, _| left.key.cmp(&right.key)),
        definitions: DefinitionRule::At(4, DefinitionsValue::Stored),
        workspace: WorkspaceRule::At(1),
    },
    FlagField {
        name: "filters",
        kind: FieldKind::Filters,
        nullable: false,
        stored: |flag| (&flag.filters).into(),
        write: FieldWrite::Stored {
            parse: parse_filters,
            apply: |flag, values| flag.filters.clone_from(&values.filters),
        },
        response: ResponseValue::Filters,
        log: LogRule::At(3),
        sort: Sortable::No,
        definitions: DefinitionRule::At(5, DefinitionsValue::Filters),
        workspace: WorkspaceRule::IfSetAt(3),
    },
    FlagField {
        name: "deleted",
        kind: FieldKind::Boolean,
        nullable: false,
        stored: |flag| (&flag.deleted).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| sent.not_null(boolean, &mut input.values.deleted),
            apply: |flag, values| flag.deleted = values.deleted,
        },
        response: ResponseValue::Stored,
        log: LogRule::At(4),
        sort: Sortable::No,
        definitions: DefinitionRule::At(6, DefinitionsValue::AlwaysFalse),
        workspace: WorkspaceRule::IfSetAt(5),
    },
    FlagField {
        name: "active",
        kind: FieldKind::Boolean,
        nullable: false,
        stored: |flag| (&flag.active).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| sent.not_null(boolean, &mut input.values.active),
            apply: |flag, values| flag.active = values.active,
        },
        response: ResponseValue::Stored,
        log: LogRule::At(5),
        sort: Sortable::At(6, |left, right, _| left.active.cmp(&right.active)),
        definitions: DefinitionRule::At(7, DefinitionsValue::Stored),
        workspace: WorkspaceRule::At(4),
    },
    FlagField {
        name: "created_by",
        kind: FieldKind::User,
        nullable: true,
        stored: |flag| (&flag.created_by).into(),
        write: FieldWrite::Ignored,
        response: ResponseValue::Stored,
        log: LogRule::No,
        sort: Sortable::No,
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::No,
    },
    FlagField {
        name: "created_at",
        kind: FieldKind::Instant,
        nullable: false,
        stored: |flag| (&flag.created_at).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| sent.not_null(datetime, &mut input.values.created_at),
            apply: |flag, values| flag.created_at = values.created_at,
        },
        response: ResponseValue::Stored,
        log: LogRule::No,
        sort: Sortable::At(4, |left, right, _| left.created_at.cmp(&right.created_at)),
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::At(6),
    },
    FlagField {
        name: "updated_at",
        kind: FieldKind::Instant,
        nullable: false,
        stored: |flag| (&flag.updated_at).into(),
        write: FieldWrite::Ignored,
        response: ResponseValue::Stored,
        log: LogRule::No,
        sort: Sortable::At(5, |left, right, _| left.updated_at.cmp(&right.updated_at)),
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::No,
    },
    FlagField {
        name: "version",
        kind: FieldKind::Integer,
        nullable: false,
        stored: |flag| (&flag.version).into(),
        write: FieldWrite::Rule(|sent, input| {
            sent.not_null(|name, value| integer(name, value, None).map(Some), &mut input.version)
        }),
        response: ResponseValue::Stored,
        log: LogRule::At(6),
        sort: Sortable::At(7, |left, right, _| left.version.cmp(&right.version)),
        definitions: DefinitionRule::At(10, DefinitionsValue::Stored),
        workspace: WorkspaceRule::No,
    },
    FlagField {
        name: "original_flag",
        kind: FieldKind::AnyJson,
        write: FieldWrite::ConflictCheckOnly,
        ..NOT_STORED
    },
    FlagField {
        name: "last_modified_by",
        kind: FieldKind::User,
        nullable: true,
        stored: |flag| (&flag.last_modified_by).into(),
        write: FieldWrite::Ignored,
        response: ResponseValue::Stored,
        log: LogRule::No,
        sort: Sortable::No,
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::No,
    },
    FlagField {
        name: "is_simple_flag",
        kind: FieldKind::Boolean,
        response: ResponseValue::Computed(|flag| flag.is_simple().into()),
        ..NOT_STORED
    },
    FlagField {
        name: "rollout_percentage",
        kind: FieldKind::Percentage,
        nullable: true,
        response: ResponseValue::Computed(Flag::rollout_percentage),
        ..NOT_STORED
    },
    FlagField {
        name: "ensure_experience_continuity",
        kind: FieldKind::Boolean,
        nullable: true,
        stored: |flag| (&flag.ensure_experience_continuity).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| sent.nullable(boolean, &mut input.values.ensure_experience_continuity),
            apply: |flag, values| flag.ensure_experience_continuity = values.ensure_experience_continuity,
        },
        response: ResponseValue::Stored,
        log: LogRule::At(9),
        sort: Sortable::No,
        definitions: DefinitionRule::At(8, DefinitionsValue::Stored),
        workspace: WorkspaceRule::At(8),
    },
    empty_list("experiment_set", DefinitionRule::No),
    empty_list("surveys", DefinitionRule::No),
    empty_list("features", DefinitionRule::No),
    FlagField {
        name: "rollback_conditions",
        kind: FieldKind::AnyJson,
        nullable: false,
        stored: |flag| (&flag.rollback_conditions).into(),
        write: FieldWrite::Stored {
            parse: parse_rollback_conditions,
            apply: |flag, values| flag.rollback_conditions.clone_from(&values.rollback_conditions),
        },
        response: ResponseValue::Stored,
        log: LogRule::At(7),
        sort: Sortable::No,
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::IfSetAt(9),
    },
    FlagField {
        name: "performed_rollback",
        kind: FieldKind::Boolean,
        nullable: true,
        stored: |flag| (&flag.performed_rollback).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| sent.nullable(boolean, &mut input.values.performed_rollback),
            apply: |flag, values| flag.performed_rollback = values.performed_rollback,
        },
        response: ResponseValue::Stored,
        log: LogRule::At(8),
        sort: Sortable::No,
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::At(10),
    },
    FlagField {
        name: "can_edit",
        kind: FieldKind::Boolean,
        response: ResponseValue::PerRequest(RequestValue::CanEdit),
        ..NOT_STORED
    },
    FlagField {
        name: "tags",
        kind: FieldKind::Tags,
        nullable: false,
        stored: |flag| (&flag.tags).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| {
                sent.not_null(|name, value| tags(name, value, "A feature flag"), &mut input.values.tags)
            },
            apply: |flag, values| flag.tags.clone_from(&values.tags),
        },
        response: ResponseValue::Stored,
        log: LogRule::ListAt(15),
        sort: Sortable::No,
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::At(7),
    },
    empty_list("evaluation_tags", DefinitionRule::At(13, DefinitionsValue::EmptyList)),
    empty_list("evaluation_contexts", DefinitionRule::At(14, DefinitionsValue::EmptyList)),
    FlagField {
        name: "usage_dashboard",
        kind: FieldKind::Id,
        nullable: true,
        stored: |flag| (&flag.usage_dashboard).into(),
        write: FieldWrite::Ignored,
        response: ResponseValue::Stored,
        log: LogRule::No,
        sort: Sortable::No,
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::No,
    },
    FlagField {
        name: "analytics_dashboards",
        kind: FieldKind::Dashboards,
        nullable: false,
        stored: |flag| (&flag.analytics_dashboards).into(),
        write: FieldWrite::Stored { parse: parse_dashboards, apply: Flag::add_dashboards },
        response: ResponseValue::Stored,
        log: LogRule::No,
        sort: Sortable::No,
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::At(11),
    },
    FlagField {
        name: "has_enriched_analytics",
        kind: FieldKind::Boolean,
        nullable: true,
        stored: |flag| (&flag.has_enriched_analytics).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| sent.nullable(boolean, &mut input.values.has_enriched_analytics),
            apply: |flag, values| flag.has_enriched_analytics = values.has_enriched_analytics,
        },
        response: ResponseValue::Stored,
        log: LogRule::At(10),
        sort: Sortable::No,
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::At(12),
    },
    FlagField {
        name: "user_access_level",
        kind: FieldKind::OneOf(&UserAccessLevel::NAMES),
        response: ResponseValue::PerRequest(RequestValue::UserAccessLevel),
        ..NOT_STORED
    },
    FlagField {
        name: "creation_context",
        kind: FieldKind::OneOf(&CREATION_CONTEXTS),
        nullable: true,
        stored: |flag| (&flag.creation_context).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| {
                sent.nullable(one_of(&CREATION_CONTEXTS), &mut input.values.creation_context)
            },
            apply: |flag, values| flag.creation_context.clone_from(&values.creation_context),
        },
        response: ResponseValue::Stored,
        log: LogRule::No,
        sort: Sortable::No,
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::At(13),
    },
    FlagField {
        name: "is_remote_configuration",
        kind: FieldKind::Boolean,
        nullable: true,
        stored: |flag| (&flag.is_remote_configuration).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| sent.nullable(boolean, &mut input.values.is_remote_configuration),
            apply: |flag, values| flag.is_remote_configuration = values.is_remote_configuration,
        },
        response: ResponseValue::Stored,
        log: LogRule::At(11),
        sort: Sortable::No,
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::At(14),
    },
    FlagField {
        name: "has_encrypted_payloads",
        kind: FieldKind::Boolean,
        nullable: true,
        stored: |flag| (&flag.has_encrypted_payloads).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| sent.nullable(boolean, &mut input.values.has_encrypted_payloads),
            apply: |flag, values| flag.has_encrypted_payloads = values.has_encrypted_payloads,
        },
        response: ResponseValue::Stored,
        log: LogRule::At(12),
        sort: Sortable::No,
        definitions: DefinitionRule::At(9, DefinitionsValue::FalseIfNull),
        workspace: WorkspaceRule::At(15),
    },
    FlagField {
        name: "status",
        kind: FieldKind::OneOf(&Status::RECORD_VALUES),
        response: ResponseValue::PerRequest(RequestValue::Status),
        ..NOT_STORED
    },
    FlagField {
        name: "evaluation_runtime",
        kind: FieldKind::OneOf(&EVALUATION_RUNTIMES),
        nullable: true,
        stored: |flag| (&flag.evaluation_runtime).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| {
                sent.nullable(one_of(&EVALUATION_RUNTIMES), &mut input.values.evaluation_runtime)
            },
            apply: |flag, values| flag.evaluation_runtime.clone_from(&values.evaluation_runtime),
        },
        response: ResponseValue::Stored,
        log: LogRule::At(13),
        sort: Sortable::No,
        definitions: DefinitionRule::At(11, DefinitionsValue::OmittedIfNull),
        workspace: WorkspaceRule::At(16),
    },
    FlagField {
        name: "bucketing_identifier",
        kind: FieldKind::OneOf(&BUCKETING_IDENTIFIERS),
        nullable: true,
        stored: |flag| (&flag.bucketing_identifier).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| {
                sent.nullable(one_of(&BUCKETING_IDENTIFIERS), &mut input.values.bucketing_identifier)
            },
            apply: |flag, values| flag.bucketing_identifier.clone_from(&values.bucketing_identifier),
        },
        response: ResponseValue::Stored,
        log: LogRule::At(14),
        sort: Sortable::No,
        definitions: DefinitionRule::At(12, DefinitionsValue::OmittedIfNull),
        workspace: WorkspaceRule::At(17),
    },
    FlagField {
        name: "last_called_at",
        kind: FieldKind::CallTime,
        nullable: true,
        stored: |flag| (&flag.last_called_at).into(),
        write: FieldWrite::Stored {
            parse: |sent, input| sent.nullable(datetime, &mut input.values.last_called_at),
            apply: |flag, values| flag.last_called_at = values.last_called_at,
        },
        response: ResponseValue::PerRequest(RequestValue::LastCalledAt),
        log: LogRule::No,
        sort: Sortable::At(8, FlagRow::compare_latest_calls),
        definitions: DefinitionRule::No,
        workspace: WorkspaceRule::IfSetAt(18),
    },
    FlagField {
        name: "_should_create_usage_dashboard",
        kind: FieldKind::Boolean,
        write: FieldWrite::Rule(|sent, input| {
            sent.not_null(boolean, &mut input.should_create_usage_dashboard)
        }),
        ..NOT_STORED
    },
    FlagField {
        name: "team_id",
        kind: FieldKind::Id,
        definitions: DefinitionRule::At(2, DefinitionsValue::Project),
        ..NOT_STORED
    },
];
