//! A greeter as a process of its own.

use std::process::Command;
use std::time::Duration;

use discovery_core::RegisterOptions;
use discovery_greeter::Named;
use discovery_harness::ServerProcess;
use discovery_tonic::ServiceServer;
use tempfile::TempDir;

use super::SERVICE;
use crate::Result;

/// How long it serves on while it drains.
const GRACE: Duration = Duration::from_secs(1);

/// What the process does: serves and registers until it is asked to stop.
pub(crate) async fn serve(name: &str, url: &str) -> Result<()> {
    let id = name.to_owned();
    // Long enough for a registry that is away.
    let registration = RegisterOptions::default().with_deadline(Duration::from_secs(120));
    let server = ServiceServer::bind("127.0.0.1:0").await?.with_grace(GRACE).with_registration(registration);
    let server = server.instance(|instance| instance.id(id));
    Ok(server.serve(crate::connect(url)?, SERVICE, Named::routes(name)).await?)
}

/// The process.
pub(super) struct Server {
    name: String,
    url: String,
    process: ServerProcess,
    _folder: TempDir,
}

impl Server {
    pub(super) fn start(name: &str, url: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", name, url]);
        let process = ServerProcess::spawn(&command, &folder.path().join("log"))?;
        Ok(Self { name: name.to_owned(), url: url.to_owned(), process, _folder: folder })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// Asks it to stop, waits until it has, and starts another one under the same name.
    pub(super) async fn restart(&mut self) -> Result<()> {
        let status = self.process.terminate(GRACE * 30).await?;
        if !status.success() {
            return Err(format!("{} ended with {status}: {}", self.name, self.process.log_tail()).into());
        }
        *self = Self::start(&self.name, &self.url)?;
        Ok(())
    }
}
