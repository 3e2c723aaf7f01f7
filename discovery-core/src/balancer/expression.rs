//! Conditions of metadata written as a text.
//!
//! Source of the grammar: Kubernetes' "Labels and Selectors" (`=`, `==`, `!=`, `in`, `notin`, a name alone, `!` and a name, commas between);
//! `>=` is added for versions.

use super::filter::Comparison;
use crate::{Error, Instance, Result};

/// One condition.
#[derive(Debug, PartialEq)]
pub(super) struct Condition {
    name: String,
    comparison: Comparison,
}

impl Condition {
    pub(super) fn holds(&self, instance: &Instance) -> bool {
        let text = match &*self.name {
            "@id" => Some(instance.id()),
            "@version" => instance.version(),
            "@zone" => instance.zone(),
            name => instance.metadata(name),
        };
        self.comparison.holds(text)
    }
}

/// Reads the conditions, which are separated by commas outside of parentheses.
pub(super) fn parse(text: &str) -> Result<Vec<Condition>> {
    let mut inside = false;
    let conditions = text.split(|c| {
        inside = match c {
            '(' => true,
            ')' => false,
            _ => inside,
        };
        c == ',' && !inside
    });
    conditions.map(|condition| read(condition.trim()).map_err(|why| invalid(text, condition, why))).collect()
}

fn invalid(text: &str, condition: &str, why: &str) -> Error {
    Error::invalid("parse", format!("filter expression {text:?}"), format!("{:?}: {why}", condition.trim()))
}

fn read(text: &str) -> Result<Condition, &'static str> {
    let condition = |name: &str, comparison| {
        let name = name.trim();
        let is_name = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "=!<>()".contains(c));
        if !is_name {
            return Err("a condition begins with a name, as in env=prod or !canary");
        }
        let is_special = ["@id", "@version", "@zone"].contains(&name);
        if name.starts_with('@') && !is_special {
            return Err("only @id, @version and @zone begin with @");
        }
        Ok(Condition { name: name.to_owned(), comparison })
    };
    let value = |text: &str| match text.trim() {
        text if text.contains(|c: char| c.is_whitespace() || "=!<>()".contains(c)) => Err("the value is not one word"),
        text => Ok(text.to_owned()),
    };
    if let Some((name, list)) = text.split_once('(') {
        let list = list.strip_suffix(')').ok_or("the parenthesis is not closed")?;
        let values = list.split(',').map(value).collect::<Result<Vec<_>, _>>()?;
        let (name, word) = name.trim().rsplit_once(char::is_whitespace).ok_or("write name in (a, b)")?;
        return match word {
            "in" => condition(name, Comparison::In(values)),
            "notin" => condition(name, Comparison::NotIn(values)),
            _ => Err("only in and notin have a list"),
        };
    }
    if let Some((name, least)) = text.split_once(">=") {
        return match value(least)? {
            least if least.is_empty() => Err("the version is missing"),
            least => condition(name, Comparison::AtLeast(least)),
        };
    }
    if let Some((name, other)) = text.split_once("!=") {
        return condition(name, Comparison::NotEquals(value(other)?));
    }
    if let Some((name, same)) = text.split_once('=') {
        return condition(name, Comparison::Equals(value(same.strip_prefix('=').unwrap_or(same))?));
    }
    match text.strip_prefix('!') {
        Some(name) => condition(name, Comparison::Missing),
        None => condition(text, Comparison::Exists),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn admits(text: &str) -> bool {
        let builder = Instance::builder("s").id("a").endpoint("grpc://h:1").version("1.10").zone("eu");
        let instance = builder.metadata("env", "prod").metadata("tier", "gold").build().unwrap();
        parse(text).unwrap().iter().all(|condition| condition.holds(&instance))
    }

    #[test]
    fn conditions_are_those_of_selectors() {
        for text in [
            "env=prod",
            "env == prod",
            "env!=test, tier in (gold, silver),!canary",
            "tier notin (iron)",
            "env",
            "@version>=1.9,@zone=eu,@id in (a,b)",
            "absent notin (x)",
            "absent!=x",
        ] {
            assert!(admits(text), "{text}");
        }
        for text in
            ["env=test", "env=prod,canary", "!env", "tier in (iron)", "@version >= 1.11", "absent=x", "absent in (x)"]
        {
            assert!(!admits(text), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for text in [
            "", "=x", "a b", "a in (x", "a of (x)", "in (x)", "a=b=c", "@age=1", "a,,b", "a>=", "a)", "!", "!!a", "a>b",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("filter expression"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-c=!<>(), @in]{0,24}|\\PC{0,24}") {
            let _ = parse(&text);
        }
    }
}
