//! Sets `PENNON_SOURCES`: a number of the sources that a calculation consists of, those of this crate, of the crates of the workspace
//! that it uses, and the versions of all others. Two processes with the same number calculate the same.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Folders of sources, relative to this crate.
const FOLDERS: [&str; 6] = [
    "src",
    "../../shared/analytics/src",
    "../../shared/core/src",
    "../../shared/eventstore/src",
    "../../shared/filters/src",
    "../../shared/flag_rules/src",
];
/// The versions of all dependencies.
const LOCK: &str = "../../Cargo.lock";

fn main() -> io::Result<()> {
    let mut sources = vec![PathBuf::from(LOCK)];
    println!("cargo::rerun-if-changed={LOCK}");
    for folder in FOLDERS {
        println!("cargo::rerun-if-changed={folder}");
        collect_sources(Path::new(folder), &mut sources)?;
    }
    sources.sort();
    let mut digest = FNV_OFFSET;
    for source in sources {
        digest = add(digest, source.to_string_lossy().as_bytes());
        digest = add(digest, &fs::read(&source)?);
    }
    println!("cargo::rustc-env=PENNON_SOURCES={digest:x}");
    Ok(())
}

/// The Rust files below a folder.
fn collect_sources(folder: &Path, sources: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_sources(&path, sources)?;
        } else if path.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
    Ok(())
}

/// FNV-1a, because the standard library may change its hash with a release.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// The digest after some bytes and their number.
fn add(digest: u64, bytes: &[u8]) -> u64 {
    let length = (bytes.len() as u64).to_le_bytes();
    let all = length.iter().chain(bytes);
    all.fold(digest, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
