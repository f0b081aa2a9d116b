//! Which shape an answer has, by the route and the version that the request names.

use pennon_core::http::Call;

/// The routes that evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `/flags`.
    Flags,
    /// `/decide`, of older SDKs.
    Decide,
}

/// The shapes of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A record for each flag.
    Records,
    /// Values and payloads, by key.
    Values,
    /// The values of the flags that are on, by key.
    OnValues,
    /// The keys of the flags that are on.
    OnKeys,
}

/// How a request wants to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The shape.
    pub shape: Shape,
    /// Whether the configuration of posthog-js comes along.
    pub with_configuration: bool,
}

impl Version {
    /// What the query string says.
    pub fn of(route: Route, call: &Call) -> Self {
        Self::read(route, call.query_value("v"), call.query_value("config"))
    }

    fn read(route: Route, version: Option<&str>, config: Option<&str>) -> Self {
        let number = version.map(|version| version.parse::<i64>().unwrap_or(1));
        match route {
            Route::Flags => {
                let is_plain = version.is_none() && config.is_none();
                let number = number.unwrap_or(if is_plain { 2 } else { 1 });
                Self {
                    shape: if number >= 2 { Shape::Records } else { Shape::Values },
                    with_configuration: is_plain || matches!(config, Some("true" | "1" | "")),
                }
            }
            Route::Decide => Self {
                shape: match number.unwrap_or(1) {
                    4.. => Shape::Records,
                    3 => Shape::Values,
                    2 => Shape::OnValues,
                    _ => Shape::OnKeys,
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
            (Route::Flags, None, None, Shape::Records, true),
            (Route::Flags, Some("2"), None, Shape::Records, false),
            (Route::Flags, Some("2"), Some("true"), Shape::Records, true),
            (Route::Flags, Some("2"), Some("false"), Shape::Records, false),
            (Route::Flags, Some("4"), None, Shape::Records, false),
            (Route::Flags, Some("1"), None, Shape::Values, false),
            (Route::Flags, Some("0"), None, Shape::Values, false),
            (Route::Flags, Some("x"), Some("1"), Shape::Values, true),
            (Route::Flags, None, Some(""), Shape::Values, true),
            (Route::Decide, None, None, Shape::OnKeys, true),
            (Route::Decide, Some("0"), None, Shape::OnKeys, true),
            (Route::Decide, Some("two"), None, Shape::OnKeys, true),
            (Route::Decide, Some("2"), None, Shape::OnValues, true),
            (Route::Decide, Some("3"), Some("false"), Shape::Values, false),
            (Route::Decide, Some("9"), Some("0"), Shape::Records, true),
        ] {
            let wanted = Version { shape, with_configuration };
            assert_eq!(Version::read(route, version, config), wanted, "{route:?} {version:?} {config:?}");
        }
    }
}
