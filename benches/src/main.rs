//! `cargo run --release -p discovery-bench -- <name>` prints one figure a line: `<name>.<figure> <number> <unit>`.
//!
//! A figure is a ratio wherever a peer or a floor exists, both measured interleaved in one run: the median of the rounds, with the
//! smallest and the largest behind it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench talks to a person")]

mod measure;
mod snapshot;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("snapshot") => snapshot::run().await,
        other => {
            eprintln!("there is no bench {other:?}; known are: snapshot");
            std::process::exit(2)
        }
    }
}
