//! Ejections of instances that share a quota (P4), reported by many while the balancer's task readmits them or sees them leave.

use std::sync::Arc;

use loom::thread::spawn;

use super::super::Outcome;
use super::super::ejection::Quota;
use super::super::health::{Bell, Health, Objection};
use super::model;

/// So many instances, of which so many may be ejected.
fn healths(count: usize, limit: u32) -> (Vec<Arc<Health>>, Arc<Quota>, Bell) {
    let (quota, bell) = (Arc::new(Quota::new(Some(2))), Bell::new());
    quota.limit_to(limit);
    let health = || Arc::new(Health::new(quota.clone(), bell.clone()));
    ((0..count).map(|_| health()).collect(), quota, bell)
}

fn ejected(healths: &[Arc<Health>]) -> u32 {
    healths.iter().map(|health| u32::from(health.has(Objection::Ejected))).sum()
}

#[test]
fn p04_of_reports_at_once_one_ejects() {
    model(|| {
        let (healths, quota, bell) = healths(1, 2);
        let threads = [Outcome::Unreachable, Outcome::Unreachable].map(|outcome| {
            let health = healths[0].clone();
            spawn(move || health.heard(outcome))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((ejected(&healths), quota.taken(), bell.rings()), (1, 1, 1));
    });
}

#[test]
fn p04_failures_that_are_counted_by_several_threads_eject() {
    model(|| {
        let (healths, quota, bell) = healths(1, 1);
        let other = spawn({
            let health = healths[0].clone();
            move || health.heard(Outcome::Failure)
        });
        healths[0].heard(Outcome::Failure);
        other.join().unwrap();
        assert_eq!((ejected(&healths), quota.taken(), bell.rings()), (1, 1, 1));
    });
}

#[test]
fn p04_the_quota_is_never_exceeded() {
    model(|| {
        let (healths, quota, _) = healths(3, 1);
        let threads = [0, 1].map(|at| {
            let health = healths[at].clone();
            spawn(move || health.heard(Outcome::Unreachable))
        });
        assert!(quota.taken() <= 1);
        healths[2].heard(Outcome::Unreachable);
        assert!(ejected(&healths) <= 1);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((ejected(&healths), quota.taken()), (1, 1));
    });
}

/// Whenever an ejection ends or an instance leaves, what is taken of the quota is what is ejected. The balancer's task alone does both.
#[test]
fn p04_the_quota_never_leaks() {
    model(|| {
        let (healths, quota, _) = healths(1, 2);
        let threads = [(); 2].map(|()| {
            let health = healths[0].clone();
            spawn(move || health.heard(Outcome::Unreachable))
        });
        healths[0].readmit();
        assert!(quota.taken() <= 2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(quota.taken(), ejected(&healths));
    });
}

#[test]
fn p04_who_leaves_takes_nothing_of_the_quota() {
    model(|| {
        let (healths, quota, _) = healths(2, 2);
        let threads = [0, 1].map(|at| {
            let health = healths[at].clone();
            spawn(move || health.heard(Outcome::Unreachable))
        });
        healths[0].readmit();
        healths[0].retire();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(quota.taken(), ejected(&healths[1..]), "the other alone takes any");
        healths[0].heard(Outcome::Unreachable);
        assert_eq!(quota.taken(), 1);
    });
}
