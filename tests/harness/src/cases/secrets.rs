//! What is secret appears nowhere: no error, no `Debug`, no line of a log.

use std::{
    fmt::Debug,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use discovery_core::{
    Policy, RegisterOptions, RegistryUrl,
    conformance::{Link, eventually},
};
use tracing_subscriber::{filter::LevelFilter, fmt::format::FmtSpan};

use super::{Subject, Wire, instance, policy, shows};
use crate::{Certificates, refusing_address};

/// The password of the account that the server knows.
pub const PASSWORD: &str = "hunter2hunter2";
/// Others, and where they stand.
const WRONG: &str = "hunter3hunter3";
const OPTION: &str = "hunter4hunter4";
/// How a token that a server hands out begins, where it is a JWT: `{"alg":"` in Base64.
const TOKEN: &str = "eyJhbGciOi";

/// Everything that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Everything that was said otherwise.
#[derive(Default)]
struct Said(String);

impl Said {
    fn note(&mut self, what: &dyn Debug) {
        self.0 += &format!("{what:?}\n{what:#?}\n");
    }
}

/// Success, a wrong password, nobody there, silence, a handshake that cannot be, and options that are not known: whatever is said and
/// logged on the way, on any level, holds no secret. `user` has the password [`PASSWORD`].
///
/// It takes the process's log, so it must be alone in a test binary.
pub async fn secrets_are_never_shown(subject: Subject, server: SocketAddr, user: &str, ttl: Duration) {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_span_events(FmtSpan::FULL);
    lines.with_ansi(false).with_writer(move || writer.clone()).init();
    let mut said = Said::default();
    let mut quick = policy(ttl);
    (quick.timeout, quick.connect_timeout) = (Duration::from_secs(1), Duration::from_secs(1));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, PASSWORD).unwrap();

    // Success, by either way to give a password; then silence, and a loss.
    for (login, option) in
        [(format!("{user}:{PASSWORD}"), String::new()), (user.to_owned(), format!("?password_file={}", file.display()))]
    {
        let wire = Wire::to(server).await;
        let backend = subject.open(format!("{login}@{}{option}", wire.0.address()), quick.clone());
        let registration = backend.register(instance("pay", "a"), RegisterOptions::default()).await.unwrap();
        let watch = backend.watch("pay");
        let set = shows(&watch, Duration::from_secs(10), &["a"]).await;
        said.note(&(&backend, &registration, registration.state(), &watch, &set));
        for silent in [true, false] {
            if silent {
                // New connections too: with those, it is over before anybody has looked.
                wire.0.freeze().await.unwrap()
            } else {
                wire.cut().await
            }
            eventually(Duration::from_secs(20), "the outage", async || {
                if watch.freshness().is_stale() { Ok(()) } else { Err(watch.freshness()) }
            })
            .await;
            said.note(&(watch.freshness(), registration.state(), watch.latest()));
            said.note(&registration.update(|change| change.weight(1)).await);
            wire.pass().await;
            shows(&watch, Duration::from_secs(30), &["a"]).await;
        }
        said.note(&registration.deregister().await);
    }

    // A wrong password, and nobody there.
    let nobody = refusing_address().unwrap();
    for address in [server, nobody] {
        let backend = subject.open(format!("{user}:{WRONG}@{address}"), quick.clone());
        let options = RegisterOptions::default().with_deadline(Duration::from_secs(2));
        said.note(&backend.register(instance("pay", "b"), options).await);
        let watch = backend.watch("pay");
        said.note(&(watch.ready(Duration::from_secs(3)).await, &watch, watch.freshness(), &backend));
    }

    // TLS where there is none, with a key and a password.
    let certificates = Certificates::new().unwrap();
    let (certificate, key) = certificates.client();
    let files = format!("?ca={}&cert={}&key={}", certificates.ca().display(), certificate.display(), key.display());
    let backend = subject.open_tls(format!("{user}:{WRONG}@{server}{files}"), quick);
    said.note(&(backend.watch("pay").ready(Duration::from_secs(4)).await, &backend));

    // URLs that are refused.
    for rest in [
        format!("{user}:{OPTION}@{server}?pasword={OPTION}"),
        format!("{user}:{OPTION}@{server}?ttl={OPTION}"),
        format!("{user}:{OPTION}@{server}?password_file={}&probe={OPTION}", file.display()),
        format!("{user}:{OPTION}/x@{server}"),
        format!("{OPTION}@{server}"),
    ] {
        match rest_of(subject, &rest) {
            Ok(url) => {
                said.note(&(&url, url.options(), Policy::from_url(&mut url.options()), subject.try_connect(&url)))
            }
            Err(error) => said.note(&error),
        }
    }

    let log = String::from_utf8_lossy(&log.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
    assert!(log.contains("discovery_core"), "nothing was logged");
    assert!(["Unauthenticated", "PermissionDenied"].iter().any(|kind| said.0.contains(kind)), "nobody was refused");
    let key = std::fs::read_to_string(key).unwrap();
    let secrets = [PASSWORD, WRONG, OPTION, TOKEN].into_iter().chain(key.lines().filter(|line| !line.starts_with('-')));
    for secret in secrets {
        for line in said.0.lines().chain(log.lines()) {
            assert!(!line.contains(secret), "{secret} is shown: {line}");
        }
    }
    println!("{} lines of log, {} of what was said", log.lines().count(), said.0.lines().count());
}

fn rest_of(subject: Subject, rest: &str) -> discovery_core::Result<RegistryUrl> {
    format!("{}://{rest}", subject.scheme()).parse()
}
