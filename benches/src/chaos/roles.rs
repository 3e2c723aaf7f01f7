//! What the processes do: register and serve, watch, or call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use discovery_core::attempts::{RetryBudget, RetryPolicy};
use discovery_core::picker::PowerOfTwo;
use discovery_core::{Backend, Instance, RegisterOptions, Registration, Snapshot, Watch};
use discovery_greeter::{GreeterClient, HelloRequest, Named};
use discovery_tonic::{Channel, Retries, RunningServer, ServiceServer};
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tonic::{Code, Request};

use super::{BALLAST, BALLAST_EACH, SERVICE};
use crate::{Result, crew};

/// How long it serves on while it drains.
const GRACE: Duration = Duration::from_secs(1);
/// Long enough for a registry that is away for as long as a round may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// What each call allows.
const DEADLINE: Duration = Duration::from_secs(10);
/// A process that did not run for so long was stopped.
const STALL: Duration = Duration::from_secs(1);

/// Plays one role until the parent hangs up.
pub(crate) async fn play(words: &[&str]) -> Result<()> {
    // For whoever reads the logs of a run that went wrong.
    let level = std::env::var("DISCOVERY_CHAOS_LOG").ok().and_then(|it| it.parse().ok());
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr);
    log.with_max_level(level.unwrap_or(tracing::Level::INFO)).init();
    match *words {
        ["registrar", id, version, url, parent] => registrar(id, version, url, parent).await,
        ["watcher", url, parent] => watcher(url, parent).await,
        ["caller", rate, url, parent] => caller(rate.parse()?, url, parent).await,
        _ => Err(format!("there is no role {words:?}").into()),
    }
}

/// Serves one instance of the service, and holds some of another on the same lease.
async fn registrar(id: &str, version: &str, url: &str, parent: &str) -> Result<()> {
    let backend = crate::connect(url)?;
    let (orders, mut ordered) = mpsc::unbounded_channel::<String>();
    let state = Arc::new(Mutex::new("starting".to_owned()));
    let (id, version, shown) = (id.to_owned(), version.to_owned(), state.clone());
    let work = tokio::spawn(async move {
        let (running, ballast) = start(backend.clone(), &id, &version).await?;
        let say = || {
            let mut all: Vec<_> = ballast.iter().map(Registration::state).collect();
            all.push(running.registration().state());
            let not: Vec<_> = all.iter().filter(|it| !it.is_registered()).map(|it| format!("{it:?}")).collect();
            let words = if not.is_empty() { "registered".to_owned() } else { not.join("; ") };
            *shown.lock().unwrap_or_else(PoisonError::into_inner) = words;
        };
        let mut look = tokio::time::interval(Duration::from_millis(50));
        loop {
            let order = tokio::select! {
                order = ordered.recv() => order,
                _ = look.tick() => {
                    say();
                    continue;
                }
            };
            match order.as_deref().map(|order| order.split_once(' ').unwrap_or((order, ""))) {
                Some(("update", version)) => {
                    let updates = ballast.iter().chain([running.registration()]);
                    let updates = updates.map(|it| it.update(|it| it.version(version)));
                    // Whoever stops waiting does not take the change back.
                    let _ = tokio::time::timeout(Duration::from_secs(1), join_all(updates)).await;
                }
                Some(("drain", _)) => {
                    let ballast = join_all(ballast.iter().map(|it| it.drain(GRACE)));
                    let (drained, rest) = tokio::join!(running.shutdown(), ballast);
                    eprintln!("drained: {drained:?} {rest:?}");
                    return Ok(());
                }
                _ => return Ok::<_, crate::Error>(()),
            }
        }
    });
    let answering = crew::answer(parent, async |words| match words {
        "show" => state.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        order => match orders.send(order.to_owned()) {
            Ok(()) => "heard".to_owned(),
            Err(_) => "over".to_owned(),
        },
    });
    tokio::select! {
        ended = work => ended?,
        hung_up = answering => hung_up,
    }
}

async fn start(backend: Arc<dyn Backend>, id: &str, version: &str) -> Result<(RunningServer, Vec<Registration>)> {
    let options = RegisterOptions::default().with_deadline(PATIENCE);
    let ballast = (0..BALLAST_EACH).map(|number| {
        let builder = Instance::builder(BALLAST).id(format!("{id}-{number}")).endpoint("grpc://127.0.0.1:1");
        let instance = builder.version(version).build();
        async { backend.register(instance?, options.clone()).await }
    });
    let server = ServiceServer::bind("127.0.0.1:0").await?.with_grace(GRACE).with_registration(options.clone());
    let (name, first) = (id.to_owned(), version.to_owned());
    let server = server.instance(|instance| instance.id(name).version(first));
    let served = server.start(backend.clone(), SERVICE, Named::routes(id));
    let (served, ballast) = tokio::join!(served, join_all(ballast));
    Ok((served?, ballast.into_iter().collect::<Result<_, _>>()?))
}

/// Watches both services.
async fn watcher(url: &str, parent: &str) -> Result<()> {
    let backend = crate::connect(url)?;
    let watches = [backend.watch(SERVICE), backend.watch(BALLAST)];
    let show = |watch: &Watch<Snapshot>| {
        let Some(set) = watch.latest() else { return watch.freshness().to_string() };
        if !set.freshness().is_live() || set.held() > 0 || set.unreadable() > 0 {
            return format!("{} held {} unreadable {}", set.freshness(), set.held(), set.unreadable());
        }
        let ids = set.instances().iter().map(|it| format!("{}={}", it.id(), it.version().unwrap_or_default()));
        format!("live {}", ids.collect::<Vec<_>>().join(" "))
    };
    let size = |watch: &Watch<Snapshot>| watch.latest().map_or(0, |set| set.len()).to_string();
    crew::answer(parent, async |words| match words {
        "sizes" => watches.iter().map(size).collect::<Vec<_>>().join(" "),
        _ => watches.iter().map(show).collect::<Vec<_>>().join("|"),
    })
    .await
}

#[derive(Default)]
struct Tally {
    calls: u64,
    /// When those began that failed.
    failed: Vec<SystemTime>,
    /// Their deadline passed while this process itself was stopped for a while, so that they had no chance.
    excused: u64,
    reasons: BTreeMap<String, u64>,
    longest: Duration,
    /// When this process last ran after it had been stopped.
    stalled: Option<Instant>,
}

/// Calls at a steady rate from its first set on, and counts.
async fn caller(rate: u32, url: &str, parent: &str) -> Result<()> {
    let backend = crate::connect(url)?;
    let watch = backend.watch(SERVICE);
    let second = Duration::from_secs(1);
    let policy = RetryPolicy::default().with_attempts(5);
    // As many retries as there are calls: what a call can reach is counted here, not what a budget saves.
    let retries = Retries::new(policy).with_budget(RetryBudget::new(1_000, 1.0));
    let builder = Channel::builder(watch.clone(), PowerOfTwo).with_retries(retries);
    let client = GreeterClient::new(builder.with_keepalive(second, second).build());
    let tally = Arc::new(Mutex::new(Tally::default()));
    let (counting, shown) = (tally.clone(), watch.clone());
    let calling = async move {
        while watch.latest().is_none_or(|set| set.is_empty()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut ticks = tokio::time::interval(second / rate);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            ticks.tick().await;
            if last.elapsed() > STALL {
                counting.lock().unwrap_or_else(PoisonError::into_inner).stalled = Some(Instant::now());
            }
            last = Instant::now();
            tokio::spawn(call(client.clone(), counting.clone()));
        }
    };
    // `show` alone, or with the moment, in milliseconds since 1970, up to which calls began that count.
    let answering = crew::answer(parent, async |words| {
        let upto = words.split_once(' ').and_then(|(_, upto)| upto.parse().ok()).map(Duration::from_millis);
        let upto = upto.map(|upto| SystemTime::UNIX_EPOCH + upto);
        let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = tally.failed.iter().filter(|begun| upto.is_none_or(|upto| **begun < upto)).count();
        let size = shown.latest().map_or(0, |set| set.len());
        let reasons: Vec<_> = tally.reasons.iter().map(|(reason, count)| format!("{count} × {reason}")).collect();
        let longest = tally.longest.as_millis();
        format!("{} {failed} {} {longest} {size} {}", tally.calls, tally.excused, reasons.join("; "))
    });
    tokio::select! {
        () = calling => Ok(()),
        hung_up = answering => hung_up,
    }
}

async fn call(mut client: GreeterClient<Channel>, tally: Arc<Mutex<Tally>>) {
    let begun = Instant::now();
    let mut request = Request::new(HelloRequest { name: "you".to_owned(), count: 0 });
    request.set_timeout(DEADLINE);
    // Twice: a call that outlives its deadline must not go unnoticed.
    let answer = tokio::time::timeout(DEADLINE * 2, client.say_hello(request)).await;
    let late = matches!(&answer, Ok(Err(status)) if status.code() == Code::DeadlineExceeded);
    let failure = match answer {
        Ok(Ok(_)) => None,
        Ok(Err(status)) => Some(status.to_string()),
        Err(_) => Some("hangs".to_owned()),
    };
    // The clock of the stalls may be due at the same moment as this.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    tally.calls += 1;
    tally.longest = tally.longest.max(begun.elapsed());
    let Some(failure) = failure else { return };
    if late && tally.stalled.is_some_and(|stalled| stalled > begun) {
        tally.excused += 1;
    } else {
        tally.failed.push(SystemTime::now() - begun.elapsed());
    }
    *tally.reasons.entry(failure).or_default() += 1;
}
