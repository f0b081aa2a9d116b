//! Lines in order, however many: sorted in parts, which lie in files, and put together as they are read.
//!
//! Must stay true: memory is bounded by one part, or a buffer for each of the parts that are put together at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Error, Read, Write};
use std::ops::Range;
use std::path::PathBuf;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// What lines are ordered by.
pub(super) type Place = (i64, u128);

/// Bytes of lines of a part.
const PART_BYTES: usize = 64 << 20;
/// What a line takes in memory beside its text.
const LINE_BYTES: usize = size_of::<(Place, Range<usize>)>();
/// Parts that are put together at once.
const AT_ONCE: usize = 64;

/// Takes lines in any order.
pub(super) struct Sorter {
    directory: PathBuf,
    part_bytes: usize,
    text: Vec<u8>,
    lines: Vec<(Place, Range<usize>)>,
    /// Files by how often their lines were put together. So each line is written anew a few times only.
    levels: Vec<Vec<PathBuf>>,
    files: usize,
    count: u64,
}

impl Sorter {
    /// One that keeps its parts in `directory`, which is there.
    pub(super) fn new(directory: PathBuf) -> Sorter {
        Sorter::with_parts(directory, PART_BYTES)
    }

    /// The same, with parts of so many bytes.
    pub(super) fn with_parts(directory: PathBuf, part_bytes: usize) -> Sorter {
        let levels = vec![Vec::new()];
        Sorter { directory, part_bytes, text: Vec::new(), lines: Vec::new(), levels, files: 0, count: 0 }
    }

    /// Takes a line.
    pub(super) fn add(&mut self, place: Place, line: &[u8]) -> Result<(), Error> {
        let start = self.text.len();
        self.text.extend_from_slice(line);
        self.lines.push((place, start..self.text.len()));
        self.count += 1;
        match self.text.len() + self.lines.len() * LINE_BYTES >= self.part_bytes {
            true => self.write_part(),
            false => Ok(()),
        }
    }

    /// All lines in order.
    pub(super) fn sorted(mut self) -> Result<Sorted, Error> {
        self.write_part()?;
        let mut paths: Vec<PathBuf> = self.levels.concat();
        while paths.len() > AT_ONCE {
            let first = paths.drain(..AT_ONCE).collect();
            paths.push(self.put_together(first)?);
        }
        Ok(Sorted { count: self.count, parts: Merge::of(paths)? })
    }

    fn write_part(&mut self) -> Result<(), Error> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let mut lines = std::mem::take(&mut self.lines);
        lines.sort_by_key(|(place, _)| *place);
        let (path, mut part) = self.begin()?;
        for (place, range) in &lines {
            write_line(&mut part, *place, &self.text[range.clone()])?;
        }
        part.finish()?.flush()?;
        self.text.clear();
        lines.clear();
        self.lines = lines;
        self.levels[0].push(path);
        let mut level = 0;
        while self.levels[level].len() >= AT_ONCE {
            let paths = std::mem::take(&mut self.levels[level]);
            let path = self.put_together(paths)?;
            level += 1;
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            self.levels[level].push(path);
        }
        Ok(())
    }

    fn put_together(&mut self, paths: Vec<PathBuf>) -> Result<PathBuf, Error> {
        let (path, mut part) = self.begin()?;
        let mut lines = Merge::of(paths)?;
        while let Some((place, line)) = lines.next()? {
            write_line(&mut part, place, &line)?;
        }
        part.finish()?.flush()?;
        Ok(path)
    }

    fn begin(&mut self) -> Result<(PathBuf, GzEncoder<BufWriter<File>>), Error> {
        self.files += 1;
        let path = self.directory.join(format!("part-{}", self.files));
        let file = BufWriter::new(File::create_new(&path)?);
        Ok((path, GzEncoder::new(file, Compression::fast())))
    }
}

/// Lines in order.
pub(super) struct Sorted {
    count: u64,
    parts: Merge,
}

impl Sorted {
    /// How many there are, those included that were read.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The next one.
    pub(super) fn next(&mut self) -> Result<Option<(Place, Vec<u8>)>, Error> {
        self.parts.next()
    }
}

/// Parts that are read side by side. Each is removed with its last line.
struct Merge {
    parts: Vec<(PathBuf, BufReader<GzDecoder<BufReader<File>>>)>,
    /// The next line of each part that has one.
    next: BinaryHeap<Reverse<(Place, usize, Vec<u8>)>>,
}

impl Merge {
    fn of(paths: Vec<PathBuf>) -> Result<Merge, Error> {
        let open = |path: PathBuf| {
            let file = BufReader::new(File::open(&path)?);
            Ok((path, BufReader::new(GzDecoder::new(file))))
        };
        let parts = paths.into_iter().map(open).collect::<Result<Vec<_>, Error>>()?;
        let mut merge = Merge { next: BinaryHeap::with_capacity(parts.len()), parts };
        (0..merge.parts.len()).try_for_each(|part| merge.advance(part))?;
        Ok(merge)
    }

    fn next(&mut self) -> Result<Option<(Place, Vec<u8>)>, Error> {
        let Some(Reverse((place, part, line))) = self.next.pop() else { return Ok(None) };
        self.advance(part)?;
        Ok(Some((place, line)))
    }

    fn advance(&mut self, part: usize) -> Result<(), Error> {
        let (path, reader) = &mut self.parts[part];
        match read_line(reader)? {
            Some((place, line)) => self.next.push(Reverse((place, part, line))),
            None => std::fs::remove_file(path)?,
        }
        Ok(())
    }
}

fn write_line(out: &mut impl Write, (time, seq): Place, line: &[u8]) -> Result<(), Error> {
    let length = u32::try_from(line.len()).map_err(Error::other)?;
    out.write_all(&time.to_le_bytes())?;
    out.write_all(&seq.to_le_bytes())?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(line)
}

fn read_line(reader: &mut impl Read) -> Result<Option<(Place, Vec<u8>)>, Error> {
    let mut time = [0; 8];
    if reader.read(&mut time[..1])? == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut time[1..])?;
    let (mut seq, mut length) = ([0; 16], [0; 4]);
    reader.read_exact(&mut seq)?;
    reader.read_exact(&mut length)?;
    let mut line = vec![0; u32::from_le_bytes(length) as usize];
    reader.read_exact(&mut line)?;
    Ok(Some(((i64::from_le_bytes(time), u128::from_le_bytes(seq)), line)))
}
