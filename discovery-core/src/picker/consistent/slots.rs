//! Who owns each slot, kept up to date at the cost of one member's claims.
//!
//! Only claims before a horizon are listed, about one in a thousand slots is claimed later. With the owner of a slot its runner-up is kept,
//! so that a leaver's slots need no look at all the others. Both are there to be fast: who owns a slot depends on nothing but the members.

use std::sync::Arc;

use super::orders::Orders;
use super::seat::{Order, Seat};

/// More members than this have no numbers. Those with the lowest hashes take part, still the same in every process.
const MAX_SEATS: usize = VACANT as usize;
/// No other member claims the slot before the horizon.
const VACANT: u16 = u16::MAX - 1;
/// A runner-up that has to be looked for. As an owner: nobody.
const UNKNOWN: u16 = u16::MAX;

/// All but `2^-10` of the slots are claimed before the horizon, which bounds a member's claims to seven times its share.
const OCTAVES: u32 = 10;

/// With so few members going from slot to slot beats going from claim to claim: always, or if their weights are all the same.
const FEW: usize = 16;
const FEW_EQUALS: usize = 128;

/// The slots of one membership.
#[derive(Debug, Default)]
pub(super) struct Slots {
    bits: u32,
    /// By seat number; the free ones keep their last member, whom nothing refers to.
    seats: Vec<Seat>,
    /// The same, without the free ones, close together to be gone through.
    orders: Orders,
    /// The weight that all have, if it is one.
    weight: Option<u32>,
    free: Vec<u16>,
    /// Everybody's key and seat number, sorted.
    roster: Vec<(u64, u16)>,
    owners: Arc<Vec<u16>>,
    /// The owners before that, to be written again once no picker reads them, and the slots in which they differ.
    former: Arc<Vec<u16>>,
    changed: Vec<u32>,
    runners_up: Vec<u16>,
    /// The slots whose owner claims them after the horizon, each once.
    late: Vec<u32>,
    /// The total weight that the horizon is for.
    horizon: u64,
}

/// Owners that no picker reads yet.
struct Draft {
    owners: Vec<u16>,
    changed: Vec<u32>,
}

impl Draft {
    fn set(&mut self, slot: usize, owner: u16) {
        self.owners[slot] = owner;
        self.changed.push(slot as u32);
    }
}

impl Slots {
    pub(super) fn new(bits: u32) -> Self {
        Self { bits, ..Self::default() }
    }

    /// The seat number that owns each slot; empty if there is nobody.
    pub(super) fn owners(&self) -> &Arc<Vec<u16>> {
        &self.owners
    }

    /// Everybody's key and seat number, sorted.
    pub(super) fn roster(&self) -> &[(u64, u16)] {
        &self.roster
    }

    /// How many seat numbers are in use, or were.
    pub(super) fn seats(&self) -> usize {
        self.seats.len()
    }

    /// Takes these members, given by key and weight, sorted by key and each once.
    pub(super) fn update(&mut self, members: &[(u64, u32)]) {
        let members = &members[..members.len().min(MAX_SEATS)];
        let mut leavers = Vec::new();
        let mut joiners = Vec::new();
        let mut before = self.roster.iter().peekable();
        for (key, weight) in members {
            while let Some((_, seat)) = before.next_if(|(gone, _)| gone < key) {
                leavers.push(*seat);
            }
            match before.next_if(|(known, _)| known == key) {
                Some((_, seat)) if self.seats[*seat as usize].weight == *weight => continue,
                Some((_, seat)) => leavers.push(*seat),
                None => {}
            }
            joiners.push((*key, *weight));
        }
        leavers.extend(before.map(|(_, seat)| *seat));
        let total: u64 = members.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let weight = members.first().map(|(_, weight)| *weight);
        let weight = weight.filter(|first| members.iter().all(|(_, weight)| weight == first));
        let changes = leavers.len() + joiners.len();
        // Far from the horizon's weight a change costs more than it must, and many changes cost more than all anew.
        let is_near = total <= self.horizon.saturating_mul(2) && total >= self.horizon - self.horizon / 3;
        if changes > 0 && (changes > members.len() / 4 || members.len() <= FEW || !is_near) {
            self.rebuild(members, total, weight);
        } else if changes > 0 {
            self.weight = self.weight.filter(|before| weight == Some(*before));
            let mut draft = self.draft();
            leavers.into_iter().for_each(|seat| self.leave(&mut draft, seat));
            joiners.into_iter().for_each(|(key, weight)| self.join(&mut draft, key, weight));
            self.former = std::mem::replace(&mut self.owners, Arc::new(draft.owners));
            self.changed = draft.changed;
        }
        self.weight = weight;
    }

    /// The owners to be changed. Pickers read those that were handed out, so it is another copy, if possible one that is only brought up.
    fn draft(&mut self) -> Draft {
        let owners = match Arc::try_unwrap(std::mem::take(&mut self.former)) {
            Ok(mut former) if former.len() == self.owners.len() => {
                self.changed.iter().for_each(|slot| former[*slot as usize] = self.owners[*slot as usize]);
                former
            }
            _ => self.owners.to_vec(),
        };
        Draft { owners, changed: Vec::new() }
    }

    fn rebuild(&mut self, members: &[(u64, u32)], total: u64, weight: Option<u32>) {
        *self = Self { horizon: total, weight, ..Self::new(self.bits) };
        if members.is_empty() {
            return;
        }
        for ((key, weight), number) in members.iter().zip(0..) {
            self.take_seat(*key, *weight, number);
        }
        let mut draft = Draft { owners: vec![UNKNOWN; 1 << self.bits], changed: Vec::new() };
        self.runners_up = vec![VACANT; 1 << self.bits];
        if members.len() > if weight.is_some() { FEW_EQUALS } else { FEW } {
            (0..members.len() as u16).for_each(|number| self.claim_early(&mut draft, number));
        }
        for slot in 0..draft.owners.len() {
            if draft.owners[slot] == UNKNOWN {
                (draft.owners[slot], self.runners_up[slot]) = self.first_two(slot);
                if self.is_late(slot, draft.owners[slot]) {
                    self.late.push(slot as u32);
                }
            }
        }
        self.owners = Arc::new(draft.owners);
    }

    fn take_seat(&mut self, key: u64, weight: u32, number: u16) {
        let mut seat = Seat::new(key, weight, self.bits);
        seat.set_horizon(OCTAVES, self.horizon);
        match self.seats.get_mut(number as usize) {
            Some(free) => *free = seat,
            None => self.seats.push(seat),
        }
        self.orders.set(number, seat.order);
        let at = self.roster.partition_point(|(other, _)| *other < key);
        self.roster.insert(at, (key, number));
    }

    /// The slots that a member claims before the horizon, with their owners and runners-up. All are read before any is judged, so that
    /// the processor need not wait for one after the other.
    fn early(&self, draft: &Draft, number: u16) -> Vec<(usize, u16, u16)> {
        let seat = &self.seats[number as usize];
        let read = |rank| {
            let slot = seat.slot(rank);
            (slot, draft.owners[slot], self.runners_up[slot])
        };
        (0..seat.limit).map(read).collect()
    }

    fn claim_early(&mut self, draft: &mut Draft, number: u16) {
        let seat = self.seats[number as usize];
        for (slot, owner, runner_up) in self.early(draft, number) {
            let Some(other) = self.seats.get(owner as usize) else {
                // While all is built anew: nobody was here yet.
                draft.owners[slot] = number;
                continue;
            };
            if seat.beats(other, slot) {
                // Of an owner after the horizon nothing is kept.
                self.runners_up[slot] = if other.is_early(slot) { owner } else { VACANT };
                draft.set(slot, number);
            } else if runner_up != UNKNOWN && self.seats.get(runner_up as usize).is_none_or(|it| seat.beats(it, slot)) {
                self.runners_up[slot] = number;
            }
        }
    }

    fn join(&mut self, draft: &mut Draft, key: u64, weight: u32) {
        // At most `MAX_SEATS` members, so there is a number.
        let number = self.free.pop().unwrap_or(self.seats.len() as u16);
        self.take_seat(key, weight, number);
        self.claim_early(draft, number);
        let seat = &self.seats[number as usize];
        for slot in self.late.iter().map(|slot| *slot as usize) {
            let owner = draft.owners[slot];
            if owner != number && seat.beats(&self.seats[owner as usize], slot) {
                draft.set(slot, number);
            }
        }
        self.forget_early(draft);
    }

    fn leave(&mut self, draft: &mut Draft, number: u16) {
        self.roster.retain(|(_, other)| *other != number);
        self.orders.set(number, Order::NONE);
        for (slot, owner, runner_up) in self.early(draft, number) {
            if runner_up == number {
                self.runners_up[slot] = UNKNOWN;
            } else if owner == number && runner_up < VACANT {
                draft.set(slot, runner_up);
                self.runners_up[slot] = UNKNOWN;
            } else if owner == number {
                let (owner, runner_up) = self.first_two(slot);
                draft.set(slot, owner);
                self.runners_up[slot] = runner_up;
                if self.is_late(slot, owner) {
                    self.late.push(slot as u32);
                }
            }
        }
        for slot in self.late.iter().map(|slot| *slot as usize) {
            if draft.owners[slot] == number {
                draft.set(slot, self.first_two(slot).0);
            }
        }
        self.forget_early(draft);
        self.free.push(number);
    }

    /// Nobody claims it at all only between the leaving of the last and the coming of the next.
    fn is_late(&self, slot: usize, owner: u16) -> bool {
        self.seats.get(owner as usize).is_none_or(|owner| !owner.is_early(slot))
    }

    fn forget_early(&mut self, draft: &Draft) {
        let mut late = std::mem::take(&mut self.late);
        late.retain(|slot| self.is_late(*slot as usize, draft.owners[*slot as usize]));
        self.late = late;
    }

    /// The owner and the runner-up of a slot, from all members.
    fn first_two(&self, slot: usize) -> (u16, u16) {
        let by_position = self.weight.and_then(|_| self.orders.first_two(slot));
        let (owner, runner_up) = by_position.unwrap_or_else(|| self.first_claims(slot));
        let is_kept = self.seats.get(runner_up as usize).is_some_and(|seat| seat.is_early(slot));
        (owner, if is_kept { runner_up } else { VACANT })
    }

    fn first_claims(&self, slot: usize) -> (u16, u16) {
        let mut two: [Option<(&Seat, u16)>; 2] = [None; 2];
        for (_, number) in &self.roster {
            let seat = &self.seats[*number as usize];
            let is_before = |other: Option<(&Seat, u16)>| other.is_none_or(|(other, _)| seat.beats(other, slot));
            if is_before(two[1]) {
                two[1] = Some((seat, *number));
                if is_before(two[0]) {
                    two.swap(0, 1);
                }
            }
        }
        (two[0].map_or(UNKNOWN, |(_, number)| number), two[1].map_or(VACANT, |(_, number)| number))
    }
}

#[cfg(test)]
mod tests;
