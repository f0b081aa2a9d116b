//! Tracing settings from OpenTelemetry's environment variables.

use std::time::Duration;

use axum::http::Uri;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::trace_context::TraceContext;

/// Default export timeout: less than OpenTelemetry's ten seconds, because a function waits for it.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings.
#[derive(Debug)]
pub(super) struct TraceSettings {
    /// The collector's URL.
    pub endpoint: Uri,
    /// Headers of export requests.
    pub headers: Vec<(String, String)>,
    pub timeout: Duration,
    /// The OTLP resource of all spans.
    pub resource: Value,
    pub sampler: Sampler,
    /// Whether the header `traceparent` of requests is used.
    pub reads_traceparent: bool,
}

/// Decides which requests are traced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// Whether the caller's sampling decision takes precedence over the ratio.
    by_parent: bool,
    /// The ratio of sampled traces, from 0 to 1.
    ratio: f64,
}

impl Sampler {
    /// The decision depends on the trace id only, so that every service samples the same traces.
    pub fn samples(self, context: &TraceContext) -> bool {
        if self.by_parent && context.parent_span.is_some() {
            return context.is_sampled;
        }
        let [.., a, b, c, d, e, f, g, h] = context.trace;
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
        self.ratio >= 1.0 || (number as f64) < self.ratio * (1_u64 << 63) as f64
    }

    fn parse(name: &str, argument: Option<&str>) -> Result<Sampler, String> {
        let (by_parent, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, name),
        };
        let invalid = || format!("OTEL_TRACES_SAMPLER_ARG is not a ratio from 0 to 1: {argument:?}");
        let ratio = match kind {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => match argument {
                Some(text) => text.trim().parse::<f64>().map_err(|_| invalid())?,
                None => 1.0,
            },
            _ => return Err(format!("OTEL_TRACES_SAMPLER is not a supported sampler: {name}")),
        };
        if (0.0..=1.0).contains(&ratio) { Ok(Sampler { by_parent, ratio }) } else { Err(invalid()) }
    }
}

impl TraceSettings {
    /// Reads the settings. `None` if no collector is configured or tracing is disabled; an error message if they are invalid.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<TraceSettings>, String> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        let traces_variable = |name: &str| {
            variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or(variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let full = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
        let base = base.map(|base| format!("{}/v1/traces", base.trim_end_matches('/')));
        let Some(endpoint) = full.or(base).filter(|_| !is_off) else { return Ok(None) };
        if let Some(protocol) = traces_variable("PROTOCOL").filter(|protocol| protocol == "grpc") {
            return Err(format!("OTEL_EXPORTER_OTLP_PROTOCOL: {protocol} is not supported; use http/json"));
        }
        let uri: Uri = endpoint.parse().map_err(|_| format!("not a valid collector URL: {endpoint}"))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            return Err(format!("the collector must be on the same host and use plain http: {endpoint}"));
        }
        let timeout = traces_variable("TIMEOUT").and_then(|text| text.trim().parse().ok());
        let sampler = variable("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
        let propagators = variable("OTEL_PROPAGATORS");
        Ok(Some(TraceSettings {
            endpoint: uri,
            headers: parse_pairs(&traces_variable("HEADERS").unwrap_or_default()),
            timeout: timeout.map_or(DEFAULT_TIMEOUT, Duration::from_millis),
            resource: resource(&variable),
            sampler: Sampler::parse(&sampler, variable("OTEL_TRACES_SAMPLER_ARG").as_deref())?,
            reads_traceparent: propagators
                .is_none_or(|all| all.split(',').any(|one| one.trim() == "tracecontext")),
        }))
    }
}

/// Parses `name=value` pairs separated by commas, with percent-encoded values.
fn parse_pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
        Some((name.trim().to_owned(), value)).filter(|(name, _)| !name.is_empty())
    };
    text.split(',').filter_map(pair).collect()
}

/// The OTLP resource: service name, function name and configured attributes.
fn resource(variable: &impl Fn(&str) -> Option<String>) -> Value {
    let mut attributes = parse_pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    let function = variable("AWS_LAMBDA_FUNCTION_NAME");
    let has_service_name = attributes.iter().any(|(name, _)| name == "service.name");
    let default_name = (!has_service_name).then(|| function.clone().unwrap_or_else(|| "pennon".to_owned()));
    if let Some(name) = variable("OTEL_SERVICE_NAME").or(default_name) {
        attributes.retain(|(name, _)| name != "service.name");
        attributes.push(("service.name".to_owned(), name));
    }
    attributes.extend(function.map(|name| ("faas.name".to_owned(), name)));
    let attribute = |(name, value): (String, String)| json!({"key": name, "value": {"stringValue": value}});
    json!({"attributes": attributes.into_iter().map(attribute).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Option<TraceSettings>, String> {
        TraceSettings::read(|name| {
            set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/");

    #[test]
    fn tracing_is_enabled_by_configuring_a_collector() {
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]).unwrap().is_none());
        assert!(read(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]).unwrap().is_none());
        assert_eq!(read(&[ENDPOINT]).unwrap().unwrap().endpoint, "http://localhost:4318/v1/traces");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1/x");
        assert_eq!(read(&[ENDPOINT, own]).unwrap().unwrap().endpoint, "http://c:1/x", "as it is");
        for wrong in ["https://c:1", "c:1", "http://"] {
            assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", wrong)]).is_err(), "{wrong}");
        }
        assert!(read(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).is_err());
    }

    #[test]
    fn headers_and_resource_attributes_are_parsed() {
        let set = [
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, other = c"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_SERVICE_NAME", "flags"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=test"),
        ];
        let settings = read(&set).unwrap().unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(settings.headers, [pair("api-key", "a b"), pair("other", "c")]);
        assert_eq!(settings.timeout, Duration::from_millis(250));
        let attribute = |name: &str, value: &str| json!({"key": name, "value": {"stringValue": value}});
        let attributes =
            [attribute("deployment.environment.name", "test"), attribute("service.name", "flags")];
        assert_eq!(settings.resource, json!({"attributes": attributes}));
    }

    #[test]
    fn samplers_follow_their_names() {
        let context = |low: u8, sampled: Option<bool>| TraceContext {
            trace: [0, 0, 0, 0, 0, 0, 0, 0, low, 0, 0, 0, 0, 0, 0, 1],
            parent_span: sampled.map(|_| [1; 8]),
            is_sampled: sampled == Some(true),
        };
        let samples = |name: &str, argument: Option<&str>, context: &TraceContext| {
            Sampler::parse(name, argument).unwrap().samples(context)
        };
        assert!(samples("always_on", None, &context(0, Some(false))));
        assert!(!samples("always_off", None, &context(0, Some(true))));
        assert!(samples("parentbased_always_off", None, &context(0, Some(true))));
        assert!(!samples("parentbased_always_on", None, &context(0, Some(false))));
        assert!(samples("parentbased_always_on", None, &context(0xff, None)));
        assert!(samples("traceidratio", Some("0.25"), &context(0x3f, None)));
        assert!(!samples("traceidratio", Some("0.25"), &context(0x40, None)));
        for (name, argument) in
            [("sometimes", None), ("traceidratio", Some("2")), ("traceidratio", Some("x"))]
        {
            assert!(Sampler::parse(name, argument).is_err(), "{name} {argument:?}");
        }
    }
}
