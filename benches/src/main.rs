//! `cargo run --release -p discovery-bench -- <name>` prints one figure a line: `<name>.<figure> <number> <unit>`.
//!
//! A figure is a ratio wherever a peer or a floor exists, both measured interleaved in one run: the median of the rounds, with the
//! smallest and the largest behind it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench talks to a person")]

mod blackout;
mod calls;
mod channel;
mod chaos;
mod crew;
mod deploy;
mod fleet;
mod hash;
mod hold;
mod load;
mod measure;
mod meter;
mod pick;
mod poison;
mod process;
mod raw;
mod registry;
mod simulate;
mod snapshot;
mod store;
mod storm;
mod tail;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// A handle of the registry at a URL.
fn connect(url: &str) -> Result<std::sync::Arc<dyn discovery_core::Backend>> {
    Ok(discovery_kit::connect(url)?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["blackout", ref words @ ..] => blackout::run(words).await,
        ["call", url, rate, file] => blackout::call(url, rate.parse()?, file).await,
        ["channel", ref names @ ..] => channel::run(names).await,
        ["serve-http"] => channel::serve().await,
        ["chaos", ref words @ ..] => chaos::run(words).await,
        ["play", ref words @ ..] => chaos::roles::play(words).await,
        ["poison", ref words @ ..] => poison::run(words).await,
        ["deploy", ref stores @ ..] => deploy::run(stores).await,
        ["serve", name, url] => deploy::serve(name, url).await,
        ["hold", url, id, registrations, watches] => hold::run(url, id, registrations.parse()?, watches.parse()?).await,
        ["hash"] => hash::run().await,
        ["load", ref words @ ..] => load::run(words).await,
        ["pick"] => pick::run().await,
        // It has runtimes of its own.
        ["simulate", ref words @ ..] => tokio::task::block_in_place(|| simulate::run(words)),
        ["snapshot", ref stores @ ..] => snapshot::run(stores).await,
        ["storm", ref words @ ..] => storm::run(words).await,
        ["tail"] => tail::run(tail::Plots::No).await,
        ["tail", "--plots"] => tail::run(tail::Plots::Yes).await,
        _ => {
            eprintln!(
                "there is no bench {words:?}; known are: blackout [store …], channel [contestant …], chaos [--store X] [--minutes N] [--seed N] [--logs FOLDER], deploy [store …], hash, load [store …], pick, poison [--store X], simulate [--schedules N] [--seed N] [--trace], snapshot [store …], storm [store …], tail, tail --plots"
            );
            std::process::exit(2)
        }
    }
}
