//! Filters: which instances may get requests at all, whatever becomes of the others.
//!
//! Source of the set of comparisons: the selectors of Kubernetes (equality-based and set-based), and an order for versions.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{expression, version};
use crate::{Instance, Result, State};

/// What a text has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Comparison {
    /// It is there and is this one.
    Equals(String),
    /// It is another, or is not there.
    NotEquals(String),
    /// It is there and is one of these.
    In(Vec<String>),
    /// It is another than these, or is not there.
    NotIn(Vec<String>),
    /// It is there, whatever it is.
    Exists,
    /// It is not there.
    Missing,
    /// It is there and is this version or a later one, by the rules of Semantic Versioning: `1.10` is later than `1.9`, `2.0-rc.1` is
    /// earlier than `2.0`, and a missing part counts as 0.
    AtLeast(String),
}

impl Comparison {
    /// Whether a text, or its absence, is what it has to be.
    pub fn holds(&self, text: Option<&str>) -> bool {
        match (self, text) {
            (Self::NotEquals(other), text) => text != Some(other),
            (Self::NotIn(others), text) => text.is_none_or(|text| others.iter().all(|other| other != text)),
            (Self::Missing, text) => text.is_none(),
            (_, None) => false,
            (Self::Equals(same), Some(text)) => text == same,
            (Self::In(all), Some(text)) => all.iter().any(|one| one == text),
            (Self::Exists, Some(_)) => true,
            (Self::AtLeast(least), Some(text)) => version::compare(text, least).is_ge(),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(text) => write!(f, "= {text}"),
            Self::NotEquals(text) => write!(f, "!= {text}"),
            Self::In(all) => write!(f, "in ({})", all.join(", ")),
            Self::NotIn(all) => write!(f, "notin ({})", all.join(", ")),
            Self::Exists => f.write_str("exists"),
            Self::Missing => f.write_str("is missing"),
            Self::AtLeast(version) => write!(f, ">= {version}"),
        }
    }
}

type Test = dyn Fn(&Instance) -> bool + Send + Sync;

/// A condition that an instance has to meet, with a name for explanations.
///
/// Of several filters all have to be met. Unlike health, nobody falls back to those that do not meet them: if all are filtered out, a
/// pick fails and says so.
#[derive(Clone)]
pub struct Filter {
    name: Arc<str>,
    test: Arc<Test>,
}

impl Filter {
    /// Admits the instances for which `test` is true. It is asked for every instance whenever somebody's record or health changes, so it
    /// has to be quick and should depend on the instance alone.
    pub fn new(name: impl Into<Arc<str>>, test: impl Fn(&Instance) -> bool + Send + Sync + 'static) -> Self {
        Self { name: name.into(), test: Arc::new(test) }
    }

    /// Admits those with an endpoint of this scheme, such as `grpc`.
    pub fn scheme(scheme: impl Into<String>) -> Self {
        let scheme = scheme.into();
        Self::new(format!("scheme {scheme}"), move |instance| instance.endpoint(&[&scheme]).is_some())
    }

    /// Admits those whose version compares so.
    pub fn version(comparison: Comparison) -> Self {
        Self::new(format!("version {comparison}"), move |instance| comparison.holds(instance.version()))
    }

    /// Admits those whose metadata of this name compares so.
    pub fn metadata(name: impl Into<String>, comparison: Comparison) -> Self {
        let name = name.into();
        Self::new(format!("metadata {name} {comparison}"), move |instance| comparison.holds(instance.metadata(&name)))
    }

    /// Admits those for which an expression holds, such as `env=prod, tier in (gold, silver), !canary`: conditions of metadata, of which all have
    /// to hold, written as the selectors of Kubernetes are, with `name>=1.10` besides for versions. `@version`, `@zone` and `@id` stand for what an instance
    /// has besides its metadata.
    ///
    /// # Errors
    /// `InvalidInput`, naming the condition that cannot be read.
    pub fn expression(text: &str) -> Result<Self> {
        let conditions = expression::parse(text)?;
        Ok(Self::new(text, move |instance| conditions.iter().all(|condition| condition.holds(instance))))
    }

    /// Admits those in this state. Without it the draining get requests where nobody is serving.
    pub fn state(state: State) -> Self {
        Self::new(format!("state {state:?}").to_lowercase(), move |instance| instance.state() == state)
    }

    /// The same condition under another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it admits an instance. One at which the test panics is not admitted, which is logged: a single bad record must not hide the others.
    pub fn admits(&self, instance: &Instance) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.test)(instance))).unwrap_or_else(|_| {
            tracing::error!(filter = %self.name, id = instance.id(), "the filter panicked; the instance is not admitted");
            false
        })
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_of_what_is_there_and_what_is_not() {
        let table = [
            (Comparison::Equals("a".into()), [true, false, false], "= a"),
            (Comparison::NotEquals("a".into()), [false, true, true], "!= a"),
            (Comparison::In(vec!["b".into(), "a".into()]), [true, true, false], "in (b, a)"),
            (Comparison::NotIn(vec!["b".into(), "c".into()]), [true, false, true], "notin (b, c)"),
            (Comparison::Exists, [true, true, false], "exists"),
            (Comparison::Missing, [false, false, true], "is missing"),
            (Comparison::AtLeast("b".into()), [false, true, false], ">= b"),
        ];
        for (comparison, expected, text) in table {
            assert_eq!([Some("a"), Some("b"), None].map(|text| comparison.holds(text)), expected, "{comparison}");
            assert_eq!(comparison.to_string(), text);
        }
    }

    #[test]
    fn filters_see_what_their_names_say() {
        let builder = Instance::builder("s").endpoint("grpc://h:1").version("1.10.0").metadata("env", "prod");
        let instance = builder.build().unwrap();
        let table = [
            (Filter::scheme("grpc"), true, "scheme grpc"),
            (Filter::scheme("http"), false, "scheme http"),
            (Filter::version(Comparison::AtLeast("1.9".into())), true, "version >= 1.9"),
            (Filter::version(Comparison::AtLeast("1.11".into())), false, "version >= 1.11"),
            (Filter::metadata("env", Comparison::Equals("prod".into())), true, "metadata env = prod"),
            (Filter::metadata("env", Comparison::Equals("test".into())), false, "metadata env = test"),
            (Filter::state(State::Serving), true, "state serving"),
            (Filter::state(State::Draining), false, "state draining"),
            (Filter::new("mine", |instance| instance.weight() == 7), false, "mine"),
            (Filter::scheme("grpc").named("ours"), true, "ours"),
        ];
        for (filter, admits, name) in table {
            assert_eq!((filter.admits(&instance), &**filter.name()), (admits, name));
        }
    }
}
