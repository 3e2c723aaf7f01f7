//! The command-line clients that come with the servers.

use std::{
    io,
    process::{Command, Stdio},
    time::Duration,
};

use tokio::{io::AsyncWriteExt, time::timeout};

/// Longer than any healthy answer takes, short enough that a client of a dead server cannot hang a test.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs `command` with `input` on its stdin and returns what it wrote to stdout.
///
/// # Errors
///
/// `TimedOut` after ten seconds, upon which it is killed; an error with its stderr when it fails.
///
/// # Cancel safety
///
/// A cancelled call kills the client, which may or may not have reached the server.
pub(crate) async fn run(command: Command, input: &[u8]) -> io::Result<String> {
    let name = describe(&command);
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A client that fails before it has read everything explains itself on stderr; the broken pipe is no news.
            stdin.write_all(input).await.ok();
        }
    };
    let finish = async { tokio::join!(feed, child.wait_with_output()).1 };
    let output = timeout(LIMIT, finish)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("{name}: no end within {LIMIT:?}")))??;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{name}: {}: {}", output.status, stderr.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
