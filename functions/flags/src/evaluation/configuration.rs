//! The configuration that posthog-js loads, as JSON and as a script.
//!
//! Must stay true: every feature is off that would make the library request endpoints that do not exist;
//! `hasFeatureFlags` is on, because otherwise the library never requests flags.

use serde::Serialize;
use serde_json::{Value, json};

/// The configuration without the token.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Encodings of events: a form with base64 needs no CORS preflight, and no gateway alters it.
    supported_compression: [&'static str; 1],
    has_feature_flags: bool,
    is_authenticated: bool,
    config: Value,
    toolbar_params: Value,
    site_apps: [Value; 0],
    session_recording: bool,
    surveys: bool,
    heatmaps: bool,
    capture_performance: bool,
    autocapture_exceptions: bool,
    capture_dead_clicks: bool,
    #[serde(rename = "autocapture_opt_out")]
    autocapture_opt_out: bool,
    default_identified_only: bool,
    conversations: bool,
    product_tours: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            supported_compression: ["base64"],
            has_feature_flags: true,
            is_authenticated: false,
            config: json!({"enable_collect_everything": true}),
            toolbar_params: json!({}),
            site_apps: [],
            session_recording: false,
            surveys: false,
            heatmaps: false,
            capture_performance: false,
            autocapture_exceptions: false,
            capture_dead_clicks: false,
            autocapture_opt_out: false,
            default_identified_only: true,
            conversations: false,
            product_tours: false,
        }
    }
}

/// The configuration with the token.
#[derive(Debug, Serialize)]
pub struct ProjectConfiguration<'a> {
    token: &'a str,
    #[serde(flatten)]
    configuration: Configuration,
}

impl<'a> ProjectConfiguration<'a> {
    /// The configuration of the project with this token.
    pub fn of(token: &'a str) -> Self {
        Self { token, configuration: Configuration::default() }
    }

    /// A script that assigns the configuration to the global variable that the library reads.
    pub fn script(&self) -> String {
        // JSON is a JavaScript expression, whatever the token contains.
        let (token, config) = (json!(self.token), json!(self));
        format!(
            "(function () {{\n  window._POSTHOG_REMOTE_CONFIG = window._POSTHOG_REMOTE_CONFIG || {{}};\n  \
             window._POSTHOG_REMOTE_CONFIG[{token}] = {{\n    config: {config},\n    siteApps: []\n  }};\n}})();\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_script_is_a_json_text() {
        let script = ProjectConfiguration::of("a\"]; alert(1) //").script();
        assert!(script.contains(r#"window._POSTHOG_REMOTE_CONFIG["a\"]; alert(1) //"] = {"#), "{script}");
        assert!(script.contains(r#"config: {"#) && script.contains(r#""supportedCompression":["base64"]"#));
    }
}
