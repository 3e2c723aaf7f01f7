//! A greeter as a process of its own.

use std::process::ExitStatus;
use std::time::Duration;

use discovery_core::RegisterOptions;
use discovery_greeter::Named;
use discovery_harness::ServerProcess;
use discovery_tonic::ServiceServer;

use super::{SERVICE, SOON};
use crate::Result;
use crate::process::Process;

/// How long it serves on while it drains.
const GRACE: Duration = Duration::from_secs(1);

/// What the process does: serves and registers until it is asked to stop.
pub(crate) async fn serve(name: &str, url: &str) -> Result<()> {
    let id = name.to_owned();
    // Long enough for a registry that is away.
    let registration = RegisterOptions::default().with_deadline(Duration::from_secs(120));
    let server = ServiceServer::bind("127.0.0.1:0").await?.with_grace(GRACE).with_registration(registration);
    let server = server.instance(|instance| instance.id(id));
    println!("listening on {}", server.local_addr());
    Ok(server.serve(crate::connect(url)?, SERVICE, Named::routes(name)).await?)
}

/// The process.
pub(crate) struct Server {
    name: String,
    url: String,
    process: Process,
}

impl Server {
    pub(crate) fn start(name: &str, url: &str) -> Result<Self> {
        Ok(Self { name: name.to_owned(), url: url.to_owned(), process: Process::start(&["serve", name, url])? })
    }

    /// A web server.
    pub(crate) fn start_http() -> Result<Self> {
        Ok(Self { name: "web".to_owned(), url: String::new(), process: Process::start(&["serve-http"])? })
    }

    /// Where it listens.
    pub(crate) async fn address(&self) -> Result<String> {
        let end = tokio::time::Instant::now() + SOON;
        loop {
            let log = self.process.server().log_tail();
            if let Some((_, address)) = log.split_once("listening on ")
                && let Some(address) = address.lines().next()
            {
                return Ok(address.trim().to_owned());
            }
            if tokio::time::Instant::now() > end {
                return Err(format!("{} does not listen: {log}", self.name).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn process(&self) -> &ServerProcess {
        self.process.server()
    }

    /// Asks it to stop, and waits until it has, however that ends.
    pub(crate) async fn stop(&self, limit: Duration) -> Result<ExitStatus> {
        Ok(self.process.server().terminate(limit).await?)
    }

    /// Stops it, and starts another one under the same name.
    pub(super) async fn restart(&mut self) -> Result<()> {
        let status = self.stop(GRACE * 30).await?;
        if !status.success() {
            return Err(format!("{} ended with {status}: {}", self.name, self.process.server().log_tail()).into());
        }
        *self = Self::start(&self.name, &self.url)?;
        Ok(())
    }
}
