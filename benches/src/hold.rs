//! A process that holds registrations and watches through one handle, and says how many of them hold.

use std::io::Write;
use std::time::Duration;

use discovery_core::{Instance, RegisterOptions};
use futures_util::future::try_join_all;
use tracing_subscriber::filter::LevelFilter;

use crate::Result;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);
/// Longer than a busy machine takes to register a thousand.
const DEADLINE: Duration = Duration::from_secs(60);

/// The service of a number.
pub(crate) fn service(number: usize) -> String {
    format!("service-{number:04}")
}

/// Registers one instance in each of the services `0..registrations`, under an id of the process, and watches the services `0..watches`.
///
/// Whenever it changes it prints how many registrations hold, how many watches are live and how many instances these show:
/// `holds <registered> <live> <instances>`. The log goes the same way, as it is by default.
pub(crate) async fn run(url: &str, id: &str, registrations: usize, watches: usize) -> Result<()> {
    tracing_subscriber::fmt().with_max_level(LevelFilter::INFO).with_ansi(false).init();
    let backend = crate::connect(url)?;
    let watches: Vec<_> = (0..watches).map(|n| backend.watch(&service(n))).collect();
    let options = RegisterOptions::default().with_deadline(DEADLINE);
    let held = try_join_all((0..registrations).map(async |n| {
        let builder = Instance::builder(service(n)).id(format!("{id}-{n}")).endpoint("grpc://10.0.0.5:9000");
        Ok::<_, crate::Error>(backend.register(builder.build()?, options.clone()).await?)
    }))
    .await?;
    let mut last = None;
    loop {
        let registered = held.iter().filter(|registration| registration.state().is_registered()).count();
        let live = watches.iter().filter(|watch| watch.freshness().is_live()).count();
        let instances: usize = watches.iter().filter_map(|watch| watch.latest()).map(|set| set.len()).sum();
        let now = format!("holds {registered} {live} {instances}");
        if last.as_ref() != Some(&now) {
            // One write, so that no line of the log comes in between.
            std::io::stdout().lock().write_all(format!("{now}\n").as_bytes())?;
            last = Some(now);
        }
        tokio::time::sleep(LOOK).await;
    }
}
