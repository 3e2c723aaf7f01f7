//! What is checked when a schedule is over and everything had time to settle.

use std::collections::{BTreeMap, BTreeSet};

use super::cast::{Stage, Wish};
use super::truth::Said;
use super::world::World;
use crate::RegistrationState;

impl Wish {
    /// Whether somebody holds it and was not told that it is superseded.
    pub(super) fn is_living(&self) -> bool {
        match &self.stage {
            Stage::Held(registration) => !matches!(registration.state(), RegistrationState::Superseded),
            _ => false,
        }
    }
}

impl World {
    pub(super) fn judge(&mut self) {
        let mut wrong = Vec::new();
        self.judge_registrations(&mut wrong);
        self.judge_records(&mut wrong);
        self.judge_watches(&mut wrong);
        self.judge_names(&mut wrong);
        wrong.into_iter().for_each(|what| self.violated(what));
    }

    /// Every living registration says that it holds, and the store has its newest content.
    fn judge_registrations(&self, wrong: &mut Vec<String>) {
        for (number, wish) in self.cast.wishes.iter().enumerate() {
            let Wish { client, key, path, newest, stage, .. } = wish;
            let name = format!("at the end, wish {number} of client {client} for {key}");
            match stage {
                Stage::Asked => wrong.push(format!("R1: {name} was never answered")),
                Stage::Held(registration) => match registration.state() {
                    RegistrationState::Registered => {
                        let record = self.truth.state.records.get(path);
                        let owner = record.and_then(|r| r.lease).and_then(|lease| self.truth.client_of(lease));
                        let said = record.map_or(Said::Nothing, |record| record.said);
                        if (owner, said) != (Some(*client), Said::Wish(*newest)) {
                            wrong.push(format!(
                                "R4/R7: {name} is registered as {newest}, and the store says {said:?} of {owner:?}"
                            ));
                        }
                    }
                    RegistrationState::Superseded => {
                        let again = |other: &Wish| other.client == *client && other.path == *path;
                        let again = self.cast.wishes[number + 1..].iter().any(again);
                        if wish.refused_for == Some(*client) && !again {
                            wrong.push(format!("R4: {name} is superseded by a lease of its own"));
                        }
                        let others = self.cast.wishes.iter().filter(|other| other.path == *path).count();
                        if others < 2 {
                            wrong.push(format!("R6: {name} is superseded by nobody"));
                        }
                    }
                    state => wrong.push(format!("R4: {name} is {state:?}")),
                },
                Stage::Refused(_) | Stage::Left(_) => {}
            }
        }
    }

    /// The store has nothing but the records of living registrations and those that were written by hand.
    fn judge_records(&self, wrong: &mut Vec<String>) {
        for (path, record) in &self.truth.state.records {
            let Some(lease) = record.lease else { continue };
            let owner = self.truth.client_of(lease);
            if !self.cast.wishes.iter().any(|wish| wish.is_living() && wish.path == *path && Some(wish.client) == owner)
            {
                wrong.push(format!("R2/R3: at the end, {path} of client {owner:?} stands, and nobody wants it"));
            }
        }
        for client in 0..self.clients.len() {
            let (leases, living) = (self.truth.leases_of(client), self.living(client).count());
            if leases > living.min(1) {
                wrong.push(format!(
                    "R8/R10: at the end, client {client} has {leases} leases and {living} registrations"
                ));
            }
        }
    }

    /// Every watch is live and shows what the store has.
    fn judge_watches(&self, wrong: &mut Vec<String>) {
        for ((client, service), seat) in &self.cast.seats {
            let open = self.cast.backends.get(*client).is_some_and(Option::is_some);
            if open == seat.watch.is_closed() {
                wrong.push(format!(
                    "W5: the backend of client {client} is open: {open}; the watch of {service} is not as it is"
                ));
            }
            if !open {
                continue;
            }
            let Some(view) = seat.watch.latest().filter(|view| view.freshness().is_live()) else {
                wrong.push(format!(
                    "W4/W12: at the end, client {client} sees {service} as {:?}",
                    seat.watch.freshness()
                ));
                continue;
            };
            let prefix = self.space.service_prefix(service);
            let shown: BTreeMap<_, _> =
                view.instances().iter().map(|i| (i.id().to_owned(), Said::Wish(i.weight()))).collect();
            let under =
                self.truth.state.records.iter().filter_map(|(key, r)| Some((key.strip_prefix(&*prefix)?, r.said)));
            let stored: BTreeMap<_, _> = under.map(|(id, said)| (id.to_owned(), said)).collect();
            // Of what cannot be read the last good value is shown, if there was one.
            let differs = |id: &&String| match (shown.get(*id), stored.get(*id)) {
                (_, Some(Said::Junk)) => false,
                (shown, stored) => shown != stored,
            };
            let ids: BTreeSet<_> = shown.keys().chain(stored.keys()).collect();
            let differing: Vec<_> = ids.into_iter().filter(differs).collect();
            if !differing.is_empty() {
                wrong.push(format!(
                    "W2/W8: at the end, client {client} sees {service} as {shown:?}, and the store has {stored:?}"
                ));
            }
            let junk = stored.values().filter(|said| **said == Said::Junk).count();
            if view.unreadable() != junk {
                wrong
                    .push(format!("W6: at the end, client {client} counts {} unreadable of {junk}", view.unreadable()));
            }
        }
    }

    fn judge_names(&self, wrong: &mut Vec<String>) {
        let names = self.truth.state.records.keys().filter_map(|path| self.space.parse(path));
        let stored: BTreeSet<_> = names.map(|key| key.service).collect();
        for (client, watch) in &self.cast.names {
            let shown = watch.latest().filter(|names| names.freshness().is_live());
            if shown.as_ref().is_none_or(|shown| *shown.names() != stored) {
                wrong.push(format!(
                    "W8: at the end, client {client} lists {:?}, and the store has {stored:?}",
                    shown.map(|s| s.names().clone())
                ));
            }
        }
    }
}
