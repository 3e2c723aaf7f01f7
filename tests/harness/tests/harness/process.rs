//! Servers end when they are told to, and never outlive their test.

use std::{
    fs, io,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use discovery_harness::{ServerProcess, available, eventually};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    availability::{plays_a_part, run_alone},
    network::{SOON, WHILE},
};

fn shell(script: &str, folder: &Path) -> io::Result<ServerProcess> {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("GREETING", "hello");
    ServerProcess::spawn(&command, &folder.join("log"))
}

/// Tells whether the process has this name; a process has others while it is being started.
fn runs(pid: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
}

/// Tells whether the process has not ended; one that has but was not reaped by its parent is a zombie.
fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn logs_both_outputs_and_sees_the_environment() -> io::Result<()> {
    let folder = TempDir::new()?;
    let process = shell("echo $GREETING; echo world >&2", folder.path())?;
    eventually(SOON, "both lines", async || match process.log_tail() {
        log if log == "hello\nworld\n" => Ok(()),
        log => Err(log),
    })
    .await;
    eventually(SOON, "the end", async || !process.is_running()).await;
    assert_eq!(process.freeze().map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    assert!(process.kill()?.success(), "it had ended by itself");
    Ok(())
}

#[tokio::test]
async fn terminate_reports_a_process_that_does_not_listen() -> io::Result<()> {
    let folder = TempDir::new()?;
    let deaf = shell("trap '' TERM; echo deaf; while :; do sleep 0.01; done", folder.path())?;
    eventually(SOON, "deaf", async || deaf.log_tail().contains("deaf")).await;
    let outcome = deaf.terminate(WHILE).await;
    assert_eq!(outcome.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    assert!(deaf.is_running());
    deaf.kill()?;
    assert!(!deaf.is_running());
    Ok(())
}

#[tokio::test]
async fn freezing_is_complete_and_repeatable() -> io::Result<()> {
    let folder = TempDir::new()?;
    let busy = shell("while :; do echo tick; done", folder.path())?;
    let log = folder.path().join("log");
    let length = || fs::metadata(&log).map(|data| data.len());
    for _ in 0..20 {
        let before = length()?;
        eventually(SOON, "ticks", async || length().is_ok_and(|now| now > before)).await;
        busy.freeze()?;
        busy.freeze()?;
        let frozen = length()?;
        sleep(Duration::from_millis(5)).await;
        assert_eq!(length()?, frozen);
        assert!(busy.is_running());
        busy.thaw()?;
    }
    busy.freeze()?;
    busy.terminate(SOON).await?;
    Ok(())
}

#[test]
fn a_frozen_process_ends_with_its_owner() -> io::Result<()> {
    let folder = TempDir::new()?;
    let process = shell("exec sleep 600", folder.path())?;
    process.freeze()?;
    let pid = process.pid();
    assert!(lives(pid));
    drop(process);
    assert!(!lives(pid));
    Ok(())
}

#[test]
fn a_missing_program_is_not_found() -> io::Result<()> {
    let folder = TempDir::new()?;
    let outcome = ServerProcess::spawn(&Command::new("no-such-registry-server"), &folder.path().join("log"));
    assert_eq!(outcome.map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    Ok(())
}

#[tokio::test]
async fn a_server_outlives_the_thread_that_asked_for_it() -> io::Result<()> {
    let folder = TempDir::new()?;
    let path = folder.path().to_owned();
    let thread = thread::spawn(move || shell("exec sleep 600", &path));
    let process = thread.join().map_err(|_| io::Error::other("panicked"))??;
    sleep(WHILE).await;
    assert!(process.is_running());
    Ok(())
}

#[test]
#[ignore = "run by the test below, which kills it"]
fn starts_a_server_and_hangs() -> io::Result<()> {
    if !plays_a_part() {
        return Ok(());
    }
    let folder = TempDir::new()?;
    let process = shell("exec sleep 600", folder.path())?;
    eprintln!("server {}", process.pid());
    thread::park_timeout(SOON * 12);
    Ok(())
}

#[tokio::test]
async fn a_server_does_not_outlive_a_killed_test() -> io::Result<()> {
    if !available("setpriv")? {
        return Ok(());
    }
    for round in 0..10 {
        let mut test = run_alone("process::starts_a_server_and_hangs", &[])?;
        let mut test = test.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let stderr = test.stderr.take().ok_or_else(|| io::Error::other("no stderr"))?;
        let mut lines = BufReader::new(stderr).lines();
        let pid = lines.find_map(|line| line.ok()?.strip_prefix("server ")?.parse().ok());
        let pid = pid.ok_or_else(|| io::Error::other("no server was started"))?;
        // In the other rounds the test is killed while the server is still starting.
        if round % 2 == 0 {
            eventually(SOON, "the server", async || runs(pid, "sleep")).await;
        }
        test.kill()?;
        test.wait()?;
        eventually(SOON, "the end of the server", async || !lives(pid)).await;
    }
    Ok(())
}
