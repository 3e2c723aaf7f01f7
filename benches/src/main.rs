//! `cargo run --release -p discovery-bench -- <name>` prints one figure a line: `<name>.<figure> <number> <unit>`.
//!
//! A figure is a ratio wherever a peer or a floor exists, both measured interleaved in one run: the median of the rounds, with the
//! smallest and the largest behind it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench talks to a person")]

mod fleet;
mod hash;
mod measure;
mod pick;
mod snapshot;
mod tail;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["hash"] => hash::run().await,
        ["pick"] => pick::run().await,
        ["snapshot", ref stores @ ..] => snapshot::run(stores).await,
        ["tail"] => tail::run(tail::Plots::No).await,
        ["tail", "--plots"] => tail::run(tail::Plots::Yes).await,
        _ => {
            eprintln!("there is no bench {words:?}; known are: hash, pick, snapshot [store …], tail, tail --plots");
            std::process::exit(2)
        }
    }
}
