//! The repository's own rules.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file of the repository, with its text.
fn sources() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    walk(&path, found);
                }
            } else if name.ends_with(".rs") && name != "generated.rs" {
                found.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new(env!("CARGO_MANIFEST_DIR")), &mut found);
    found
}

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Whoever opens a file reads it whole.
#[test]
fn files_are_short() {
    let mut lengths: Vec<_> = sources().into_iter().map(|(path, text)| (text.lines().count(), path)).collect();
    lengths.sort();
    let (longest, path) = lengths.last().unwrap();
    assert!(*longest <= 500, "{} has {longest} lines", path.display());
    let median = lengths[lengths.len() / 2].0;
    assert!(median < 150, "the median file has {median} lines");
}

#[test]
fn files_are_nouns() {
    for (path, _) in sources() {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            !["util", "utils", "common", "types", "helper", "helpers", "misc"].contains(&stem),
            "{}",
            path.display()
        );
    }
}

#[test]
fn every_file_says_what_it_is_about() {
    for (path, text) in sources() {
        assert!(text.starts_with("//!"), "{} begins without a doc comment", path.display());
    }
}

#[test]
fn nothing_is_left_undone() {
    // Put together here, or this file would find itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    for (path, text) in sources() {
        for mark in &marks {
            assert!(!text.contains(mark), "{} has a {mark}", path.display());
        }
    }
}

/// `lib.rs` and `mod.rs` of a crate's root say what there is; the code lives in files with names.
#[test]
fn crate_roots_hold_docs_modules_and_exports() {
    for (path, text) in sources().into_iter().filter(|(path, _)| path.ends_with("src/lib.rs")) {
        let functions = text.lines().filter(|line| line.starts_with("fn ") || line.starts_with("impl ")).count();
        assert!(functions <= 4, "{} has code of its own", path.display());
    }
}

/// The traits' docs, the suite and this list agree on which contracts there are.
#[test]
fn every_contract_is_documented_and_tested() {
    let docs = text("discovery-core/src/registry.rs")
        + &text("discovery-core/src/picker/mod.rs")
        + &text("discovery-core/src/store.rs");
    let suite = text("discovery-core/src/conformance/mod.rs");
    for (letter, count, in_suite) in [('R', 12, true), ('W', 13, true), ('L', 4, true), ('P', 8, false)] {
        for number in 1..=count {
            let documented = docs.contains(&format!("**{letter}{number}**"));
            assert!(documented, "{letter}{number} is not in the docs");
            let name = format!("{}{number:02}_", letter.to_ascii_lowercase());
            let tested = if in_suite {
                suite.contains(&name)
            } else {
                sources().iter().any(|(_, t)| t.contains(&format!("fn {name}")))
            };
            assert!(tested, "{letter}{number} has no test");
        }
    }
}

/// Core speaks to no network and knows no backend.
#[test]
fn core_stays_core() {
    let manifest = text("discovery-core/Cargo.toml");
    for foreign in
        ["tonic", "hyper", "etcd-client", "redis", "zookeeper", "discovery-etcd", "discovery-zookeeper", "\"net\""]
    {
        assert!(!manifest.contains(foreign), "core depends on {foreign}");
    }
}

/// Backends have the same files where they have the same subject, and never know each other.
#[test]
fn backends_are_guessable() {
    let folders = ["backend-etcd", "backend-redis", "backend-zookeeper"];
    for folder in folders {
        let manifest = text(&format!("{folder}/Cargo.toml"));
        for other in folders.iter().filter(|other| **other != folder) {
            let crate_name = other.replace("backend", "discovery");
            assert!(!manifest.contains(&crate_name), "{folder} knows {crate_name}");
        }
        for file in ["lib.rs", "connection.rs", "error.rs", "lease.rs", "load.rs", "record.rs", "store.rs", "watch.rs"]
        {
            assert!(
                Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("src").join(file).exists(),
                "{folder} lacks {file}"
            );
        }
    }
}

/// An example is read on one screen or two, also where it has a package of its own. What tests it may be longer.
#[test]
fn examples_are_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for (path, text) in sources().into_iter().filter(|(path, _)| path.starts_with(&folder)) {
        let is_test = path.file_name().unwrap() == "tests.rs";
        assert!(is_test || text.lines().count() <= 100, "{} is too long for an example", path.display());
    }
}
