//! Programs that are installed are found, others are not.

use std::{io, process::Command};

use discovery_harness::{available, find, skip_unless_available};

const MISSING: &str = "no-such-registry-server";

/// Set for the tests that others run as processes of their own.
const PART: &str = "HARNESS_TEST_PART";

/// Returns a command that runs one test of this binary in a process of its own, with a fresh environment.
pub(crate) fn run_alone(test: &str, env: &[(&str, &str)]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(PART, "1");
    command.env_remove("CI").env_remove("DISCOVERY_REQUIRE_SERVERS").envs(env.iter().copied());
    Ok(command)
}

/// Tells whether this is such a process; whoever runs all ignored tests has no use for their parts.
pub(crate) fn plays_a_part() -> bool {
    std::env::var_os(PART).is_some()
}

#[test]
fn finds_what_is_installed() -> io::Result<()> {
    assert!(available("sh")?);
    assert!(find("sh")?.is_absolute());
    assert_eq!(find(MISSING).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    Ok(())
}

#[test]
#[ignore = "run by the tests below, with the environment that each of them sets"]
fn needs_a_missing_server() -> io::Result<()> {
    if !plays_a_part() {
        return Ok(());
    }
    skip_unless_available!("sh", MISSING);
    Err(io::Error::other("not skipped"))
}

#[test]
fn skips_loudly() -> io::Result<()> {
    let run = run_alone("availability::needs_a_missing_server", &[])?.output()?;
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{stderr}");
    assert!(stderr.contains("SKIPPED") && stderr.contains(MISSING), "{stderr}");
    Ok(())
}

#[test]
fn fails_where_servers_are_required() -> io::Result<()> {
    for required in [("CI", "true"), ("DISCOVERY_REQUIRE_SERVERS", "1")] {
        let run = run_alone("availability::needs_a_missing_server", &[required])?.output()?;
        assert!(!run.status.success(), "skipped in spite of {required:?}");
    }
    Ok(())
}
