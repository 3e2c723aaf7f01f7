//! The options of a registry URL, read by name; one that nobody reads is an error.

use std::fmt;
use std::time::Duration;

use crate::{Error, Result};

/// Reads options by name and, in [`finish`](Self::finish), refuses those that were not asked for.
pub struct UrlOptions {
    url: String,
    given: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl UrlOptions {
    pub(super) fn new(url: String, given: Vec<(String, String)>) -> Self {
        Self { url, given, known: Vec::new() }
    }

    /// Takes the text of an option.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let at = self.given.iter().position(|(given, _)| given == name)?;
        Some(self.given.swap_remove(at).1)
    }

    /// Takes a duration such as `10s`, `500ms` or `1m30s`.
    ///
    /// # Errors
    /// `InvalidInput` if it is none.
    pub fn duration(&mut self, name: &'static str) -> Result<Option<Duration>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match humantime::parse_duration(&text) {
            Ok(duration) => Ok(Some(duration)),
            Err(_) => Err(self.invalid(name, "is not a duration; write it with its unit, such as 10s or 500ms")),
        }
    }

    /// Takes a whole number.
    ///
    /// # Errors
    /// `InvalidInput` if it is none.
    pub fn number(&mut self, name: &'static str) -> Result<Option<u64>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.invalid(name, "is not a whole number")),
        }
    }

    /// An error about the value of option `name`; the value itself is not quoted, since it may be a secret.
    pub fn invalid(&self, name: &str, why: &str) -> Error {
        Error::invalid("use", format!("registry URL {:?}", self.url), format!("option {name:?} {why}"))
    }

    /// Refuses what is left.
    ///
    /// # Errors
    /// `InvalidInput`, naming an unknown option and the nearest known one.
    pub fn finish(self) -> Result<()> {
        let Some((unknown, _)) = self.given.first() else {
            return Ok(());
        };
        let nearest = self
            .known
            .iter()
            .map(|known| (strsim::damerau_levenshtein(known, unknown), known))
            .min()
            .filter(|(distance, known)| *distance <= known.len().max(3) / 2);
        let advice = match nearest {
            Some((_, known)) => format!("did you mean {known:?}?"),
            None => format!("known are: {}", self.known.join(", ")),
        };
        Err(self.invalid(unknown, &format!("is unknown; {advice}")))
    }
}

impl fmt::Debug for UrlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlOptions").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::RegistryUrl;

    #[test]
    fn an_unknown_option_names_the_nearest() {
        let url: RegistryUrl = "etcd://h?tll=10s".parse().unwrap();
        let mut options = url.options();
        assert_eq!(options.duration("ttl").unwrap(), None);
        let error = options.finish().unwrap_err().to_string();
        assert!(error.contains("did you mean \"ttl\"?"), "{error}");
        let url: RegistryUrl = "etcd://h?zebra=10s".parse().unwrap();
        let mut options = url.options();
        options.duration("ttl").unwrap();
        assert!(options.finish().unwrap_err().to_string().contains("known are: ttl"));
    }

    #[test]
    fn values_are_checked() {
        let url: RegistryUrl = "etcd://h?ttl=10&n=-1".parse().unwrap();
        let mut options = url.options();
        assert!(options.duration("ttl").is_err());
        assert!(options.number("n").is_err());
    }
}
