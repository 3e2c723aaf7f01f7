//! How the server is called: as a Java program, with a configuration of its own.

use std::{
    env, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::ZooKeeperOptions;
use crate::{Port, availability, find, free_port};

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

/// Where one server keeps its files and listens.
#[derive(Debug)]
pub(super) struct Layout {
    folder: TempDir,
    pub(super) client: Port,
    /// Where the members of an ensemble follow their leader, and where they elect it.
    pub(super) peer: [Port; 2],
}

/// Tells whether Java and the server's jar are installed.
pub(super) fn available() -> io::Result<bool> {
    let jars = env::var_os(CLASSPATH).is_some() || Path::new("/usr/share/java/zookeeper.jar").exists();
    availability::judge("zookeeper (with Java)", jars && find("java").is_ok())
}

impl Layout {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            folder: TempDir::with_prefix("zookeeper-")?,
            client: free_port()?,
            peer: [free_port()?, free_port()?],
        })
    }

    /// Deletes the data; the number of an ensemble's member stays.
    pub(super) fn wipe(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.data().join("version-2")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Writes the configuration and returns the command; `member` is the number in an ensemble.
    pub(super) fn server(&self, options: &ZooKeeperOptions, member: Option<usize>) -> io::Result<Command> {
        let (configuration, data) = (self.folder.path().join("zoo.cfg"), self.data());
        fs::create_dir_all(&data)?;
        if let Some(member) = member {
            fs::write(data.join("myid"), member.to_string())?;
        }
        fs::write(&configuration, self.configuration(options))?;
        let mut command = Command::new("java");
        // These would reach every Java program that the test starts.
        command.env_remove("JAVA_TOOL_OPTIONS").env_remove("JDK_JAVA_OPTIONS").env_remove("CLASSPATH");
        command.args(VIRTUAL_MACHINE);
        // Surviving a power cut is no matter for a test, and 64 MiB for each log file would fill small disks.
        command.args(["-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"]).args(&options.properties);
        command.arg("-cp").arg(env::var_os(CLASSPATH).unwrap_or_else(|| DEBIAN.into()));
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(configuration);
        Ok(command)
    }

    /// Where the server answers without TLS.
    pub(super) fn plain(&self, options: &ZooKeeperOptions) -> SocketAddr {
        if options.tls { self.peer[0].address() } else { self.client.address() }
    }

    fn configuration(&self, options: &ZooKeeperOptions) -> String {
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
        // What is asked without TLS is on a port of its own then.
        let plain = if options.tls { &self.peer[0] } else { &self.client };
        lines.extend([format!("clientPort={}", plain.number()), "clientPortAddress=127.0.0.1".to_owned()]);
        if options.tls {
            let secure = self.client.number();
            lines.extend([format!("secureClientPort={secure}"), "secureClientPortAddress=127.0.0.1".to_owned()]);
        }
        lines.extend(options.lines.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}
