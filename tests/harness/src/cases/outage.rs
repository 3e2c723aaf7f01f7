//! F10: what a process costs while its registry is away.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tracing_subscriber::filter::LevelFilter;

use super::{Subject, register};
use crate::{Program, Proxy, Server, eventually};

/// Counts the lines that are logged.
#[derive(Clone, Default)]
struct Lines(Arc<AtomicU64>);

impl Lines {
    /// Relaxed suffices: it is a figure, and nothing hangs on its order with anything else.
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl io::Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let lines = text.iter().filter(|byte| **byte == b'\n').count();
        self.0.fetch_add(lines as u64, Ordering::Relaxed);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The processor time that this process has used.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // utime and stime, in ticks of 10 ms on every Linux that this runs on.
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// Twenty watches and five registrations, a minute without the server: few attempts, little work, few lines, and nobody else waits.
///
/// It measures the process and takes its log, so it must be alone in a test binary.
pub async fn a_minute_without_the_registry_costs_next_to_nothing<P: Program>(subject: Subject) {
    if !Server::<P>::available().expect("the server, which CI requires") {
        return;
    }
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt().with_max_level(LevelFilter::INFO).with_writer(move || writer.clone()).init();
    let server = Server::<P>::start().await.unwrap();
    let proxy = Proxy::start(server.socket_address()).await.unwrap();
    let backend = subject.connect(proxy.address());
    let mut held = Vec::new();
    for n in 0..5 {
        held.push(register(&backend, &format!("s{n}"), "a").await);
    }
    let watches: Vec<_> = (0..20).map(|n| backend.watch(&format!("s{n}"))).collect();
    for watch in &watches {
        watch.ready(Duration::from_secs(3)).await.unwrap();
    }
    let ticker = tokio::spawn(async {
        let mut latest = Duration::ZERO;
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            let due = Instant::now() + Duration::from_millis(100);
            tokio::time::sleep_until(due.into()).await;
            latest = latest.max(due.elapsed());
        }
        latest
    });
    let (connects, cpu_before, lines_before) = (proxy.connects(), cpu(), lines.count());
    proxy.cut_counting().await.unwrap();
    server.kill().unwrap();
    let late = ticker.await.unwrap();
    let (attempts, used) = (proxy.connects() - connects, cpu() - cpu_before);
    let logged = lines.count() - lines_before;
    println!("attempts {attempts}, processor {used:?}, lines {logged}, ticker late by {late:?}");
    assert!((1..=30).contains(&attempts), "{attempts} attempts");
    assert!(used <= Duration::from_secs(3), "{used:?} of processor time in a minute");
    assert!(late <= Duration::from_millis(200), "the ticker was {late:?} late");
    assert!(logged <= 100, "{logged} lines");
    server.start_again().await.unwrap();
    proxy.pass().await.unwrap();
    eventually(Duration::from_secs(25), "everything to hold again", async || {
        held.iter().all(|registration| registration.state().is_registered())
            && watches.iter().all(|watch| watch.freshness().is_live())
    })
    .await;
}
