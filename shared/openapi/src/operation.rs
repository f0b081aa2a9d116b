//! An operation: method and path with parameters, request body, responses and links; a builder.

use pennon_core::http::{BODY_BYTES_MAX, LIMIT_DEFAULT, LIMIT_MAX};
use serde_json::{Value, json};

use crate::limits::{IDEMPOTENCY_KEY_MAX, group_digits};
use crate::schema;

/// The authorization that an operation requires.
#[derive(Debug, Clone, PartialEq)]
pub enum Security {
    /// An API key with this scope.
    Scope(&'static str),
    /// Any active API key.
    AnyKey,
    /// An API key with this scope, or the described alternative, such as a project token.
    Or(&'static str, &'static str),
    /// No authorization.
    Open,
}

/// A parameter of a path, a query or a header.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// `path`, `query` or `header`.
    pub place: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub description: String,
    /// Its schema. Plain text if invalid values mean the default.
    pub schema: Value,
    /// Whether it is required.
    pub required: bool,
}

/// A response of an operation for one status.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Its description.
    pub description: String,
    /// Media types with their schemas; empty for a response without a body.
    pub content: Vec<(&'static str, Value)>,
    /// Whether it has a `Retry-After` header.
    pub retry_after: bool,
    /// Whether its body may be missing.
    pub may_be_empty: bool,
}

/// An OpenAPI link of a successful response.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: &'static str,
    /// The id of the target operation.
    pub operation: &'static str,
    /// Parameters of the target operation and their runtime expressions.
    pub parameters: Vec<(&'static str, &'static str)>,
}

/// A method of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// The operation id, unique in the document.
    pub id: &'static str,
    /// The HTTP method in upper case.
    pub method: &'static str,
    /// The path, with a trailing slash and `{parameters}` named as in the route table.
    pub path: &'static str,
    /// Its tag.
    pub tag: &'static str,
    /// A short summary.
    pub summary: &'static str,
    /// A longer description; may be empty.
    pub description: String,
    /// The required authorization.
    pub security: Security,
    /// All parameters; [`Operation::new`] adds those of the path.
    pub parameters: Vec<Parameter>,
    /// Media types of the request body with their schemas.
    pub body: Vec<(&'static str, Value)>,
    /// Whether the request body is required.
    pub body_required: bool,
    /// Responses by status.
    pub responses: Vec<(u16, Response)>,
    /// Links of the successful response.
    pub links: Vec<Link>,
}

impl Operation {
    /// An operation with the common errors: 401, 403, 414, 429, 503 and, for paths with parameters, 404.
    pub fn new(
        id: &'static str,
        method: &'static str,
        path: &'static str,
        tag: &'static str,
        summary: &'static str,
        security: Security,
    ) -> Operation {
        let operation = Operation {
            id,
            method,
            path,
            tag,
            summary,
            description: String::new(),
            parameters: path_parameters(path),
            body: Vec::new(),
            body_required: false,
            responses: Vec::new(),
            links: Vec::new(),
            security,
        };
        let operation = match &operation.security {
            Security::Open => operation,
            _ => operation
                .error(401, "The key is missing or invalid.")
                .error(403, "The key lacks the scope, or has no access to the project or the record."),
        };
        let operation = operation
            .retryable_error(429, "The key exceeds its rate limit (only if limits are configured).")
            .retryable_error(503, "The store or the calculation is busy, or stored data is damaged.")
            .empty_response(414, "The address is longer than 65,534 bytes.");
        if path.contains('{') { operation.error(404, "There is no such record.") } else { operation }
    }

    /// Sets the description.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Operation {
        self.description = description.into();
        self
    }

    /// Adds an optional query parameter.
    #[must_use]
    pub fn query_param(
        mut self,
        name: &'static str,
        schema: Value,
        description: impl Into<String>,
    ) -> Operation {
        let description = description.into();
        self.parameters.push(Parameter { place: "query", name, description, schema, required: false });
        self
    }

    /// Adds `limit` and `offset`. Invalid numbers mean the default, so any text is accepted.
    #[must_use]
    pub fn paginated(self) -> Operation {
        self.query_param(
            "limit",
            schema::text(),
            format!("Page size: 1 to {LIMIT_MAX}. Default, also for invalid values: {LIMIT_DEFAULT}."),
        )
        .query_param(
            "offset",
            schema::text(),
            "Number of records to skip. Default, also for invalid values: 0.",
        )
    }

    /// Adds an optional header.
    #[must_use]
    pub fn header_param(
        mut self,
        name: &'static str,
        schema: Value,
        description: impl Into<String>,
    ) -> Operation {
        let description = description.into();
        self.parameters.push(Parameter { place: "header", name, description, schema, required: false });
        self
    }

    /// Adds the header `Idempotency-Key` of create operations.
    #[must_use]
    pub fn idempotent(self) -> Operation {
        self.header_param(
            "Idempotency-Key",
            json!({"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX, "pattern": "^[ -~]+$"}),
            "Identifies the create: a request that is repeated with the same key and body returns the \
             record that the first one created.",
        )
        .error(422, "The Idempotency-Key was used with another request.")
    }

    /// Adds a required JSON body.
    #[must_use]
    pub fn json_body(mut self, schema: Value) -> Operation {
        self.body.push(("application/json", schema));
        self.body_required = true;
        self.error(400, "A field is invalid; `attr` names it.")
            .error(413, format!("The body is larger than {} bytes.", group_digits(BODY_BYTES_MAX)))
            .error(415, "The content type of the body is not supported.")
    }

    /// Makes the body optional.
    #[must_use]
    pub fn body_optional(mut self) -> Operation {
        self.body_required = false;
        self
    }

    /// Adds a response with a JSON body.
    #[must_use]
    pub fn response(self, status: u16, description: impl Into<String>, schema: Value) -> Operation {
        self.response_as(status, description, "application/json", schema)
    }

    /// Adds a response with a body of media type `media`, or the media type to an existing response.
    #[must_use]
    pub fn response_as(
        mut self,
        status: u16,
        description: impl Into<String>,
        media: &'static str,
        schema: Value,
    ) -> Operation {
        match self.responses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, response)) => response.content.push((media, schema)),
            None => {
                let response = Response {
                    description: description.into(),
                    content: vec![(media, schema)],
                    retry_after: false,
                    may_be_empty: false,
                };
                self.responses.push((status, response));
            }
        }
        self
    }

    /// Adds a response without a body.
    #[must_use]
    pub fn empty_response(mut self, status: u16, description: impl Into<String>) -> Operation {
        let description = description.into();
        self.responses.push((
            status,
            Response { description, content: Vec::new(), retry_after: false, may_be_empty: false },
        ));
        self
    }

    /// Adds an error response with the schema `Error`. Does nothing if there is a response of this status.
    #[must_use]
    pub fn error(mut self, status: u16, description: impl Into<String>) -> Operation {
        if self.responses.iter().all(|(known, _)| *known != status) {
            let content = vec![("application/json", schema::schema_ref("Error"))];
            let description = description.into();
            self.responses
                .push((status, Response { description, content, retry_after: false, may_be_empty: false }));
        }
        self
    }

    /// Marks the body of an existing response as optional.
    #[must_use]
    pub fn may_have_empty_body(mut self, status: u16) -> Operation {
        for (_, response) in self.responses.iter_mut().filter(|(known, _)| *known == status) {
            response.may_be_empty = true;
        }
        self
    }

    fn retryable_error(self, status: u16, description: &str) -> Operation {
        let mut operation = self.error(status, description);
        if let Some((_, response)) = operation.responses.last_mut() {
            response.retry_after = true;
        }
        operation
    }

    /// Adds CSV to all responses with a body, for paths that end in `.csv` and for `format=csv`.
    #[must_use]
    pub fn with_csv(mut self) -> Operation {
        for (_, response) in &mut self.responses {
            if !response.content.is_empty() {
                response.content.push(("text/csv", schema::text()));
            }
        }
        self.query_param(
            "format",
            schema::enum_of(&["json", "csv", ""]),
            "The response format. Default, also if blank: JSON; other values are a 404.",
        )
    }

    /// Adds a link from the successful response to `operation`, with runtime expressions for its parameters.
    #[must_use]
    pub fn link(
        mut self,
        name: &'static str,
        operation: &'static str,
        parameters: &[(&'static str, &'static str)],
    ) -> Operation {
        self.links.push(Link { name, operation, parameters: parameters.to_vec() });
        self
    }
}

/// The parameters of a path.
fn path_parameters(path: &'static str) -> Vec<Parameter> {
    path.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| {
            let (description, schema) = match name {
                "project_id" => ("The project: its id, its token, or `@current`.", project()),
                "organization_id" => {
                    ("The organization's id, or `@current`.", schema::non_empty_text_max(200))
                }
                "id" if path.starts_with("/api/organizations/") => {
                    ("The project: its id, its token, or `@current`.", project())
                }
                "id" if ["/persons/", "/query/", "/personal_api_keys/"]
                    .iter()
                    .any(|texts| path.contains(texts)) =>
                {
                    ("The record.", schema::text_min(1))
                }
                "id" | "feature_flag_id" => ("The id of the record.", schema::integer()),
                _ => ("The record.", schema::text_min(1)),
            };
            Parameter { place: "path", name, description: description.to_owned(), schema, required: true }
        })
        .collect()
}

fn project() -> Value {
    schema::any_of([schema::id(), schema::non_empty_text_max(200)])
}
