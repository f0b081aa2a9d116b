//! The commands that print reference material (routes, OpenAPI, costs, completions, man pages), and `pennon env`.

use std::path::Path;

use clap_mangen::Man as ManPage;
use pennon::api::{function_routes, slash_redirects};
use pennon::args::{Completions, Cost, Env, Man, Openapi, Routes, definition};
use pennon::environment::{shell_lines, variables};
use pennon::output::{print, print_json};
use pennon::print_line;
use serde_json::{Map, Value};

pub(super) fn routes(options: &Routes) -> Result<(), String> {
    let mut routes = function_routes();
    routes.extend(slash_redirects());
    routes.sort();
    if options.output.json {
        return print_json(&routes);
    }
    routes.iter().try_for_each(|route| {
        let note = if route.is_redirect { "  (redirects a trailing slash)" } else { "" };
        print_line!("{:<12} {:<7} {}{note}", route.group, route.method, route.path)
    })
}

pub(super) fn openapi(options: &Openapi) -> Result<(), String> {
    let document = pennon_openapi::document(env!("CARGO_PKG_VERSION"));
    let text = if options.yaml {
        serde_saphyr::to_string(&document).map_err(|e| e.to_string())?
    } else {
        format!("{document:#}")
    };
    print_line!("{}", text.trim_end())
}

pub(super) fn cost(options: &Cost) -> Result<(), String> {
    print_line!("{}", pennon::cost::cost(options)?.trim_end())
}

pub(super) fn env(options: &Env) -> Result<(), String> {
    let variables = variables(&options.data.data)?;
    if options.output.json {
        let document: Map<String, Value> =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        return print_json(&document);
    }
    shell_lines(&variables).iter().try_for_each(|line| print_line!("{line}"))
}

pub(super) fn completions(options: &Completions) -> Result<(), String> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut definition(), "pennon", &mut script);
    print(format_args!("{}", String::from_utf8_lossy(&script)))
}

pub(super) fn man(options: &Man) -> Result<(), String> {
    let mut pennon = definition();
    // Completes the names of all commands, and their --help options.
    pennon.build();
    if let Some(directory) = &options.out {
        return write_pages(pennon, directory);
    }
    let mut command = pennon;
    for name in &options.command {
        let inner = command.find_subcommand(name).cloned();
        command = inner.ok_or_else(|| {
            format!("there is no command {:?}; `pennon help` lists them", options.command.join(" "))
        })?;
    }
    let mut page = Vec::new();
    ManPage::new(command).render(&mut page).map_err(|e| e.to_string())?;
    print(format_args!("{}", String::from_utf8_lossy(&page)))
}

fn write_pages(pennon: clap::Command, directory: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{} cannot be written: {e}", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(pennon, directory).map_err(failed)?;
    print_line!("wrote the man pages to {}", directory.display())
}
