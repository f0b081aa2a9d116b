//! A file of any of the forms, as records. The first bytes tell the form, not the name.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use super::ImportOptions;
use super::chunk::Chunk;
use super::error::ImportError;
use super::line::parse;
use super::lines::Lines;
use super::persons::Persons;
use super::record::Placed;
use super::rows::{self, Rows};

/// A file that is being read.
pub(super) struct Source {
    path: PathBuf,
    form: Form,
    options: ImportOptions,
    content: [u8; 32],
    bytes: u64,
}

enum Form {
    Lines(Box<Lines>),
    Rows(Box<Rows>),
}

/// How far a file has been read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub done: u64,
    pub total: u64,
}

impl Source {
    /// Opens a file. `content` is the digest of its content, where it is known: uuids are derived from it.
    pub(super) fn open(
        path: &Path,
        options: ImportOptions,
        content: Option<[u8; 32]>,
    ) -> Result<Source, ImportError> {
        let failed = |error: std::io::Error| ImportError::of_content(format!("cannot be read: {error}"));
        let mut file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let mut start = Vec::new();
        (&mut file).take(4).read_to_end(&mut start).map_err(failed)?;
        file.rewind().map_err(failed)?;
        let form = match start.as_slice() {
            b"PAR1" => Form::Rows(Box::new(Rows::open(file)?)),
            [0x1f, 0x8b, ..] => Form::Lines(Box::new(Lines::new(file, true))),
            _ => Form::Lines(Box::new(Lines::new(file, false))),
        };
        Ok(Source { path: path.to_owned(), form, options, content: content.unwrap_or_default(), bytes })
    }

    /// Checks up to `most` records, and notes the persons that rows name. Returns how many there were.
    pub(super) fn check(&mut self, most: u64, persons: &mut Persons) -> Result<u64, ImportError> {
        let mut checked = 0;
        while checked < most {
            let more = match &mut self.form {
                Form::Rows(rows) => rows.check(&self.options, persons)?,
                Form::Lines(lines) => next(lines, &self.options, &self.content)?.is_some(),
            };
            if !more {
                break;
            }
            checked += 1;
        }
        Ok(checked)
    }

    /// Puts up to `most` records into `chunk`, until it is full. Returns how many it were.
    pub(super) fn take(&mut self, most: u64, chunk: &mut Chunk) -> Result<u64, ImportError> {
        let mut taken = 0;
        while taken < most && !chunk.is_full() {
            let more = match &mut self.form {
                Form::Rows(rows) => {
                    rows.take(&self.options, &self.content, |project| chunk.columns(project))?
                }
                Form::Lines(lines) => match next(lines, &self.options, &self.content)? {
                    None => false,
                    Some(placed) => {
                        let line = placed.line;
                        let put = chunk.put(placed);
                        put.map(|()| true).map_err(|error| ImportError::of_line(line, error.to_string()))?
                    }
                },
            };
            if !more {
                break;
            }
            taken += 1;
        }
        chunk.records += taken;
        Ok(taken)
    }

    /// How far it has been read.
    pub(super) fn position(&self) -> Position {
        match &self.form {
            Form::Lines(lines) => Position { done: lines.bytes_read(), total: self.bytes },
            Form::Rows(rows) => Position { done: rows.rows_read(), total: rows.rows() },
        }
    }

    /// The digest of the content, once it has been read to its end.
    pub(super) fn digest(&self) -> Result<[u8; 32], ImportError> {
        match &self.form {
            Form::Lines(lines) => Ok(lines.digest()),
            Form::Rows(_) => File::open(&self.path)
                .and_then(|mut file| rows::digest(&mut file))
                .map_err(|error| ImportError::of_content(format!("cannot be read: {error}"))),
        }
    }
}

fn next(
    lines: &mut Lines,
    options: &ImportOptions,
    content: &[u8; 32],
) -> Result<Option<Placed>, ImportError> {
    let Some((number, text)) = lines.next()? else { return Ok(None) };
    let placed = parse(text, number, options, content);
    placed.map(Some).map_err(|message| ImportError::of_line(number, message))
}
