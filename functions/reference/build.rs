//! Generates the OpenAPI document at build time, as JSON and YAML, so that no process has to at start.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = env::var("OUT_DIR")?;
    let document = pennon_openapi::document(&env::var("CARGO_PKG_VERSION")?);
    fs::write(Path::new(&folder).join("openapi.json"), document.to_string())?;
    fs::write(Path::new(&folder).join("openapi.yaml"), serde_saphyr::to_string(&document)?)?;
    Ok(())
}
