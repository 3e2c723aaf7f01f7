//! A schedule that is too long for a table: its turns are made while they are taken.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::schedule::Schedule;
use super::{Context, Member, Picker};

/// Turns that are at hand. A power of two.
const AHEAD: u64 = 4_096;
/// Turns that one pick makes at once, some microseconds' work.
const BATCH: u64 = 32;

/// Turns in a ring, which picks read and, one at a time, refill.
#[derive(Debug)]
pub(super) struct Stream {
    ring: Box<[AtomicU32]>,
    /// Numbers the picks; only the number matters, so relaxed ordering suffices.
    next: AtomicU64,
    /// How many turns were made. Stored after the turns, so that whoever reads it sees them.
    made: AtomicU64,
    /// Locked by whoever makes turns, and never waited for.
    schedule: Mutex<Schedule>,
}

impl Stream {
    /// Begins `skip` turns into the schedule; `None` if nobody has weight.
    pub(super) fn new(mut schedule: Schedule, skip: usize) -> Option<Self> {
        schedule.nth(skip)?;
        let ring: Option<_> = (0..AHEAD).map(|_| schedule.next().map(AtomicU32::new)).collect();
        Some(Self { ring: ring?, next: AtomicU64::new(0), made: AtomicU64::new(AHEAD), schedule: Mutex::new(schedule) })
    }

    fn slot(&self, ticket: u64) -> Option<&AtomicU32> {
        self.ring.get(usize::try_from(ticket % AHEAD).ok()?)
    }

    /// Makes turns for tickets whose slots are free again.
    #[cold]
    fn refill(&self, ticket: u64) {
        // Whoever has it makes them for everybody; AHEAD picks pass before anybody misses them.
        let Ok(mut schedule) = self.schedule.try_lock() else { return };
        let made = self.made.load(Ordering::Relaxed);
        let end = (made + BATCH).min(ticket + AHEAD);
        for at in made..end {
            if let (Some(slot), Some(turn)) = (self.slot(at), schedule.next()) {
                slot.store(turn, Ordering::Relaxed);
            }
        }
        self.made.store(end.max(made), Ordering::Release);
    }
}

impl Picker for Stream {
    fn pick(&self, _members: &[Member], _context: &Context<'_>) -> Option<usize> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // Its own slot is the first that is free again, but it has to be read before.
        let made = self.made.load(Ordering::Acquire);
        let turn = self.slot(ticket)?.load(Ordering::Relaxed);
        if made < ticket + AHEAD - BATCH {
            self.refill(ticket);
        }
        Some(turn as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks(stream: &Stream, count: usize) -> Vec<usize> {
        (0..count).map(|_| stream.pick(&[], &Context::default()).unwrap()).collect()
    }

    #[test]
    fn p05_it_is_the_schedule_turn_by_turn() {
        let weights = [u64::from(u32::MAX), 1_000_003, 77_777_777];
        let stream = Stream::new(Schedule::new(&weights), 10).unwrap();
        let expected: Vec<_> = Schedule::new(&weights).skip(11).take(50_000).map(|turn| turn as usize).collect();
        assert!(picks(&stream, 50_000) == expected);
        assert!(Stream::new(Schedule::new(&[0, 0]), 0).is_none());
    }

    #[test]
    fn p05_threads_share_the_turns() {
        let weights = [u64::from(u32::MAX), u64::from(u32::MAX) / 2];
        let stream = Stream::new(Schedule::new(&weights), 0).unwrap();
        let count = |_| picks(&stream, 100_000).into_iter().filter(|turn| *turn == 0).count();
        let firsts: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || count(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // A thread that sleeps between its ticket and its slot may take another's turn; those are few.
        assert!(firsts.abs_diff(266_667) < 500, "{firsts}");
    }

    #[test]
    fn p01_who_cannot_refill_takes_an_old_turn() {
        let stream = Stream::new(Schedule::new(&[u64::from(u32::MAX), 3]), 0).unwrap();
        let _held = stream.schedule.lock().unwrap();
        assert_eq!(picks(&stream, 3 * AHEAD as usize).len(), 3 * AHEAD as usize);
    }
}
