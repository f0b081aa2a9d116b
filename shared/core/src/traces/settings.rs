//! What the environment says of traces, in OpenTelemetry's variables.

use std::time::Duration;

use axum::http::Uri;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::context::Parent;

/// How long a collector may take where nothing is said: less than OpenTelemetry's ten seconds, because a function waits.
const TIMEOUT: Duration = Duration::from_secs(1);

/// All of it.
#[derive(Debug)]
pub(super) struct Settings {
    /// Where spans are sent to.
    pub endpoint: Uri,
    /// Headers that are sent with them.
    pub headers: Vec<(String, String)>,
    pub timeout: Duration,
    /// Whose spans they are.
    pub resource: Value,
    pub sampler: Sampler,
    /// Whether requests may say of which trace they are.
    pub reads_parents: bool,
}

/// Which requests are traced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// Whether a request that says so is traced, and one that says not is not, whatever the share.
    by_parent: bool,
    /// The share of traces, of 1.
    share: f64,
}

impl Sampler {
    /// Traces are told by their numbers, so that every service takes the same ones.
    pub fn takes(self, context: &Parent) -> bool {
        if self.by_parent && context.span.is_some() {
            return context.is_sampled;
        }
        let [.., a, b, c, d, e, f, g, h] = context.trace;
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
        self.share >= 1.0 || (number as f64) < self.share * (1_u64 << 63) as f64
    }

    fn parse(name: &str, share: Option<&str>) -> Result<Sampler, String> {
        let (by_parent, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, name),
        };
        let wrong = || format!("OTEL_TRACES_SAMPLER_ARG is not a share from 0 to 1: {share:?}");
        let share = match kind {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => match share {
                Some(text) => text.trim().parse::<f64>().map_err(|_| wrong())?,
                None => 1.0,
            },
            _ => return Err(format!("OTEL_TRACES_SAMPLER names no sampler that is known: {name}")),
        };
        if (0.0..=1.0).contains(&share) { Ok(Sampler { by_parent, share }) } else { Err(wrong()) }
    }
}

impl Settings {
    /// None where nothing names a collector, or tracing is switched off.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Settings>, String> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        let of_traces = |name: &str| {
            variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or(variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let whole = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
        let base = base.map(|base| format!("{}/v1/traces", base.trim_end_matches('/')));
        let Some(endpoint) = whole.or(base).filter(|_| !is_off) else { return Ok(None) };
        if let Some(protocol) = of_traces("PROTOCOL").filter(|protocol| protocol == "grpc") {
            return Err(format!("OTEL_EXPORTER_OTLP_PROTOCOL: {protocol} is not spoken; use http/json"));
        }
        let uri: Uri = endpoint.parse().map_err(|_| format!("no address of a collector: {endpoint}"))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            return Err(format!("spans are sent to a collector beside this process, by http: {endpoint}"));
        }
        let timeout = of_traces("TIMEOUT").and_then(|text| text.trim().parse().ok());
        let sampler = variable("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
        let propagators = variable("OTEL_PROPAGATORS");
        Ok(Some(Settings {
            endpoint: uri,
            headers: pairs(&of_traces("HEADERS").unwrap_or_default()),
            timeout: timeout.map_or(TIMEOUT, Duration::from_millis),
            resource: resource(&variable),
            sampler: Sampler::parse(&sampler, variable("OTEL_TRACES_SAMPLER_ARG").as_deref())?,
            reads_parents: propagators
                .is_none_or(|all| all.split(',').any(|one| one.trim() == "tracecontext")),
        }))
    }
}

/// `name=value` pairs with commas between them, values percent-encoded.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
        Some((name.trim().to_owned(), value)).filter(|(name, _)| !name.is_empty())
    };
    text.split(',').filter_map(pair).collect()
}

/// The resource of spans, as OTLP has it.
fn resource(variable: &impl Fn(&str) -> Option<String>) -> Value {
    let mut attributes = pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    let function = variable("AWS_LAMBDA_FUNCTION_NAME");
    let named = attributes.iter().any(|(name, _)| name == "service.name");
    let other = (!named).then(|| function.clone().unwrap_or_else(|| "pennon".to_owned()));
    if let Some(name) = variable("OTEL_SERVICE_NAME").or(other) {
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

    fn read(set: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::read(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/");

    #[test]
    fn tracing_is_asked_for_by_naming_a_collector() {
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
    fn headers_and_names_are_read() {
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
    fn samplers_take_what_their_names_say() {
        let context = |low: u8, sampled: Option<bool>| Parent {
            trace: [0, 0, 0, 0, 0, 0, 0, 0, low, 0, 0, 0, 0, 0, 0, 1],
            span: sampled.map(|_| [1; 8]),
            is_sampled: sampled == Some(true),
        };
        let takes = |name: &str, share: Option<&str>, context: &Parent| {
            Sampler::parse(name, share).unwrap().takes(context)
        };
        assert!(takes("always_on", None, &context(0, Some(false))));
        assert!(!takes("always_off", None, &context(0, Some(true))));
        assert!(takes("parentbased_always_off", None, &context(0, Some(true))));
        assert!(!takes("parentbased_always_on", None, &context(0, Some(false))));
        assert!(takes("parentbased_always_on", None, &context(0xff, None)));
        assert!(takes("traceidratio", Some("0.25"), &context(0x3f, None)));
        assert!(!takes("traceidratio", Some("0.25"), &context(0x40, None)));
        for (name, share) in [("sometimes", None), ("traceidratio", Some("2")), ("traceidratio", Some("x"))] {
            assert!(Sampler::parse(name, share).is_err(), "{name} {share:?}");
        }
    }
}
