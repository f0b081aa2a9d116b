//! Selects the flags of a response.
//!
//! Must stay true: a flag of another runtime is never selected, whatever the request names; a flag that is left out
//! counts as off for flags that depend on it.

use std::collections::BTreeSet;

use super::compiled_flag::CompiledFlag;

/// The kind of program that sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// A browser or a mobile app.
    Client,
    /// A server.
    Server,
    /// States to be both: gets flags of either runtime.
    All,
    /// Unknown: gets no flag of a particular runtime.
    Unknown,
}

/// What a request states about its sender.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sender<'a> {
    /// Its `User-Agent`.
    pub user_agent: &'a str,
    /// `evaluation_runtime` of its body.
    pub stated: Option<&'a str>,
    /// Whether it has a header that only browsers send: `Origin`, `Referer`, `Sec-Fetch-Mode` or `Sec-Fetch-Site`.
    pub has_browser_headers: bool,
}

const BROWSERS: [&str; 5] = ["Mozilla/", "Chrome/", "Safari/", "Firefox/", "Edge/"];
const CLIENT_SDKS: [&str; 4] = ["android/", "ios/", "react-native/", "flutter/"];
const SERVER_SDKS: [&str; 10] =
    ["python/", "ruby/", "php/", "java/", "go/", "node/", "dotnet/", "elixir/", "rs/", "rust/"];
const SERVER_LIBRARIES: [&str; 2] = ["python-requests/", "curl/"];

impl Runtime {
    /// Detects the runtime. The user agent of a browser or mobile app has precedence over the body.
    pub fn of(sender: Sender<'_>) -> Self {
        let agent = sender.user_agent;
        let sdk = agent.strip_prefix("posthog-");
        let is_sdk = |names: &[&str]| sdk.is_some_and(|sdk| names.iter().any(|name| sdk.starts_with(name)));
        if BROWSERS.iter().any(|browser| agent.contains(browser)) || is_sdk(&CLIENT_SDKS) {
            return Self::Client;
        }
        if let Some(stated) = sender.stated {
            return match stated.to_ascii_lowercase().as_str() {
                "client" => Self::Client,
                "server" => Self::Server,
                _ => Self::All,
            };
        }
        if is_sdk(&SERVER_SDKS) || SERVER_LIBRARIES.iter().any(|library| agent.contains(library)) {
            return Self::Server;
        }
        if sender.has_browser_headers { Self::Client } else { Self::Unknown }
    }
}

/// Where a flag may be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlagRuntime {
    All,
    Client,
    Server,
}

impl FlagRuntime {
    pub fn of(stored: Option<&str>) -> Self {
        match stored {
            Some("client") => Self::Client,
            Some("server") => Self::Server,
            _ => Self::All,
        }
    }

    fn is_shown_to(self, runtime: Runtime) -> bool {
        match self {
            Self::All => true,
            Self::Client => matches!(runtime, Runtime::Client | Runtime::All),
            Self::Server => matches!(runtime, Runtime::Server | Runtime::All),
        }
    }
}

/// The flags that a request selects.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    /// The runtime of the sender.
    pub runtime: Runtime,
    /// Whether to include only flags created for surveys.
    pub only_surveys: bool,
    /// Whether to include inactive flags.
    pub with_inactive: bool,
    /// The requested flag keys, which include their dependencies; `None` means all.
    pub keys: Option<BTreeSet<&'a str>>,
}

/// The number of selections without flag keys.
pub(super) const SELECTIONS_WITHOUT_KEYS: usize = 16;

impl Selection<'_> {
    /// The index of a selection without flag keys, below [`SELECTIONS_WITHOUT_KEYS`]; `None` for one with keys.
    pub(super) fn number(&self) -> Option<usize> {
        let runtime = match self.runtime {
            Runtime::Client => 0,
            Runtime::Server => 1,
            Runtime::All => 2,
            Runtime::Unknown => 3,
        };
        let options = usize::from(self.only_surveys) * 2 + usize::from(self.with_inactive);
        self.keys.is_none().then_some(runtime * 4 + options)
    }

    /// Whether the sender may see a flag.
    pub(super) fn admits(&self, flag: &CompiledFlag) -> bool {
        (flag.active || self.with_inactive)
            && flag.runtime.is_shown_to(self.runtime)
            && (!self.only_surveys || flag.is_survey_flag())
    }

    pub(super) fn names(&self, flag: &CompiledFlag) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.contains(&*flag.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_known_by_the_first_row_that_fits() {
        let of = |user_agent, stated, has_browser_headers| {
            Runtime::of(Sender { user_agent, stated, has_browser_headers })
        };
        let chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36";
        for (agent, stated, headers, expected) in [
            (chrome, None, false, Runtime::Client),
            (chrome, Some("server"), false, Runtime::Client),
            ("posthog-ios/3.0.0", Some("server"), false, Runtime::Client),
            ("posthog-react-native/4.1", None, false, Runtime::Client),
            ("posthog-node/5.1.0", Some("client"), false, Runtime::Client),
            ("posthog-node/5.1.0", None, true, Runtime::Server),
            ("posthog-rs/0.3", None, false, Runtime::Server),
            ("posthog-python/7.91.1", Some("SERVER"), true, Runtime::Server),
            ("posthog-python/7.91.1", Some("somewhere"), false, Runtime::All),
            ("my python-requests/2.0", None, false, Runtime::Server),
            ("curl/8.5.0", None, false, Runtime::Server),
            ("axios/1.7", None, true, Runtime::Client),
            ("axios/1.7", None, false, Runtime::Unknown),
            ("", Some("Client"), false, Runtime::Client),
            ("x posthog-ios/3", None, false, Runtime::Unknown),
        ] {
            assert_eq!(of(agent, stated, headers), expected, "{agent} {stated:?} {headers}");
        }
    }

    #[test]
    fn flags_are_shown_by_runtime() {
        let shown = |flag| {
            let flag = FlagRuntime::of(flag);
            let runtimes = [Runtime::Client, Runtime::Server, Runtime::All, Runtime::Unknown];
            runtimes.map(|runtime| flag.is_shown_to(runtime))
        };
        assert_eq!(shown(None), [true, true, true, true]);
        assert_eq!(shown(Some("all")), [true, true, true, true]);
        assert_eq!(shown(Some("client")), [true, false, true, false]);
        assert_eq!(shown(Some("server")), [false, true, true, false]);
    }
}
