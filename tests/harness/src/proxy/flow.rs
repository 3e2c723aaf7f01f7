//! What may pass through the proxy at the moment, and what has.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{select, sync::Notify, time, time::sleep_until};

/// What the proxy does with everything that comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    Pass,
    Freeze,
    SwallowReplies,
    Delay(Duration),
    /// New connections are reset; the old ones have been.
    Reset,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Direction {
    pub(super) fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// What wants to pass: replies can be swallowed, the end of a connection cannot, it is held back instead.
#[derive(Clone, Copy, Debug)]
pub(super) enum Freight {
    Bytes,
    End,
}

/// Who wants to pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// The number of the connection in order of arrival.
    pub(super) connection: usize,
    pub(super) direction: Direction,
}

/// How an attempt to pass ended.
#[derive(Debug)]
pub(super) enum Passage {
    Passed(usize),
    Swallowed,
}

/// The state that all connections of a proxy share.
///
/// Bytes are written and counted under the same lock that a change of mode takes: once a change has returned, nothing passes that
/// the new mode forbids, and whatever a peer has received is counted.
#[derive(Debug)]
pub(super) struct Flow {
    /// Written by the proxy (mode), by the gate (arrivals) and by the connections (bytes, departures).
    state: Mutex<State>,
    /// Wakes the connections after each change of the mode.
    changed: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    mode: Mode,
    /// Connections with a smaller number are frozen for ever.
    first_thawed: usize,
    /// One for each connection, in order of arrival.
    pub(super) connect_times: Vec<Instant>,
    pub(super) open: usize,
    pub(super) bytes_up: u64,
    pub(super) bytes_down: u64,
}

enum Verdict {
    Pass,
    Swallow,
    Wait,
    WaitUntil(time::Instant),
}

impl Flow {
    pub(super) fn new() -> Self {
        let state =
            State { mode: Mode::Pass, first_thawed: 0, connect_times: Vec::new(), open: 0, bytes_up: 0, bytes_down: 0 };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock leaves the state half changed, so a panic would not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, mode: Mode) {
        self.state().mode = mode;
        self.changed.notify_waiters();
    }

    /// Freezes the connections that have arrived for ever.
    pub(super) fn freeze_arrived(&self) {
        let mut state = self.state();
        state.first_thawed = state.connect_times.len();
    }

    /// Counts a connection and returns its number, or `None` when it is to be reset.
    pub(super) fn arrive(&self) -> Option<usize> {
        let mut state = self.state();
        let number = state.connect_times.len();
        state.connect_times.push(Instant::now());
        let admitted = !matches!(state.mode, Mode::Reset);
        state.open += usize::from(admitted);
        admitted.then_some(number)
    }

    /// Takes an admitted connection from the count of open ones.
    pub(super) fn leave(&self) {
        self.state().open -= 1;
    }

    /// Calls `act` once the mode lets the freight pass, and counts the bytes that it says it has written.
    ///
    /// `read_at` is when the freight reached the proxy. `act` must not block; its errors, `WouldBlock` among them, are returned.
    pub(super) async fn pass(
        &self,
        lane: Lane,
        freight: Freight,
        read_at: time::Instant,
        mut act: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<Passage> {
        loop {
            // Made before the look at the mode, so that a change between the look and the wait is not missed.
            let changed = self.changed.notified();
            let until = {
                let mut state = self.state();
                match state.judge(lane, freight, read_at) {
                    Verdict::Pass => return act().map(|count| state.count(lane.direction, count)),
                    Verdict::Swallow => return Ok(Passage::Swallowed),
                    Verdict::Wait => None,
                    Verdict::WaitUntil(due) => Some(due),
                }
            };
            match until {
                None => changed.await,
                Some(due) => select! {
                    () = changed => {}
                    () = sleep_until(due) => {}
                },
            }
        }
    }
}

impl State {
    fn judge(&self, lane: Lane, freight: Freight, read_at: time::Instant) -> Verdict {
        if lane.connection < self.first_thawed {
            return Verdict::Wait;
        }
        match (self.mode, lane.direction, freight) {
            (Mode::Freeze | Mode::Reset, ..) => Verdict::Wait,
            (Mode::SwallowReplies, Direction::Down, Freight::Bytes) => Verdict::Swallow,
            (Mode::SwallowReplies, Direction::Down, Freight::End) => Verdict::Wait,
            (Mode::Delay(delay), ..) if time::Instant::now() < read_at + delay => Verdict::WaitUntil(read_at + delay),
            (Mode::Pass | Mode::SwallowReplies | Mode::Delay(_), ..) => Verdict::Pass,
        }
    }

    fn count(&mut self, direction: Direction, count: usize) -> Passage {
        match direction {
            Direction::Up => self.bytes_up += count as u64,
            Direction::Down => self.bytes_down += count as u64,
        }
        Passage::Passed(count)
    }
}
