//! Limits of requests and responses of every route, of keys, of capture and of the requests of SDKs.

use pennon_core::auth::{KEY_CACHE_SECONDS, TOKEN_BYTES_MAX, TOKEN_CACHE_TTL};
use pennon_core::limits::{api_keys, capture, evaluation};
use pennon_core::store::keys::QUERY_NAME_BYTES_MAX;
use pennon_core::throttle::Rates;
use pennon_core::{activity, config, http, idempotency, store};
use pennon_eventstore::MERGES_MAX;

use super::Tested::{Both, Past, Rule};
use super::{Row, Section};

const CAPTURE: &str = "functions/capture/src/tests.rs::limits_hold_at_the_limit_and_one_past_it";
const EVALUATION: &str =
    "functions/flags/src/evaluation/request.rs::limits_hold_at_the_limit_and_one_past_it";
const SDK_BODIES: &str = "tests/tests/http/evaluation.rs::bodies_are_read_up_to_their_limits";
const KEY_FIELDS: &str =
    "tests/tests/http/key_management.rs::each_wrong_field_is_named_and_nothing_is_created";
const LISTS: &str = "tests/tests/http/flag_limits.rs::parameters_of_lists_are_validated";
const TOO_LARGE: &str = "413 `payload_too_large`";
const MAX_LENGTH: &str = "400 `max_length`";

pub(super) const SECTIONS: &[Section] = &[
    Section { title: "Requests and responses", text: "", rows: REQUESTS },
    Section {
        title: "Rates",
        text: "Off by default; the numbers are those of `on` ([operations.md](operations.md#rate-limits)). Counted per API key and sharing token.",
        rows: RATES,
    },
    Section { title: "API keys and tokens", text: "", rows: KEYS },
    Section { title: "Capture", text: "", rows: CAPTURED },
    Section { title: "Evaluation by SDKs", text: "", rows: EVALUATED },
];

const REQUESTS: &[Row] = &[
    row!(
        http::BODY_BYTES_MAX,
        "bytes",
        "Body of a request, as sent",
        TOO_LARGE,
        Both("tests/tests/http/flag_limits.rs::a_body_may_have_six_million_bytes")
    ),
    row!(
        http::NESTING_MAX,
        "levels",
        "Lists and objects in a JSON body, itself included",
        "400 `parse_error`",
        Both("tests/tests/http/record_limits.rs::a_body_is_nested_sixty_four_levels")
    ),
    row!(
        http::GATEWAY_BYTES_MAX,
        "bytes",
        "Response, as the gateway counts it: compressed ones as base64",
        "400 that names the largest possible `limit`",
        Both("shared/core/src/http/response.rs::bodies_fit_up_to_the_gateway_limit")
    ),
    row!(
        http::GZIP_ABOVE_BYTES,
        "bytes",
        "Response that is not compressed for the gateway",
        "compressed, if the request accepts gzip",
        Both("shared/core/src/http/response.rs::only_long_bodies_are_compressed_and_only_if_accepted")
    ),
    row!(http::LIMIT_MAX, "records", "`limit` of a page", "reduced to it", Past(LISTS)),
    row!(
        activity::LIMIT_MAX,
        "entries",
        "`limit` of a page of an activity log",
        "reduced to it",
        Past("tests/tests/http/activity.rs::pages_have_limits_links_and_an_end")
    ),
    row!(
        idempotency::BYTES_MAX,
        "bytes",
        "`Idempotency-Key`",
        "400, `attr` is `Idempotency-Key`",
        Both("tests/tests/http/idempotency.rs::a_key_has_one_to_255_bytes")
    ),
    row!(
        QUERY_NAME_BYTES_MAX,
        "bytes",
        "`client_query_id`",
        MAX_LENGTH,
        Both("tests/tests/http/background.rs::a_caller_may_name_its_calculation_and_cancel_it")
    ),
    row!(
        config::RESPONSE_SECONDS_MAX,
        "seconds",
        "Time of a calculation within a request",
        "continues in the background; the response is 503 with `Retry-After`, or a query status",
        Both("shared/core/src/config.rs::response_seconds_are_between_1_and_25")
    ),
    row!(
        store::PARTED_BYTES_MAX,
        "bytes",
        "Stored record, as JSON, compressed",
        "400 `invalid_input`",
        Past("tests/tests/http/large_records.rs::a_body_beyond_the_limit_is_refused_and_nothing_is_written")
    ),
];

const RATES: &[Row] = &[
    computed!(
        "burst",
        Rates::default().burst,
        "requests a minute",
        "All routes but flag definitions (`burst`)",
        "429 `throttled`, `Retry-After`",
        Rule("tests/tests/http/throttle.rs::a_call_beyond_the_limit_has_retry_after")
    ),
    computed!(
        "sustained",
        Rates::default().sustained,
        "requests an hour",
        "The same routes (`sustained`)",
        "429 `throttled`, `Retry-After`",
        Rule("tests/tests/http/throttle.rs::the_hour_is_limited_too")
    ),
    computed!(
        "definitions",
        Rates::default().definitions,
        "requests a minute",
        "Flag definitions (`definitions`)",
        "429 `throttled`, `Retry-After`",
        Rule("tests/tests/http/throttle.rs::definitions_have_a_limit_of_their_own")
    ),
];

const KEYS: &[Row] = &[
    row!(api_keys::LABEL_CHARS, "characters", "Label of a key", MAX_LENGTH, Both(KEY_FIELDS)),
    row!(
        api_keys::LIST,
        "entries",
        "Scopes, projects or organizations of a key",
        MAX_LENGTH,
        Both(KEY_FIELDS)
    ),
    row!(
        api_keys::KEYS_PER_USER,
        "keys",
        "Keys of a user",
        "400 `max_keys`",
        Both(
            "tests/tests/http/key_management.rs::a_user_has_at_most_a_hundred_keys_and_two_requests_no_key_of_the_same_label"
        )
    ),
    row!(
        TOKEN_BYTES_MAX,
        "bytes",
        "Project token in a workspace file",
        "`pennon apply` rejects the file",
        Both("cli/src/workspace/tests.rs::a_project_token_has_at_most_two_hundred_bytes")
    ),
    row!(
        KEY_CACHE_SECONDS,
        "seconds",
        "Age of a cached key: how long a revoked or changed key still works",
        "read again",
        Both("shared/core/src/auth/cache.rs::a_key_is_cached_for_less_than_five_seconds")
    ),
    computed!(
        "TOKEN_CACHE_TTL",
        TOKEN_CACHE_TTL.as_secs(),
        "seconds",
        "Age of a cached project token: how long a replaced token still works",
        "read again",
        Both("shared/core/src/auth/token_cache.rs::a_token_is_cached_for_less_than_five_seconds")
    ),
];

const CAPTURED: &[Row] = &[
    row!(
        capture::INFLATED_BYTES_MAX,
        "bytes",
        "Body after decompression",
        TOO_LARGE,
        Both("functions/capture/src/tests.rs::a_body_is_decompressed_up_to_the_limit")
    ),
    row!(capture::EVENTS_MAX, "events", "Events of a request", TOO_LARGE, Both(CAPTURE)),
    row!(
        capture::EVENT_BYTES_MAX,
        "bytes",
        "One event, as JSON without whitespace",
        TOO_LARGE,
        Both(CAPTURE)
    ),
    row!(
        capture::NESTING_MAX,
        "levels",
        "Lists and objects in stored fields",
        "400 `parse_error`",
        Both(CAPTURE)
    ),
    row!(capture::NAME_CHARS_MAX, "characters", "Event name", "truncated", Both(CAPTURE)),
    row!(capture::DISTINCT_ID_CHARS_MAX, "characters", "Distinct id", "truncated", Both(CAPTURE)),
    row!(
        capture::OFFSET_MS_MAX,
        "milliseconds",
        "`offset` of an event, either way; the number itself is excluded",
        "400",
        Both("functions/capture/src/tests.rs::errors_name_the_missing_or_invalid_field")
    ),
    row!(
        MERGES_MAX,
        "merges",
        "Merges of persons in a request",
        TOO_LARGE,
        Both("functions/capture/tests/capture.rs::a_request_merges_a_limited_number_of_persons")
    ),
];

const EVALUATED: &[Row] = &[
    row!(evaluation::BODY_BYTES_MAX, "bytes", "Body as sent", TOO_LARGE, Both(SDK_BODIES)),
    row!(evaluation::INFLATED_BYTES_MAX, "bytes", "Body after decompression", TOO_LARGE, Both(SDK_BODIES)),
    row!(
        evaluation::RESPONSE_BYTES_MAX,
        "bytes",
        "Response before compression",
        "500 `server_error`; `flag_keys` selects fewer flags",
        Both("tests/tests/http/evaluation_limits.rs::a_response_above_its_limit_is_an_error")
    ),
    row!(evaluation::FLAG_KEYS_MAX, "keys", "`flag_keys`", "400", Both(EVALUATION)),
    row!(
        evaluation::ID_CHARS_MAX,
        "characters",
        "Group key, device id, anonymous id",
        "400",
        Both(EVALUATION)
    ),
    row!(evaluation::DISTINCT_ID_CHARS_MAX, "characters", "Distinct id", "truncated", Both(EVALUATION)),
    row!(
        evaluation::NESTING_MAX,
        "levels",
        "Lists and objects in the value of a property",
        "400",
        Both(EVALUATION)
    ),
];
