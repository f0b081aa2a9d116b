//! External merge sort: lines are sorted in runs, which are written to temporary files and merged (k-way) as they are read.
//!
//! Must stay true: memory is bounded by one run of 64 MiB, or by a buffer for each of at most 64 runs that are merged at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Error, Read, Write};
use std::ops::Range;
use std::path::PathBuf;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// The sort key of a line: time, and order of arrival.
pub(super) type SortKey = (i64, u128);

/// Bytes of memory of a run.
const RUN_BYTES: usize = 64 << 20;
/// Memory of a line besides its text.
const LINE_BYTES: usize = size_of::<(SortKey, Range<usize>)>();
/// Runs that are merged at once.
const MERGE_WIDTH: usize = 64;

/// Collects lines in any order.
pub(super) struct ExternalSorter {
    directory: PathBuf,
    run_bytes: usize,
    text: Vec<u8>,
    lines: Vec<(SortKey, Range<usize>)>,
    /// The files of runs by the number of their merges, so that each line is rewritten only a few times.
    levels: Vec<Vec<PathBuf>>,
    files: usize,
    count: u64,
}

impl ExternalSorter {
    /// A sorter with its temporary files in `directory`, which must exist.
    pub(super) fn new(directory: PathBuf) -> ExternalSorter {
        ExternalSorter::with_run_bytes(directory, RUN_BYTES)
    }

    /// A sorter with runs of `run_bytes`.
    pub(super) fn with_run_bytes(directory: PathBuf, run_bytes: usize) -> ExternalSorter {
        let levels = vec![Vec::new()];
        let (text, lines) = (Vec::new(), Vec::new());
        ExternalSorter { directory, run_bytes, text, lines, levels, files: 0, count: 0 }
    }

    /// Adds a line.
    pub(super) fn add(&mut self, key: SortKey, line: &[u8]) -> Result<(), Error> {
        let start = self.text.len();
        self.text.extend_from_slice(line);
        self.lines.push((key, start..self.text.len()));
        self.count += 1;
        match self.text.len() + self.lines.len() * LINE_BYTES >= self.run_bytes {
            true => self.write_run(),
            false => Ok(()),
        }
    }

    /// All lines in order.
    pub(super) fn finish(mut self) -> Result<SortedLines, Error> {
        self.write_run()?;
        let mut paths: Vec<PathBuf> = self.levels.concat();
        while paths.len() > MERGE_WIDTH {
            let first = paths.drain(..MERGE_WIDTH).collect();
            paths.push(self.merge_runs(first)?);
        }
        Ok(SortedLines { count: self.count, merge: KWayMerge::new(paths)? })
    }

    fn write_run(&mut self) -> Result<(), Error> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let mut lines = std::mem::take(&mut self.lines);
        lines.sort_by_key(|(key, _)| *key);
        let (path, mut run) = self.create_run()?;
        for (key, range) in &lines {
            write_line(&mut run, *key, &self.text[range.clone()])?;
        }
        run.finish()?.flush()?;
        self.text.clear();
        lines.clear();
        self.lines = lines;
        self.levels[0].push(path);
        let mut level = 0;
        while self.levels[level].len() >= MERGE_WIDTH {
            let paths = std::mem::take(&mut self.levels[level]);
            let path = self.merge_runs(paths)?;
            level += 1;
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            self.levels[level].push(path);
        }
        Ok(())
    }

    fn merge_runs(&mut self, paths: Vec<PathBuf>) -> Result<PathBuf, Error> {
        let (path, mut run) = self.create_run()?;
        let mut merge = KWayMerge::new(paths)?;
        while let Some((key, line)) = merge.next()? {
            write_line(&mut run, key, &line)?;
        }
        run.finish()?.flush()?;
        Ok(path)
    }

    fn create_run(&mut self) -> Result<(PathBuf, GzEncoder<BufWriter<File>>), Error> {
        self.files += 1;
        let path = self.directory.join(format!("part-{}", self.files));
        let file = BufWriter::new(File::create_new(&path)?);
        Ok((path, GzEncoder::new(file, Compression::fast())))
    }
}

/// The lines in order.
pub(super) struct SortedLines {
    count: u64,
    merge: KWayMerge,
}

impl SortedLines {
    /// The number of all lines, read or not.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The next line.
    pub(super) fn next(&mut self) -> Result<Option<(SortKey, Vec<u8>)>, Error> {
        self.merge.next()
    }
}

/// A k-way merge of runs. The file of each run is removed after its last line.
struct KWayMerge {
    runs: Vec<(PathBuf, BufReader<GzDecoder<BufReader<File>>>)>,
    /// The next line of each run that has one.
    heads: BinaryHeap<Reverse<(SortKey, usize, Vec<u8>)>>,
}

impl KWayMerge {
    fn new(paths: Vec<PathBuf>) -> Result<KWayMerge, Error> {
        let open = |path: PathBuf| {
            let file = BufReader::new(File::open(&path)?);
            Ok((path, BufReader::new(GzDecoder::new(file))))
        };
        let runs = paths.into_iter().map(open).collect::<Result<Vec<_>, Error>>()?;
        let mut merge = KWayMerge { heads: BinaryHeap::with_capacity(runs.len()), runs };
        (0..merge.runs.len()).try_for_each(|run| merge.advance(run))?;
        Ok(merge)
    }

    fn next(&mut self) -> Result<Option<(SortKey, Vec<u8>)>, Error> {
        let Some(Reverse((key, run, line))) = self.heads.pop() else { return Ok(None) };
        self.advance(run)?;
        Ok(Some((key, line)))
    }

    fn advance(&mut self, run: usize) -> Result<(), Error> {
        let (path, reader) = &mut self.runs[run];
        match read_line(reader)? {
            Some((key, line)) => self.heads.push(Reverse((key, run, line))),
            None => std::fs::remove_file(path)?,
        }
        Ok(())
    }
}

fn write_line(out: &mut impl Write, (time, seq): SortKey, line: &[u8]) -> Result<(), Error> {
    let length = u32::try_from(line.len()).map_err(Error::other)?;
    out.write_all(&time.to_le_bytes())?;
    out.write_all(&seq.to_le_bytes())?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(line)
}

fn read_line(reader: &mut impl Read) -> Result<Option<(SortKey, Vec<u8>)>, Error> {
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
