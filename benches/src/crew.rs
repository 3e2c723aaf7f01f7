//! Processes that a bench starts of itself, and the line on which it asks them.
//!
//! A question is a line `number words…`, its answer a line `number words…`. A process ends with its parent: the kernel kills it, and
//! where that cannot be arranged it ends when the line does.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use discovery_harness::ServerProcess;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::Result;

type Question = (String, oneshot::Sender<String>);

/// A process and the line to it. It ends with this value.
pub(crate) struct Mate {
    process: ServerProcess,
    questions: mpsc::UnboundedSender<Question>,
    line: JoinHandle<()>,
}

impl Mate {
    /// Starts this program with `arguments` and, behind them, the address that it has to [`answer`] on.
    pub(crate) async fn start(arguments: &[&str], log: &Path) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).arg(listener.local_addr()?.to_string());
        let process = ServerProcess::spawn(&command, log)?;
        let (questions, asked) = mpsc::unbounded_channel();
        // What cannot be answered any more is answered by the end of the question's channel.
        let line = tokio::spawn(async move { carry(listener, asked).await.unwrap_or(()) });
        Ok(Self { process, questions, line })
    }

    pub(crate) fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// Says something; a process that is stopped or not ready hears it later. The answer is for whoever wants it.
    pub(crate) fn tell(&self, words: &str) -> oneshot::Receiver<String> {
        let (answer, heard) = oneshot::channel();
        // A line that has ended drops the question, and so its answer.
        let _ = self.questions.send((words.to_owned(), answer));
        heard
    }

    /// Asks, and waits so long.
    pub(crate) async fn ask(&self, words: &str, within: Duration) -> Result<String> {
        let answer = tokio::time::timeout(within, self.tell(words)).await;
        let answer = answer.map_err(|_| format!("no answer to {words} within {within:?}"))?;
        Ok(answer.map_err(|_| format!("it ended before it answered {words}"))?)
    }
}

impl Drop for Mate {
    fn drop(&mut self) {
        self.line.abort();
    }
}

async fn carry(listener: TcpListener, mut asked: mpsc::UnboundedReceiver<Question>) -> Result<()> {
    let (stream, _) = listener.accept().await?;
    let (read, mut write) = stream.into_split();
    let mut answers = BufReader::new(read).lines();
    let (mut open, mut number) = (HashMap::new(), 0_u64);
    loop {
        tokio::select! {
            question = asked.recv() => {
                let Some((words, answer)) = question else { return Ok(()) };
                number += 1;
                open.insert(number.to_string(), answer);
                write.write_all(format!("{number} {words}\n").as_bytes()).await?;
            }
            line = answers.next_line() => {
                let Some(line) = line? else { return Ok(()) };
                if let Some((number, words)) = line.split_once(' ')
                    && let Some(answer) = open.remove(number)
                {
                    // Whoever asked may have stopped waiting.
                    let _ = answer.send(words.to_owned());
                }
            }
        }
    }
}

/// What the process does: answers until the parent hangs up.
pub(crate) async fn answer(parent: &str, mut reply: impl AsyncFnMut(&str) -> String) -> Result<()> {
    let (read, mut write) = TcpStream::connect(parent).await?.into_split();
    let mut questions = BufReader::new(read).lines();
    while let Some(line) = questions.next_line().await? {
        let (number, words) = line.split_once(' ').unwrap_or((&line, ""));
        let words = reply(words).await.replace('\n', " ");
        write.write_all(format!("{number} {words}\n").as_bytes()).await?;
    }
    Ok(())
}
