//! Whether a server is the master.

use discovery_core::{Error, ErrorKind, Result};
use redis::{FromRedisValue, Value};

use super::line::Line;
use crate::error::classify;
use crate::script::out_of_step;

/// Asks a server for its role. Needs no right, unlike PING.
pub(super) async fn check(line: &Line, host: &str) -> Result<()> {
    let answer: Value = line.ask(&redis::cmd("HELLO")).await.map_err(|error| classify(error, "reach", host))?;
    judge(answer, host)
}

/// What a server's answer says of its role.
pub(crate) fn judge(answer: Value, host: &str) -> Result<()> {
    let Value::Map(fields) = answer else {
        return Err(out_of_step("reach", host));
    };
    let word = |wanted: &str| {
        let field = fields.iter().find(|(name, _)| String::from_redis_value_ref(name).is_ok_and(|name| name == wanted));
        field.and_then(|(_, value)| String::from_redis_value_ref(value).ok())
    };
    match word("role").or_else(|| word("mode")).as_deref() {
        Some("master") => Ok(()),
        Some("sentinel") => Err(Error::new(
            ErrorKind::InvalidInput,
            "reach",
            host,
            "the server is a Sentinel: write redis+sentinel://host:26379/name-of-the-master for redis://",
        )),
        role => Err(Error::new(
            ErrorKind::Unavailable,
            "reach",
            host,
            format!("the server is not the master but a {}", role.unwrap_or("stranger")),
        )),
    }
}
