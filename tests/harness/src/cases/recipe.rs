//! The commands of `docs/rights.md`, so that what is tested is what is documented.

const PAGE: &str = include_str!("../../../../docs/rights.md");

/// The lines of the block with this name, each in words as a shell would read them.
pub fn recipe(name: &str) -> Vec<Vec<String>> {
    let mut lines = PAGE.lines().skip_while(|line| !(line.starts_with("```") && line.ends_with(&format!(" {name}"))));
    assert!(lines.next().is_some(), "docs/rights.md has no block {name:?}");
    lines.take_while(|line| *line != "```").map(|line| line.split(' ').map(|w| w.replace('\'', "")).collect()).collect()
}
