//! The thread that starts all server processes.
//!
//! A server asks the kernel to be killed when its parent ends, and the kernel takes the parent to be the *thread* that started it.
//! The thread of a test or a runtime worker may end long before a server that several tests share, so all servers are started
//! from one thread that lives as long as the process.

use std::{
    io,
    path::{Path, PathBuf},
    process,
    process::{Child, Command, Stdio},
    sync::{LazyLock, mpsc},
    thread,
};

use crate::availability::find;

type Job = (Command, mpsc::Sender<io::Result<Child>>);

static JOBS: LazyLock<io::Result<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::Builder::new().name("server-spawner".to_owned()).spawn(move || {
        for (mut command, reply) in queue {
            // The caller waits for the reply without a limit, so there is always someone to take the child.
            reply.send(command.spawn()).ok();
        }
    })?;
    Ok(jobs)
});

/// The `setpriv` of util-linux, tried once because other programs of that name do not know the option.
static SETPRIV: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let setpriv = find("setpriv").ok()?;
    let mut trial = watched(&setpriv, Path::new("true"));
    trial.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    trial.status().is_ok_and(|status| status.success()).then_some(setpriv)
});

/// Becomes the program that follows, unless the parent has ended before it could be watched.
///
/// The kernel tells of the death of a parent only from the moment at which `setpriv` asks for it; a server whose parent was killed
/// before that would run for ever. The shell starts after that moment, and finds another parent than `$0` if it has come too late.
const UNLESS_ORPHANED: &str = r#"test "$PPID" = "$0" && exec "$@""#;

/// Starts `command` from the thread that lives as long as the process.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let ended = || io::Error::other("the thread that starts servers has ended");
    let jobs = JOBS.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let (reply, answer) = mpsc::channel();
    jobs.send((command, reply)).map_err(|_| ended())?;
    answer.recv().map_err(|_| ended())?
}

/// Rewrites `command` so that the kernel kills the server with this process, where `setpriv` is there to arrange it.
///
/// Program, arguments, changes to the environment and working directory are taken over; the rest of a [`Command`] cannot be read
/// back. `setpriv` and the shell replace themselves, so the process id is that of the server.
pub(crate) fn bound_to_this_process(command: &Command) -> io::Result<Command> {
    // Searched for here because `setpriv` would start even when the program is missing, and hide the reason in the log.
    let program = find(&command.get_program().to_string_lossy())?;
    let mut bound = match SETPRIV.as_ref() {
        Some(setpriv) => watched(setpriv, &program),
        None => Command::new(program),
    };
    bound.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    Ok(bound)
}

fn watched(setpriv: &Path, program: &Path) -> Command {
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", UNLESS_ORPHANED]);
    command.arg(process::id().to_string()).arg(program);
    command
}
