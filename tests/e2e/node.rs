//! Example programs as processes of their own.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The longest that a program of the examples may take to say or do what it is asked.
const LIMIT: Duration = Duration::from_secs(30);

/// The path of an example, which `cargo test` has built next to this test.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} was not built; run the tests with cargo", path.display());
    path
}

/// Runs an example to its end and returns what it printed.
pub(crate) async fn run(name: &str, arguments: &[&str]) -> String {
    let (code, text, errors) = outcome(name, arguments).await;
    assert_eq!(code, Some(0), "{name} {arguments:?} failed\n{text}\n{errors}");
    text
}

/// Runs an example to its end and returns its exit code, what it printed, and what it complained of.
pub(crate) async fn outcome(name: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(example(name));
    command.args(arguments).kill_on_drop(true);
    let output = timeout(LIMIT * 2, command.output()).await.expect("it ends in time").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A running example whose output is read line by line.
pub(crate) struct Node {
    child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Node {
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        Self::start_with(name, arguments, &[])
    }

    pub(crate) fn start_with(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(example(name));
        command.envs(environment.iter().copied());
        let child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn();
        let mut child = child.unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line that it prints.
    pub(crate) async fn line(&mut self) -> String {
        timeout(LIMIT, self.lines.next_line()).await.expect("a line in time").unwrap().expect("a line before the end")
    }

    /// Ends it without a word, as the kernel does when memory runs out.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to end, as an orchestrator does, and returns how it did.
    pub(crate) async fn terminate(self) -> ExitStatus {
        self.signal("TERM").await
    }

    /// Sends it a signal by name, and returns how it ended.
    pub(crate) async fn signal(mut self, signal: &str) -> ExitStatus {
        let pid = self.child.id().expect("a running process").to_string();
        let signalled = Command::new("kill").args(["-s", signal, &pid]).status().await.unwrap();
        assert!(signalled.success());
        timeout(LIMIT, self.child.wait()).await.expect("it ends in time").unwrap()
    }
}
