//! Calling the script, and reading its answers.

use discovery_core::{Error, ErrorKind, Result};
use redis::Value;

/// Everything that is done to the registry.
pub(crate) const TEXT: &str = include_str!("registry.lua");

/// The values that a call of the script answered, read one after the other.
pub(crate) struct Answer {
    values: std::vec::IntoIter<Value>,
    verb: &'static str,
    stem: String,
}

impl Answer {
    /// Takes an answer apart, if it belongs to the question with this nonce.
    pub(crate) fn read(value: Value, nonce: u64, verb: &'static str, stem: &str) -> Result<Self> {
        let Value::Array(values) = value else {
            return Err(out_of_step(verb, stem));
        };
        let mut answer = Self { values: values.into_iter(), verb, stem: stem.to_owned() };
        match answer.text() {
            Ok(echo) if echo == nonce.to_string() => Ok(answer),
            _ => Err(out_of_step(verb, stem)),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>> {
        match self.values.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            Some(Value::Int(number)) => Ok(number.to_string().into_bytes()),
            other => Err(self.unexpected(if other.is_some() { "a value of another kind" } else { "too few values" })),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?).map_err(|_| self.unexpected("bytes in the place of text"))
    }

    /// A whole number; negative ones stand for "none".
    pub(crate) fn number(&mut self) -> Result<Option<u64>> {
        let text = self.text()?;
        match text.parse::<i128>() {
            Ok(number) => Ok(u64::try_from(number).ok()),
            Err(_) => Err(self.unexpected("text in the place of a number")),
        }
    }

    /// A number that is never negative.
    pub(crate) fn count(&mut self) -> Result<u64> {
        Ok(self.number()?.unwrap_or(0))
    }

    /// Whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.as_slice().is_empty()
    }

    /// How many values are left.
    pub(crate) fn len(&self) -> usize {
        self.values.as_slice().len()
    }

    fn unexpected(&self, what: &str) -> Error {
        Error::new(ErrorKind::Internal, self.verb, &*self.stem, format!("the script answered {what}"))
    }
}

/// An answer to another question: bytes were lost on the way, and nothing on this connection can be believed any more.
pub(crate) fn out_of_step(verb: &'static str, stem: &str) -> Error {
    Error::new(ErrorKind::Unavailable, verb, stem, "the connection answered another question than was asked")
}
