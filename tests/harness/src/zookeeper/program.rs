//! How the server is called: as a Java program, with a configuration of its own.

use std::{
    env, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::{ZooKeeperOptions, health};
use crate::{Port, Program, availability, find, free_port};

/// Where the jars are, where it is not Debian's place; in the form of Java's `-cp`.
const CLASSPATH: &str = "DISCOVERY_ZOOKEEPER_CLASSPATH";

/// Debian's package `zookeeper`, whose manifest names most of the jars that it needs; those of TLS are missing there. The second one
/// writes the log to stderr.
const DEBIAN: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar:\
    /usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport-native-unix-common.jar";

/// Starting fast matters more than running fast: a start costs a third of a second of processor time with these.
const VIRTUAL_MACHINE: [&str; 6] = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Xmx256m",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// How one ZooKeeper server is called, and where it keeps its files and listens.
#[derive(Debug)]
pub struct ZooKeeperProgram {
    folder: TempDir,
    client: Port,
    /// Where the members of an ensemble follow their leader, and where they elect it.
    pub(super) peer: [Port; 2],
    pub(super) options: ZooKeeperOptions,
    /// The number in an ensemble.
    pub(super) member: Option<usize>,
}

impl Program for ZooKeeperProgram {
    type Options = ZooKeeperOptions;

    const NAME: &'static str = "ZooKeeper";

    fn available() -> io::Result<bool> {
        let jars = env::var_os(CLASSPATH).is_some() || Path::new("/usr/share/java/zookeeper.jar").exists();
        availability::judge("zookeeper (with Java)", jars && find("java").is_ok())
    }

    fn new(options: ZooKeeperOptions) -> io::Result<Self> {
        Ok(Self {
            folder: TempDir::with_prefix("zookeeper-")?,
            client: free_port()?,
            peer: [free_port()?, free_port()?],
            options,
            member: None,
        })
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The number of an ensemble's member stays.
    fn wiped(&self) -> PathBuf {
        self.data().join("version-2")
    }

    fn command(&self) -> io::Result<Command> {
        let (configuration, data) = (self.folder.path().join("zoo.cfg"), self.data());
        fs::create_dir_all(&data)?;
        if let Some(member) = self.member {
            fs::write(data.join("myid"), member.to_string())?;
        }
        fs::write(&configuration, self.configuration())?;
        let mut command = Command::new("java");
        // These would reach every Java program that the test starts.
        command.env_remove("JAVA_TOOL_OPTIONS").env_remove("JDK_JAVA_OPTIONS").env_remove("CLASSPATH");
        command.args(VIRTUAL_MACHINE);
        // Surviving a power cut is no matter for a test, and 64 MiB for each log file would fill small disks.
        command.args(["-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"]).args(&self.options.properties);
        command.arg("-cp").arg(env::var_os(CLASSPATH).unwrap_or_else(|| DEBIAN.into()));
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(configuration);
        Ok(command)
    }

    fn address(&self) -> SocketAddr {
        self.client.address()
    }

    async fn serves(&self) -> bool {
        health::serves(self.plain().address()).await
    }
}

impl ZooKeeperProgram {
    /// Where the server answers without TLS: where clients speak it, that is a port of its own, as no ensemble needs it then.
    pub(super) fn plain(&self) -> &Port {
        if self.options.tls { &self.peer[0] } else { &self.client }
    }

    fn configuration(&self) -> String {
        let mut lines = vec![
            "tickTime=500".to_owned(),
            "initLimit=20".to_owned(),
            "syncLimit=10".to_owned(),
            format!("dataDir={}", self.data().display()),
            "maxClientCnxns=0".to_owned(),
            // It would listen on a port that all servers share.
            "admin.enableServer=false".to_owned(),
            "4lw.commands.whitelist=ruok,srvr,mntr,dump,cons".to_owned(),
        ];
        let plain = self.plain().number();
        lines.extend([format!("clientPort={plain}"), "clientPortAddress=127.0.0.1".to_owned()]);
        if self.options.tls {
            let secure = self.client.number();
            lines.extend([format!("secureClientPort={secure}"), "secureClientPortAddress=127.0.0.1".to_owned()]);
        }
        lines.extend(self.options.lines.iter().cloned());
        lines.join("\n") + "\n"
    }
}
