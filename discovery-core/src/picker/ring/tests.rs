//! The rings against what their peers compute.

use super::*;
use crate::Instance;
use crate::balancer::testing::{members, of};
use crate::clock::Clock;
use crate::picker::PickerFactory;

fn at(address: &str, weight: u32) -> Member {
    let builder = Instance::builder("s").endpoint(&format!("grpc://{address}")).weight(weight);
    of(builder.build().unwrap(), &Clock::default())
}

/// Five members, of which the last has the given weight and the others the default.
fn five(last: u32) -> Vec<Member> {
    (1..=5).map(|n| at(&format!("10.0.0.{n}:8080"), if n == 5 { last } else { 100 })).collect()
}

fn picked(picker: &dyn Picker, members: &[Member], key: &str) -> String {
    address(&members[picker.pick(members, &Context::default().with_key(key.as_bytes())).unwrap()])
}

/// Where the keys `key-0` to `key-31` go, by the number of the member from 1 on.
fn numbers(picker: &dyn Picker, members: &[Member]) -> Vec<usize> {
    (0..32).map(|n| picked(picker, members, &format!("key-{n}"))[7..8].parse().unwrap()).collect()
}

fn factories() -> [Box<dyn PickerFactory>; 3] {
    [Box::new(Ketama::new()), Box::new(DubboRing), Box::new(GoZeroRing)]
}

/// Computed with pingora-ketama 0.6.0: weights 1, 1, 1, 1 and 3.
#[test]
fn ketama_agrees_with_pingora() {
    let members = five(300);
    assert_eq!(
        numbers(&*Ketama::new().build(&members), &members),
        [4, 1, 5, 4, 5, 4, 2, 3, 5, 5, 5, 4, 5, 3, 4, 4, 5, 4, 5, 5, 5, 5, 1, 5, 5, 5, 5, 5, 4, 3, 3, 5]
    );
}

/// What nginx answers, by the samples in pingora-ketama's tests.
#[test]
fn ketama_agrees_with_nginx() {
    let members = [at("127.0.0.1:7777", 100), at("127.0.0.1:7778", 100)];
    let picker = Ketama::new().build(&members);
    for (key, port) in [
        ("/some/path", 7778),
        ("/some/longer/path", 7777),
        ("/sad/zaidoon", 7778),
        ("/g", 7777),
        ("/pingora/team/is/cool/and/this/is/a/long/uri", 7778),
    ] {
        assert_eq!(picked(&*picker, &members, key), format!("127.0.0.1:{port}"));
    }
}

/// Computed with another MD5 and a sorted list, in Python.
#[test]
fn dubbo_has_its_points_and_keys() {
    let members: Vec<_> = (1..=3).map(|n| at(&format!("10.0.0.{n}:20880"), 100)).collect();
    let picker = DubboRing.build(&members);
    for (key, number) in [("", 1), ("a", 2), ("hello", 2), ("user-42", 2)] {
        assert_eq!(picked(&*picker, &members, key), format!("10.0.0.{number}:20880"), "{key}");
    }
    let points = DubboRing::ring(&members);
    assert_eq!(points.hashes.len(), 480);
    assert_eq!((points.hashes[0], points.owners[0]), (4_712_220, 2));
    assert_eq!((points.hashes[479], points.owners[479]), (4_291_552_516, 0));
}

/// Computed with go-zero 1.10.3's `core/hash`: weights 100, 100, 100, 100 and 30.
#[test]
fn go_zero_agrees_with_its_own() {
    let members = five(30);
    assert_eq!(
        numbers(&*GoZeroRing.build(&members), &members),
        [1, 2, 2, 2, 1, 3, 2, 4, 3, 5, 4, 2, 2, 3, 5, 3, 4, 2, 4, 1, 2, 3, 1, 4, 2, 2, 1, 1, 1, 2, 4, 1]
    );
}

#[test]
fn f12_nobody_where_there_is_nobody() {
    for factory in factories() {
        let picker = factory.build(&[]);
        assert_eq!(picker.pick(&[], &Context::default()), None);
        assert_eq!(picker.pick(&[], &Context::default().with_key(b"k")), None);
        let one = [at("10.0.0.1:1", 1)];
        assert_eq!(who_is_picked(&*factory, &one), [1]);
    }
}

fn who_is_picked(factory: &dyn PickerFactory, members: &[Member]) -> Vec<usize> {
    let picker = factory.build(members);
    let mut counts = vec![0; members.len()];
    for key in 0..1_000u32 {
        counts[picker.pick(members, &Context::default().with_key(&key.to_le_bytes())).unwrap()] += 1;
        counts[picker.pick(members, &Context::default()).unwrap()] += 1;
    }
    counts.into_iter().map(|count| usize::from(count > 0)).collect()
}

#[test]
fn f13_weights_of_every_kind_take_a_bounded_ring() {
    for factory in factories() {
        // The largest weights have ten million times more points, were they not bounded.
        for weight in [1, u32::MAX] {
            let members = [at("10.0.0.1:1", weight), at("10.0.0.2:1", 0), at("10.0.0.3:1", weight)];
            assert_eq!(who_is_picked(&*factory, &members), [1, 0, 1]);
        }
        let nobody = members(&[0, 0]);
        assert_eq!(factory.build(&nobody).pick(&nobody, &Context::default()), None);
    }
}

#[test]
fn p06_a_leaver_moves_only_its_own_keys() {
    for factory in factories() {
        let (all, rest) = (five(100), five(100)[..4].to_vec());
        let (whole, without) = (factory.build(&all), factory.build(&rest));
        for key in 0..1_000 {
            let (before, after) = (picked(&*whole, &all, &key.to_string()), picked(&*without, &rest, &key.to_string()));
            assert!(before == after || before == "10.0.0.5:8080");
        }
    }
}
