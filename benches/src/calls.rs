//! Calls at a steady rate, whatever becomes of those before, and what became of them.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use discovery_greeter::{GreeterClient, HelloRequest};
use discovery_tonic::Channel;
use tokio::task::JoinHandle;
use tonic::{Request, Status};

use crate::Result;

/// What each call allows.
const DEADLINE: Duration = Duration::from_secs(10);
/// Answers in a stream.
const ANSWERS: u32 = 3;

/// One that runs.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    ends: Arc<Mutex<Vec<End>>>,
    open: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// How one call ended: when it began, how long it took, and why it failed.
pub(crate) struct End {
    pub(crate) begun: Instant,
    pub(crate) took: Duration,
    pub(crate) failure: Option<String>,
}

/// What became of the calls that began in some time.
pub(crate) struct Report {
    pub(crate) calls: usize,
    pub(crate) failures: BTreeMap<String, usize>,
    /// Seconds, sorted.
    took: Vec<f64>,
}

impl Load {
    /// Starts so many calls a second, half of them unary and half with a stream of answers.
    pub(crate) fn start(channel: &Channel, rate: u32) -> Self {
        let (stop, ends, open) =
            (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<End>>>::default(), Arc::<AtomicU64>::default());
        let client = GreeterClient::new(channel.clone());
        let (stopped, sink, running) = (stop.clone(), ends.clone(), open.clone());
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(2) / rate);
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                for streams in [false, true] {
                    let (client, sink, running) = (client.clone(), sink.clone(), running.clone());
                    running.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(async move {
                        let begun = Instant::now();
                        let failure = call(client, streams).await.err().map(|status| status.to_string());
                        let end = End { begun, took: begun.elapsed(), failure };
                        sink.lock().unwrap_or_else(PoisonError::into_inner).push(end);
                        running.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            }
        });
        Self { stop, ends, open, task }
    }

    /// What became of the calls that began between two moments.
    pub(crate) fn between(&self, from: Instant, until: Instant) -> Report {
        let ends = self.ends();
        let all = ends.iter().filter(|end| (from..until).contains(&end.begun));
        Report::of(all.map(|end| (end.took, end.failure.as_deref())))
    }

    /// Takes out how the calls so far ended, so that they do not fill the memory.
    pub(crate) fn drain(&self) -> Vec<End> {
        mem::take(&mut self.ends())
    }

    fn ends(&self) -> MutexGuard<'_, Vec<End>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it, waits for the calls that are open, and says what became of all.
    pub(crate) async fn end(mut self, begun: Instant) -> Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        let last = Instant::now() + DEADLINE * 2;
        (&mut self.task).await?;
        while self.open.load(Ordering::Relaxed) > 0 {
            if Instant::now() > last {
                return Err(format!("{} calls never ended", self.open.load(Ordering::Relaxed)).into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(self.between(begun, Instant::now()))
    }
}

async fn call(mut client: GreeterClient<Channel>, streams: bool) -> Result<(), Status> {
    let mut request = Request::new(HelloRequest { name: "you".to_owned(), count: ANSWERS });
    request.set_timeout(DEADLINE);
    if !streams {
        return client.say_hello(request).await.map(|_| ());
    }
    let mut replies = client.count_hellos(request).await?.into_inner();
    let mut answers = 0;
    while replies.message().await?.is_some() {
        answers += 1;
    }
    if answers == ANSWERS { Ok(()) } else { Err(Status::data_loss(format!("{answers} of {ANSWERS} answers"))) }
}

impl Report {
    /// Of calls that took so long and failed for that reason, if any.
    pub(crate) fn of<'a>(calls: impl Iterator<Item = (Duration, Option<&'a str>)>) -> Self {
        let (mut took, mut failures) = (Vec::new(), BTreeMap::new());
        for (duration, failure) in calls {
            took.push(duration.as_secs_f64());
            if let Some(failure) = failure {
                *failures.entry(failure.to_owned()).or_insert(0) += 1;
            }
        }
        took.sort_by(f64::total_cmp);
        Self { calls: took.len(), failures, took }
    }

    pub(crate) fn failed(&self) -> usize {
        self.failures.values().sum()
    }

    /// The time that this share of the calls stayed under, in milliseconds.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let at = (self.took.len() as f64 * share) as usize;
        self.took.get(at.min(self.took.len().saturating_sub(1))).map_or(f64::NAN, |seconds| seconds * 1e3)
    }

    /// Prints how many calls there were, how many failed and why, and how long they took.
    pub(crate) fn print(&self, figure: &str) {
        println!("{figure}_calls {} calls", self.calls);
        println!("{figure}_failed {} calls", self.failed());
        println!("{figure}_p99 {:.2} ms", self.quantile(0.99));
        println!("{figure}_max {:.1} ms", self.quantile(1.0));
        for (failure, count) in self.failures.iter().take(5) {
            eprintln!("{count} × {failure}");
        }
    }
}
