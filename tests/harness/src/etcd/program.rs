//! How etcd and etcdctl are called.

use std::{env, fs, io, path::PathBuf, process::Command};

use tempfile::TempDir;

use super::EtcdOptions;
use crate::{Port, free_port};

/// Where one server keeps its files and listens.
#[derive(Debug)]
pub(super) struct Layout {
    folder: TempDir,
    pub(super) client: Port,
    pub(super) peer: Port,
    pub(super) metrics: Port,
}

impl Layout {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            folder: TempDir::with_prefix("etcd-")?,
            client: free_port()?,
            peer: free_port()?,
            metrics: free_port()?,
        })
    }

    /// Deletes the data, which are missing when the server has never come so far as to write any.
    pub(super) fn wipe(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.data()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Leaves heartbeat and election time alone although shorter ones would start faster: they set the shortest TTL that is granted.
    pub(super) fn server(&self, options: &EtcdOptions) -> Command {
        let scheme = if options.tls { "https" } else { "http" };
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
        command.args(&options.args).envs(options.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(super) fn client_program(&self, args: &[&str]) -> Command {
        let mut command = clean("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.client.address())).args(args);
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
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
