//! Sets `PENNON_SOURCES`: a number of the sources that a calculation consists of, those of this crate and of the crates that it
//! uses. Two processes with the same number calculate the same.

use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Folders of sources, relative to this crate.
const FOLDERS: [&str; 5] = [
    "src",
    "../../shared/analytics/src",
    "../../shared/core/src",
    "../../shared/eventstore/src",
    "../../shared/filters/src",
];

fn main() -> io::Result<()> {
    let mut sources = Vec::new();
    for folder in FOLDERS {
        println!("cargo::rerun-if-changed={folder}");
        collect_sources(Path::new(folder), &mut sources)?;
    }
    sources.sort();
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    for source in sources {
        source.hash(&mut hasher);
        fs::read(&source)?.hash(&mut hasher);
    }
    println!("cargo::rustc-env=PENNON_SOURCES={:x}", hasher.finish());
    Ok(())
}

fn collect_sources(folder: &Path, sources: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_sources(&path, sources)?;
        } else {
            sources.push(path);
        }
    }
    Ok(())
}

/// FNV-1a, because the standard library may change its hash with a release.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
