//! How etcd and etcdctl are called.

use std::{env, io, net::SocketAddr, path::Path, process::Command};

use tempfile::TempDir;

use super::{EtcdOptions, health};
use crate::{Port, Program, available, free_port};

/// How one etcd server is called, and where it keeps its files and listens.
#[derive(Debug)]
pub struct EtcdProgram {
    folder: TempDir,
    client: Port,
    pub(super) peer: Port,
    metrics: Port,
    pub(super) options: EtcdOptions,
}

impl Program for EtcdProgram {
    type Options = EtcdOptions;

    const NAME: &'static str = "etcd";

    fn available() -> io::Result<bool> {
        Ok(available("etcd")? && available("etcdctl")?)
    }

    fn new(options: EtcdOptions) -> io::Result<Self> {
        Ok(Self {
            folder: TempDir::with_prefix("etcd-")?,
            client: free_port()?,
            peer: free_port()?,
            metrics: free_port()?,
            options,
        })
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves heartbeat and election time alone although shorter ones would start faster: they set the shortest TTL that is granted.
    fn command(&self) -> io::Result<Command> {
        let scheme = if self.options.tls { "https" } else { "http" };
        let (client, peer) =
            (format!("{scheme}://{}", self.client.address()), format!("http://{}", self.peer.address()));
        let mut command = clean("etcd");
        command.arg("--data-dir").arg(self.data());
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        // Whether it serves can be asked without TLS on an address of its own.
        command.args(["--listen-metrics-urls", &format!("http://{}", self.metrics.address())]);
        command.args(["--name", "default", "--initial-cluster", &format!("default={peer}")]);
        command.args(["--logger", "zap", "--log-outputs", "stderr", "--log-level", "warn"]);
        // As a variable, because a version that does not know it only warns, where an unknown flag would keep it from starting.
        // Surviving a power cut is no matter for a test, and without the waits a slow disk cannot make one fail.
        command.env("ETCD_UNSAFE_NO_FSYNC", "true");
        command.args(&self.options.args).envs(self.options.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    fn address(&self) -> SocketAddr {
        self.client.address()
    }

    async fn serves(&self) -> bool {
        health::serves(self.metrics.address()).await
    }
}

impl EtcdProgram {
    pub(super) fn client_program(&self, args: &[&str]) -> Command {
        let mut command = clean("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.client.address())).args(args);
        command
    }
}

/// Both programs read any option from the environment, where one that is meant for another server would change the test.
fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("ETCD") {
            command.env_remove(name);
        }
    }
    command
}
