//! The response shape, chosen by the route and the version in the query.

use pennon_core::http::Call;

/// The evaluation routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvaluationRoute {
    /// `/flags`.
    Flags,
    /// `/decide`, of older SDKs.
    Decide,
}

/// The response shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseShape {
    /// A record for each flag.
    Records,
    /// Values and payloads, by key.
    Values,
    /// The values of the flags that are on, by key.
    OnValues,
    /// The keys of the flags that are on.
    OnKeys,
}

/// The response format that a request selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseVersion {
    /// The shape.
    pub shape: ResponseShape,
    /// Whether the response includes the configuration of posthog-js.
    pub with_configuration: bool,
}

impl ResponseVersion {
    /// Reads the version from the query string.
    pub fn of(route: EvaluationRoute, call: &Call) -> Self {
        Self::parse(route, call.query_value("v"), call.query_value("config"))
    }

    fn parse(route: EvaluationRoute, version: Option<&str>, config: Option<&str>) -> Self {
        let number = version.map(|version| version.parse::<i64>().unwrap_or(1));
        match route {
            EvaluationRoute::Flags => {
                let is_plain = version.is_none() && config.is_none();
                let number = number.unwrap_or(if is_plain { 2 } else { 1 });
                Self {
                    shape: if number >= 2 { ResponseShape::Records } else { ResponseShape::Values },
                    with_configuration: is_plain || matches!(config, Some("true" | "1" | "")),
                }
            }
            EvaluationRoute::Decide => Self {
                shape: match number.unwrap_or(1) {
                    4.. => ResponseShape::Records,
                    3 => ResponseShape::Values,
                    2 => ResponseShape::OnValues,
                    _ => ResponseShape::OnKeys,
                },
                with_configuration: config != Some("false"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_follows_from_route_and_version() {
        for (route, version, config, shape, with_configuration) in [
            (EvaluationRoute::Flags, None, None, ResponseShape::Records, true),
            (EvaluationRoute::Flags, Some("2"), None, ResponseShape::Records, false),
            (EvaluationRoute::Flags, Some("2"), Some("true"), ResponseShape::Records, true),
            (EvaluationRoute::Flags, Some("2"), Some("false"), ResponseShape::Records, false),
            (EvaluationRoute::Flags, Some("4"), None, ResponseShape::Records, false),
            (EvaluationRoute::Flags, Some("1"), None, ResponseShape::Values, false),
            (EvaluationRoute::Flags, Some("0"), None, ResponseShape::Values, false),
            (EvaluationRoute::Flags, Some("x"), Some("1"), ResponseShape::Values, true),
            (EvaluationRoute::Flags, None, Some(""), ResponseShape::Values, true),
            (EvaluationRoute::Decide, None, None, ResponseShape::OnKeys, true),
            (EvaluationRoute::Decide, Some("0"), None, ResponseShape::OnKeys, true),
            (EvaluationRoute::Decide, Some("two"), None, ResponseShape::OnKeys, true),
            (EvaluationRoute::Decide, Some("2"), None, ResponseShape::OnValues, true),
            (EvaluationRoute::Decide, Some("3"), Some("false"), ResponseShape::Values, false),
            (EvaluationRoute::Decide, Some("9"), Some("0"), ResponseShape::Records, true),
        ] {
            let expected = ResponseVersion { shape, with_configuration };
            assert_eq!(
                ResponseVersion::parse(route, version, config),
                expected,
                "{route:?} {version:?} {config:?}"
            );
        }
    }
}
