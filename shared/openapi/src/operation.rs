//! One operation: a method of a path, what it takes and what it answers.

use serde_json::{Value, json};

use crate::schema;

/// Who may call an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Security {
    /// A key with this scope.
    Scope(&'static str),
    /// Any live key.
    AnyKey,
    /// A key, or what the text says, such as the token of a project.
    Or(&'static str, &'static str),
    /// Anybody.
    Open,
}

/// A parameter of a path, a query or a header.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// `path`, `query` or `header`.
    pub place: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// Its values. Where any other value means the default, the schema is a plain text.
    pub schema: Value,
    /// Whether it has to be there.
    pub required: bool,
}

/// What an operation answers with one status.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// When it does.
    pub description: &'static str,
    /// Media types and the schema of each; none for an answer without a body.
    pub content: Vec<(&'static str, Value)>,
    /// Whether it has the header `Retry-After`.
    pub retry_after: bool,
    /// Whether its body may be missing.
    pub may_be_empty: bool,
}

/// An OpenAPI link of a successful answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: &'static str,
    /// The operation that it leads to.
    pub operation: &'static str,
    /// Which parameter of that operation is which expression.
    pub parameters: Vec<(&'static str, &'static str)>,
}

/// A method of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Unique in the document.
    pub id: &'static str,
    /// In capitals.
    pub method: &'static str,
    /// With its trailing slash and `{parameters}` named as the route table names them.
    pub path: &'static str,
    /// The heading that it comes under.
    pub tag: &'static str,
    /// A few words.
    pub summary: &'static str,
    /// More of them; may be empty.
    pub description: &'static str,
    /// Who may call it.
    pub security: Security,
    /// Parameters besides those of the path that [`Operation::new`] finds.
    pub parameters: Vec<Parameter>,
    /// Media types of the body, and the schema of each.
    pub body: Vec<(&'static str, Value)>,
    /// Whether a body has to be there.
    pub body_required: bool,
    /// By status.
    pub answers: Vec<(u16, Answer)>,
    /// Links of the successful answer.
    pub links: Vec<Link>,
}

impl Operation {
    /// An operation that answers what every operation may answer: 401, 403, 429, 503 and, below a project, 404.
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
            description: "",
            parameters: path_parameters(path),
            body: Vec::new(),
            body_required: false,
            answers: Vec::new(),
            links: Vec::new(),
            security,
        };
        let operation = match &operation.security {
            Security::Open => operation,
            _ => operation.refuses(401, "There is no key, or it opens nothing.").refuses(
                403,
                "The key does not have the scope, or does not reach the project or the record.",
            ),
        };
        let operation = operation
            .retried(429, "The key has asked too often (only where limits are set).")
            .retried(503, "The store or the calculation is busy, or something stored is damaged.");
        if path.contains('{') { operation.refuses(404, "There is no such record.") } else { operation }
    }

    /// With a longer text.
    #[must_use]
    pub fn described(mut self, description: &'static str) -> Operation {
        self.description = description;
        self
    }

    /// With a parameter of the query, which may be left out.
    #[must_use]
    pub fn query(mut self, name: &'static str, schema: Value, description: &'static str) -> Operation {
        self.parameters.push(Parameter { place: "query", name, description, schema, required: false });
        self
    }

    /// With `limit` and `offset`. What is no positive number means the default, so any text is taken.
    #[must_use]
    pub fn paged(self) -> Operation {
        self.query(
            "limit",
            schema::text(),
            "Most records of the page: 1 to 1000, 100 when it is left out or none of these.",
        )
        .query(
            "offset",
            schema::text(),
            "How many records come before the page; 0 when it is left out or no number.",
        )
    }

    /// With a header that may be left out.
    #[must_use]
    pub fn header(mut self, name: &'static str, schema: Value, description: &'static str) -> Operation {
        self.parameters.push(Parameter { place: "header", name, description, schema, required: false });
        self
    }

    /// With `Idempotency-Key`, as creates take it.
    #[must_use]
    pub fn once(self) -> Operation {
        self.header(
            "Idempotency-Key",
            json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"}),
            "Names the create: asked again with the same key and body, it is answered with what it made.",
        )
        .refuses(422, "The Idempotency-Key came before with another request.")
    }

    /// With a JSON body.
    #[must_use]
    pub fn takes(mut self, schema: Value) -> Operation {
        self.body.push(("application/json", schema));
        self.body_required = true;
        self.refuses(400, "A field is not acceptable; `attr` names it.")
            .refuses(413, "The body is larger than 6,000,000 bytes.")
            .refuses(415, "The body is of a type that is not read.")
    }

    /// Whose body may be left out.
    #[must_use]
    pub fn body_optional(mut self) -> Operation {
        self.body_required = false;
        self
    }

    /// Answers `status` with a JSON body.
    #[must_use]
    pub fn gives(self, status: u16, description: &'static str, schema: Value) -> Operation {
        self.gives_as(status, description, "application/json", schema)
    }

    /// Answers `status` with a body of this type, besides others that were named.
    #[must_use]
    pub fn gives_as(
        mut self,
        status: u16,
        description: &'static str,
        media: &'static str,
        schema: Value,
    ) -> Operation {
        match self.answers.iter_mut().find(|(known, _)| *known == status) {
            Some((_, answer)) => answer.content.push((media, schema)),
            None => {
                let answer = Answer {
                    description,
                    content: vec![(media, schema)],
                    retry_after: false,
                    may_be_empty: false,
                };
                self.answers.push((status, answer));
            }
        }
        self
    }

    /// Answers `status` without a body.
    #[must_use]
    pub fn empty(mut self, status: u16, description: &'static str) -> Operation {
        self.answers.push((
            status,
            Answer { description, content: Vec::new(), retry_after: false, may_be_empty: false },
        ));
        self
    }

    /// Answers `status` with the common shape of errors. A status that was named before keeps its text.
    #[must_use]
    pub fn refuses(mut self, status: u16, description: &'static str) -> Operation {
        if self.answers.iter().all(|(known, _)| *known != status) {
            let content = vec![("application/json", schema::named("Error"))];
            self.answers
                .push((status, Answer { description, content, retry_after: false, may_be_empty: false }));
        }
        self
    }

    /// Answers `status`, which was named before, without a body too.
    #[must_use]
    pub fn silently(mut self, status: u16) -> Operation {
        for (_, answer) in self.answers.iter_mut().filter(|(known, _)| *known == status) {
            answer.may_be_empty = true;
        }
        self
    }

    fn retried(self, status: u16, description: &'static str) -> Operation {
        let mut operation = self.refuses(status, description);
        if let Some((_, answer)) = operation.answers.last_mut() {
            answer.retry_after = true;
        }
        operation
    }

    /// Answers tables too, where the path ends in `.csv` or the query says `format=csv`: any answer with a body.
    #[must_use]
    pub fn tables(mut self) -> Operation {
        for (_, answer) in &mut self.answers {
            if !answer.content.is_empty() {
                answer.content.push(("text/csv", schema::text()));
            }
        }
        self.query(
            "format",
            schema::one_of(&["json", "csv", ""]),
            "The form of the answer, JSON where it is blank; others are a 404.",
        )
    }

    /// A link from the successful answer to `operation`, whose parameter is what `expression` finds in the answer.
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

/// The parameters that a path names in braces.
fn path_parameters(path: &'static str) -> Vec<Parameter> {
    path.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| {
            let (description, schema) = match name {
                "project_id" => ("The project: its number, its token, or `@current`.", project()),
                "organization_id" => ("The organization's id, or `@current`.", schema::text_of(200)),
                "id" if path.starts_with("/api/organizations/") => {
                    ("The project: its number, its token, or `@current`.", project())
                }
                "id" if ["/persons/", "/query/"].iter().any(|texts| path.contains(texts)) => {
                    ("The record.", schema::text_from(1))
                }
                "id" | "feature_flag_id" => ("The number of the record.", schema::integer()),
                _ => ("The record.", schema::text_from(1)),
            };
            Parameter { place: "path", name, description, schema, required: true }
        })
        .collect()
}

fn project() -> Value {
    schema::any_of([schema::id(), schema::text_of(200)])
}
