//! Whether the programs that a test needs are installed.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

/// Makes a missing server a failure instead of a skipped test, when it is `1`.
const REQUIRE: &str = "DISCOVERY_REQUIRE_SERVERS";

/// Returns from the test with `Ok(())` where one of the programs is not installed, and says so on stderr.
///
/// The test must return a [`Result`] whose error can be made from [`std::io::Error`]: where servers are required (see
/// [`available`](crate::available)) the test fails with that error instead.
#[macro_export]
macro_rules! skip_unless_available {
    ($($program:expr),+ $(,)?) => {
        $(if !$crate::available($program)? {
            return Ok(());
        })+
    };
}

/// Tells whether `program` is installed, and prints a line to stderr where it is not.
///
/// # Errors
///
/// `NotFound` where it is not installed but `CI` is `true` or `DISCOVERY_REQUIRE_SERVERS` is `1`: a build that is meant to run
/// every test must not be green because it skipped some.
pub fn available(program: &str) -> io::Result<bool> {
    judge(program, find(program).is_ok())
}

/// Tells whether `what` is installed, says so where it is not, and fails where nothing may be skipped.
pub(crate) fn judge(what: &str, installed: bool) -> io::Result<bool> {
    if installed {
        return Ok(true);
    }
    if is_set_to("CI", "true") || is_set_to(REQUIRE, "1") {
        let why = format!("{what} is not installed, and this build must not skip tests (CI=true or {REQUIRE}=1)");
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    eprintln!("SKIPPED, NOT TESTED: {what} is not installed (set {REQUIRE}=1 to make this a failure)");
    Ok(false)
}

/// Returns the path of an installed program, searched for in `PATH` unless the name has a slash.
///
/// # Errors
///
/// `NotFound` where no such executable file exists.
pub fn find(program: &str) -> io::Result<PathBuf> {
    let found = if program.contains('/') {
        Some(PathBuf::from(program)).filter(|path| is_executable(path))
    } else {
        env::var_os("PATH")
            .iter()
            .flat_map(env::split_paths)
            .map(|folder| folder.join(program))
            .find(|path| is_executable(path))
    };
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{program} is not installed")))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

fn is_set_to(name: &str, value: &str) -> bool {
    env::var_os(name).is_some_and(|set| set == value)
}
