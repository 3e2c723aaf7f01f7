//! Files that are cut, changed, foreign, old, in the way or half written.

mod killing;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use super::folder::{Folder, distrust};
use super::page::{Label, Page};
use crate::snapshot::{Freshness, ServiceNames, Since, Snapshot};
use crate::store::Scope;
use crate::{ErrorKind, Instance};

const DAY: Duration = Duration::from_secs(86_400);

fn label(service: &str) -> Label {
    Label { registry: "etcd://h:2379/prod".to_owned(), scope: Scope::Service(service.into()) }
}

/// A set of one service: instances 0 to `count`, each of this weight.
fn set(service: &str, count: u32, weight: u32) -> Snapshot {
    let instance = |n| {
        Instance::builder(service)
            .id(format!("i{n}"))
            .endpoint("grpc://h:1")
            .weight(weight)
            .started_at(SystemTime::UNIX_EPOCH)
            .build()
    };
    let instances = (0..count).map(|n| Arc::new(instance(n).unwrap())).collect();
    Snapshot { instances, freshness: Freshness::Live, ..Snapshot::loading(service.into()) }
}

fn bytes(label: &Label, set: &Snapshot) -> Vec<u8> {
    Page::write(label, SystemTime::now(), set)
}

fn opened() -> (TempDir, Folder) {
    let above = tempdir().unwrap();
    let folder = Folder::new(above.path().join("a/b"), DAY);
    (above, folder)
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn age(path: &Path, at: SystemTime) {
    File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
}

#[test]
fn every_cut_and_every_changed_byte_is_seen() {
    let label = label("pay");
    let whole = bytes(&label, &set("pay", 3, 7));
    let read = Page::<Snapshot>::read(&whole, &label).unwrap();
    assert_eq!(read.view.instances, set("pay", 3, 7).instances);
    for end in 0..whole.len() {
        assert!(Page::<Snapshot>::read(&whole[..end], &label).is_err(), "cut at {end}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert!(Page::<Snapshot>::read(&changed, &label).is_err(), "changed at {at}");
    }
    let mut longer = whole.clone();
    longer.extend(b"{}\n");
    assert!(Page::<Snapshot>::read(&longer, &label).is_err());
}

#[test]
fn a_file_of_another_store_service_or_format_is_refused() {
    let (ours, whole) = (label("pay"), bytes(&label("pay"), &set("pay", 1, 7)));
    let other_store = Label { registry: "etcd://h:2379/prod2".into(), ..ours.clone() };
    let the_names = Label { scope: Scope::Names, ..ours.clone() };
    for other in [label("PAY"), label("pay "), other_store, the_names.clone()] {
        assert_eq!(Page::<Snapshot>::read(&whole, &other).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_ne!(ours.file_name(), other.file_name());
    }
    let newer = String::from_utf8(whole).unwrap().replacen("set 1", "set 2", 1);
    assert!(Page::<Snapshot>::read(newer.as_bytes(), &ours).is_err());
    let empty = ServiceNames { freshness: Freshness::Live, names: Arc::default() };
    let listed = Page::write(&the_names, SystemTime::now(), &empty);
    assert!(Page::<Snapshot>::read(&listed, &ours).is_err());
    assert!(Page::<ServiceNames>::read(&listed, &the_names).unwrap().view.names.is_empty());
}

#[test]
fn the_wall_clock_may_go_anywhere() {
    let label = label("pay");
    let recent = |known_good: SystemTime| {
        let bytes = Page::write(&label, known_good, &set("pay", 1, 1));
        Page::<Snapshot>::read(&bytes, &label).is_ok_and(|page| {
            assert!(Since::at(page.known_good).elapsed() < Duration::from_secs(100 * 365 * 86_400));
            page.is_recent(DAY)
        })
    };
    let now = SystemTime::now();
    assert!(recent(now) && recent(now - DAY + Duration::from_secs(60)));
    assert!(!recent(now - DAY - Duration::from_secs(1)), "too old");
    assert!(recent(now + Duration::from_secs(60)), "a clock that was corrected");
    assert!(
        !recent(now + Duration::from_secs(3_600)) && !recent(now + 365 * DAY),
        "a file of the future is not immortal"
    );
    assert!(!recent(SystemTime::UNIX_EPOCH) && !recent(SystemTime::UNIX_EPOCH - DAY));
}

#[test]
fn what_stands_in_the_way_is_an_error_and_no_more() {
    let (above, folder) = opened();
    let (pay, page) = (label("pay"), bytes(&label("pay"), &set("pay", 1, 1)));
    assert!(folder.read(&pay).unwrap().is_none(), "no directory, no file");
    folder.write(&pay, &page).unwrap();
    let path = folder.path().join(pay.file_name());
    assert_eq!(folder.read(&pay).unwrap().unwrap(), page);
    let refused =
        |what: &str| assert_eq!(folder.read(&pay).map(drop).unwrap_err().kind(), ErrorKind::Corrupt, "{what}");

    let elsewhere = above.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    refused("a link");
    folder.write(&pay, &page).unwrap();
    assert!(fs::symlink_metadata(&path).unwrap().is_file(), "a link is replaced, not followed");

    File::create(&path).unwrap().set_len(64 * 1024 * 1024 + 1).unwrap();
    refused("a huge file");
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    refused("a pipe that nobody writes to");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused("a directory");
    assert!(folder.write(&pay, &page).is_err());
    assert_eq!(names(&folder), [pay.file_name()], "what could not be renamed is not left");
    let oversize = vec![0; 64 * 1024 * 1024 + 1];
    assert_eq!(folder.write(&pay, &oversize).unwrap_err().kind(), ErrorKind::TooLarge);

    let file = above.path().join("file");
    fs::write(&file, "x").unwrap();
    let folder = Folder::new(file.join("below"), DAY);
    assert!(folder.write(&pay, &page).is_err() && folder.read(&pay).is_err() && folder.sweep().is_err());
}

#[test]
fn only_the_owner_reads_and_nobody_else_may_write() {
    let (_above, folder) = opened();
    let pay = label("pay");
    folder.write(&pay, b"x").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let umask_free = |mode: u32| mode & 0o077;
    assert_eq!(umask_free(mode(folder.path())), 0);
    assert_eq!(umask_free(mode(&folder.path().join(pay.file_name()))), 0);
    for open in [0o722, 0o770, 0o1777] {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(open)).unwrap();
        for result in [folder.read(&pay).map(drop), folder.write(&pay, b"x"), folder.sweep().map(drop)] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        }
    }
}

/// In `/tmp` anybody may make the directory first, or a link to one.
#[test]
fn what_another_user_made_is_not_used() {
    let (above, folder) = opened();
    let pay = label("pay");
    folder.write(&pay, b"x").unwrap();
    let (me, other) = (fs::metadata(folder.path()).unwrap().uid(), 65_534);
    assert_eq!(distrust(0o040_755, me, me), None);
    assert_eq!(distrust(0o040_755, 0, other), None, "the superuser's");
    assert!(distrust(0o040_755, other, me).is_some() && distrust(0o040_700, other, 0).is_some());
    // Only the superuser can give a directory away.
    if me != 0 {
        return;
    }
    chown(folder.path(), Some(other), None).unwrap();
    symlink(folder.path(), above.path().join("link")).unwrap();
    for folder in [folder, Folder::new(above.path().join("link"), DAY)] {
        for result in [folder.read(&pay).map(drop), folder.write(&pay, b"y"), folder.sweep().map(drop)] {
            let error = result.unwrap_err();
            assert!(
                error.kind() == ErrorKind::PermissionDenied && error.to_string().contains("another user"),
                "{error}"
            );
        }
    }
}

#[test]
fn what_is_old_or_abandoned_is_cleared_away_and_nothing_else() {
    let (_above, folder) = opened();
    for service in ["young", "old", "future"] {
        folder.write(&label(service), b"x").unwrap();
    }
    let at = |name: &str| folder.path().join(name);
    let now = SystemTime::now();
    age(&at(&label("old").file_name()), now - DAY - Duration::from_secs(60));
    age(&at(&label("future").file_name()), now + DAY + Duration::from_secs(60));
    let (left, in_use) =
        (format!("{}.{:016x}.tmp", label("a").file_name(), 1), format!("{}.{:016x}.tmp", label("a").file_name(), 2));
    let newer = label("b").file_name().replace(".set1", ".set2");
    let foreign = ["notes.txt", "pay-1.set1", ".set1", "x.tmp", &newer];
    for name in foreign.iter().chain([&left.as_str(), &in_use.as_str()]) {
        fs::write(at(name), "x").unwrap();
        age(&at(name), now - 30 * DAY);
    }
    age(&at(&in_use), now);
    fs::create_dir(at(&label("folder").file_name())).unwrap();
    assert_eq!(folder.sweep().unwrap(), 3);
    let kept = names(&folder);
    let expected = foreign.iter().map(|name| (*name).to_owned());
    for name in expected.chain([in_use, label("young").file_name(), label("folder").file_name()]) {
        assert!(kept.contains(&name), "{name} is gone: {kept:?}");
    }
    assert_eq!(kept.len(), foreign.len() + 3);
}

#[test]
fn many_writers_of_one_file_leave_it_whole() {
    let (_above, folder) = opened();
    let pay = label("pay");
    let pages: Vec<_> = (1..=4).map(|n| bytes(&pay, &set("pay", n * 50, n))).collect();
    std::thread::scope(|scope| {
        for page in &pages {
            scope.spawn(|| (0..100).for_each(|_| folder.write(&pay, page).unwrap()));
        }
        scope.spawn(|| {
            for _ in 0..400 {
                if let Some(found) = folder.read(&pay).unwrap() {
                    assert!(pages.contains(&found), "{} bytes", found.len());
                }
            }
        });
    });
    assert_eq!(names(&folder), [pay.file_name()]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_name_has_a_file_of_its_own(a in "\\PC{1,60}", b in "\\PC{1,60}") {
        let (one, other) = (label(&a), label(&b));
        let name = one.file_name();
        prop_assert!(name.len() <= 100 && name.is_ascii() && name == name.to_lowercase() && !name.contains(['/', '\\', ':']));
        prop_assert!(Label::is_name(&name));
        prop_assert_eq!(a == b, name == other.file_name());
        let page = Page::<Snapshot>::read(&bytes(&one, &set(&a, 2, 3)), &one).unwrap();
        prop_assert_eq!(page.view.instances, set(&a, 2, 3).instances);
        let listed = ServiceNames { freshness: Freshness::Live, names: Arc::new([a.into(), b.into()].into()) };
        let scope = Label { scope: Scope::Names, ..one };
        let page = Page::<ServiceNames>::read(&Page::write(&scope, SystemTime::now(), &listed), &scope).unwrap();
        prop_assert_eq!(page.view.names, listed.names);
    }

    #[test]
    fn no_bytes_panic(raw in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Page::<Snapshot>::read(&raw, &label("pay")).is_err());
        let body = [b"discovery-kit set 1 ", format!("{:032x}\n", xxhash_rust::xxh3::xxh3_128(&raw)).as_bytes(), &raw].concat();
        prop_assert!(Page::<Snapshot>::read(&body, &label("pay")).is_err());
    }
}
