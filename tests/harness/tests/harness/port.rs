//! No port is handed out twice.

use std::{
    collections::HashSet,
    io,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Child, Stdio},
    thread,
};

use discovery_harness::{Port, free_port};

use crate::availability::{plays_a_part, run_alone};

#[test]
fn parallel_threads_get_different_ports() -> io::Result<()> {
    let threads: Vec<_> = (0..50).map(|_| thread::spawn(free_port)).collect();
    let ports: Vec<Port> = threads
        .into_iter()
        .map(|thread| thread.join().map_err(|_| io::Error::other("panicked"))?)
        .collect::<io::Result<_>>()?;
    let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
    assert_eq!(numbers.len(), 50);
    for port in &ports {
        TcpListener::bind(port.address())?;
    }
    Ok(())
}

#[test]
#[ignore = "run by the test below, in several processes at once"]
fn holds_ports_until_stdin_ends() -> io::Result<()> {
    if !plays_a_part() {
        return Ok(());
    }
    let ports = (0..50).map(|_| free_port()).collect::<io::Result<Vec<_>>>()?;
    let mut stdout = io::stdout().lock();
    for port in &ports {
        writeln!(stdout, "port {}", port.number())?;
    }
    writeln!(stdout, "that is all")?;
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

#[test]
fn parallel_processes_get_different_ports() -> io::Result<()> {
    let mut holders = (0..4)
        .map(|_| {
            let mut command = run_alone("port::holds_ports_until_stdin_ends", &[])?;
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        })
        .collect::<io::Result<Vec<Child>>>()?;
    let mut numbers = Vec::new();
    let mut outputs = Vec::new();
    for holder in &mut holders {
        let stdout = holder.stdout.take().ok_or_else(|| io::Error::other("no stdout"))?;
        let mut lines = BufReader::new(stdout).lines();
        for line in lines.by_ref() {
            let line = line?;
            if line.contains("that is all") {
                break;
            }
            numbers.extend(line.strip_prefix("port ").and_then(|number| number.parse::<u16>().ok()));
        }
        // Kept open, as the test runner of the holder has something to say at its end.
        outputs.push(lines);
    }
    for mut holder in holders {
        // Waiting closes the holder's stdin first.
        assert!(holder.wait()?.success());
    }
    assert_eq!(numbers.len(), 200);
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 200);
    Ok(())
}
