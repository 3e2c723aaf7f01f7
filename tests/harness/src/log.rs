//! What a server writes while it runs.

use std::{
    fs::File,
    io,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

/// Enough for the last few errors, little enough to be read in a failed test's output.
const TAIL: u64 = 4096;

/// A log file that every start of a server appends to.
#[derive(Debug)]
pub(crate) struct Log(PathBuf);

impl Log {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn open(&self) -> io::Result<File> {
        File::options().create(true).append(true).open(&self.0)
    }

    /// Returns the last lines, or why they cannot be read.
    pub(crate) fn tail(&self) -> String {
        self.read_tail().unwrap_or_else(|error| format!("(the log cannot be read: {error})"))
    }

    fn read_tail(&self) -> io::Result<String> {
        let mut file = File::open(&self.0)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut tail = Vec::new();
        file.take(TAIL).read_to_end(&mut tail)?;
        Ok(String::from_utf8_lossy(&tail).into_owned())
    }
}
