//! The directory: files that are whole or not there, whoever else writes to it and whenever a process is killed.
//!
//! Nothing is locked. A file is written under a name of its own and then renamed, so of several writers the last one counts, and a
//! reader sees one of them whole. Everything here blocks.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::page::{ENDING, Label, is_hex};
use crate::{Error, ErrorKind, Result};

/// The largest file: some 200,000 plain records. More would fill a small machine's memory when it is read.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// A temporary file that is older is nobody's: its process was killed, as writing takes milliseconds.
const ABANDONED: Duration = Duration::from_secs(10 * 60);
/// Entries of the directory that are looked at in one go. It may be one that holds other things too.
const MAX_ENTRIES: usize = 100_000;

pub(super) struct Folder {
    path: PathBuf,
    max_age: Duration,
}

impl Folder {
    pub(super) fn new(path: PathBuf, max_age: Duration) -> Self {
        Self { path, max_age }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn max_age(&self) -> Duration {
        self.max_age
    }

    /// The bytes of a file; `None` if there is none.
    pub(super) fn read(&self, label: &Label) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(label.file_name());
        let failed = |error| failure("read", &path, error);
        let corrupt = |why: &str| Error::new(ErrorKind::Corrupt, "read", path.display().to_string(), why);
        let Some(about) = found(fs::symlink_metadata(&path)).map_err(failed)? else { return Ok(None) };
        self.check_private()?;
        // Opening a pipe would wait for its writer, and a link leads to what somebody else may write.
        if !about.is_file() {
            return Err(corrupt("it is no regular file"));
        }
        let Some(file) = found(File::open(&path)).map_err(failed)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(corrupt(&format!("it has more than {MAX_FILE} bytes")));
        }
        Ok(Some(bytes))
    }

    /// Replaces a file. Whoever reads it meanwhile sees the old one or the new one, and so does who comes after a kill.
    pub(super) fn write(&self, label: &Label, bytes: &[u8]) -> Result<()> {
        let name = label.file_name();
        let path = self.path.join(&name);
        if bytes.len() as u64 > MAX_FILE {
            let why = format!("it would have {} bytes, and {MAX_FILE} are allowed", bytes.len());
            return Err(Error::new(ErrorKind::TooLarge, "write", path.display().to_string(), why));
        }
        let failed = |error| failure("write", &path, error);
        private(&mut DirBuilder::new()).recursive(true).create(&self.path).map_err(failed)?;
        self.check_private()?;
        let temporary = self.path.join(format!("{name}.{:016x}.tmp", fastrand::u64(..)));
        let written = write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|error| {
            // What went wrong is the first error; what is left is cleared away later.
            let _ = fs::remove_file(&temporary);
            failed(error)
        })
    }

    /// Removes what is too old to be of use, and what killed processes left. Of files that are not ours it touches none.
    pub(super) fn sweep(&self) -> Result<usize> {
        let failed = |error| failure("clear", &self.path, error);
        let Some(entries) = found(fs::read_dir(&self.path)).map_err(failed)? else { return Ok(0) };
        self.check_private()?;
        let mut removed = 0;
        for entry in entries.take(MAX_ENTRIES) {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(limit) = name.to_str().and_then(|name| self.limit(name)) else { continue };
            // Somebody else may have removed it, or just replaced it; then the next confirmation brings it back.
            if let Ok(about) = entry.metadata()
                && about.is_file()
                && about.modified().is_ok_and(|at| distance(at) > limit)
                && fs::remove_file(entry.path()).is_ok()
            {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// How long a file of this name may lie there; `None` if it is not ours.
    fn limit(&self, name: &str) -> Option<Duration> {
        if Label::is_name(name) {
            return Some(self.max_age);
        }
        let (stem, random) = name.strip_suffix(".tmp")?.rsplit_once('.')?;
        let ours = stem.ends_with(ENDING) && Label::is_name(stem) && random.len() == 16 && random.bytes().all(is_hex);
        ours.then_some(ABANDONED)
    }

    /// Whoever may write here decides whom we call.
    #[cfg(unix)]
    fn check_private(&self) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let about = fs::metadata(&self.path).map_err(|error| failure("use", &self.path, error))?;
        let Some(why) = distrust(about.mode(), about.uid(), rustix::process::geteuid().as_raw()) else { return Ok(()) };
        Err(Error::new(ErrorKind::PermissionDenied, "use", self.path.display().to_string(), why))
    }

    #[cfg(not(unix))]
    fn check_private(&self) -> Result<()> {
        Ok(())
    }
}

/// Why a directory of this mode and owner is not to be used, if so. The superuser may write anywhere anyway.
#[cfg(unix)]
pub(super) fn distrust(mode: u32, owner: u32, us: u32) -> Option<&'static str> {
    if mode & 0o022 != 0 {
        return Some(
            "others may write to this directory, and so decide whom is called; name one inside of it, which is then made",
        );
    }
    let foreign = owner != us && owner != 0;
    foreign.then_some(
        "this directory is another user's, who so decides whom is called; name one that is made by this user",
    )
}

/// A clock may have gone in either direction since, so a time in the future is as far away as one in the past.
fn distance(at: SystemTime) -> Duration {
    SystemTime::now().duration_since(at).unwrap_or_else(|ahead| ahead.duration())
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// It is not forced to the disk: what a loss of power leaves is whole, or seen not to be.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    private_file(options.write(true).create_new(true)).open(path)?.write_all(bytes)
}

#[cfg(unix)]
fn private(builder: &mut DirBuilder) -> &mut DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    builder.mode(0o700)
}

#[cfg(not(unix))]
fn private(builder: &mut DirBuilder) -> &mut DirBuilder {
    builder
}

#[cfg(unix)]
fn private_file(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600)
}

#[cfg(not(unix))]
fn private_file(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

fn failure(operation: &'static str, path: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::PermissionDenied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Exhausted,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, operation, path.display().to_string(), error.to_string()).with_source(error)
}
