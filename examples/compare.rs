//! Compares two registries: `cargo run --features etcd,zookeeper --example compare -- REGISTRY_URL REGISTRY_URL [SECONDS]`.
//!
//! Prints which instances are only in one of them and which records differ. Ends with 0 if nothing does, 1 if something still does after
//! that many seconds (10) and did for half of them, and 2 if a registry could not be asked, of which nothing may be concluded.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to a person")]

use std::process::ExitCode;
use std::time::Duration;

use discovery_kit::multi::{Report, compare};

async fn run() -> Result<Report, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(first), Some(second)) = (arguments.next(), arguments.next()) else {
        return Err("name two registry URLs".into());
    };
    let seconds = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let (first, second) = (discovery_kit::connect(&first)?, discovery_kit::connect(&second)?);
    Ok(compare(&*first, &*second, Duration::from_secs(seconds)).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(report) => {
            println!("{report}");
            ExitCode::from(u8::from(!report.is_equal()))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
