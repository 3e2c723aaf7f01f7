//! The two messages of `grpc.health.v1`, by hand: one field each, which is less than a code generator and its runtime.
//!
//! `HealthCheckRequest { string service = 1; }` and `HealthCheckResponse { ServingStatus status = 1; }`, each after a byte for "not
//! compressed" and a length of four bytes.

/// What stands before each message: a flag and a length.
const PREFIX: usize = 5;
/// Field 1 as a string.
const SERVICE: u8 = 1 << 3 | 2;

/// The longest answer that is read. The message has two bytes; the rest is for fields of the future, and against servers that never end.
pub(super) const MAX_ANSWER: usize = 1024;

/// What a server says of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Unknown,
    Serving,
    NotServing,
    ServiceUnknown,
    /// A number that the protocol did not have when this was written.
    Other(u64),
}

impl Status {
    fn of(number: u64) -> Self {
        match number {
            0 => Self::Unknown,
            1 => Self::Serving,
            2 => Self::NotServing,
            3 => Self::ServiceUnknown,
            other => Self::Other(other),
        }
    }
}

/// The request about a service, `""` for the server as a whole.
pub(super) fn encode(service: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(PREFIX + 6 + service.len());
    message.extend([0; PREFIX]);
    if !service.is_empty() {
        message.push(SERVICE);
        let mut rest = service.len();
        while rest >= 0x80 {
            message.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        message.push(rest as u8);
        message.extend_from_slice(service.as_bytes());
    }
    // Service names are limited to far less than four GiB.
    let length = u32::try_from(message.len() - PREFIX).unwrap_or(u32::MAX);
    message[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    message
}

/// Reads the answer, or says what is wrong with it.
pub(crate) fn decode(answer: &[u8]) -> Result<Status, &'static str> {
    let (prefix, message) = answer.split_first_chunk::<PREFIX>().ok_or("no message")?;
    let [flag, length @ ..] = *prefix;
    if flag != 0 {
        return Err("a compressed message that nobody asked for");
    }
    if usize::try_from(u32::from_be_bytes(length)) != Ok(message.len()) {
        return Err("a message of another length than announced");
    }
    // An enum's first value is not sent.
    let mut status = 0;
    let mut rest = message;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        match (key >> 3, key & 7) {
            (1, 0) => status = varint(&mut rest)?,
            (_, 0) => drop(varint(&mut rest)?),
            (_, 1) => skip(&mut rest, 8)?,
            (_, 2) => {
                let length = varint(&mut rest)?;
                skip(&mut rest, length)?;
            }
            (_, 5) => skip(&mut rest, 4)?,
            _ => return Err("a message that is no protobuf"),
        }
    }
    Ok(Status::of(status))
}

fn varint(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or("a message that ends early")?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number of more than ten bytes")
}

fn skip(rest: &mut &[u8], length: u64) -> Result<(), &'static str> {
    let length = usize::try_from(length).map_err(|_| "a field longer than the message")?;
    *rest = rest.get(length..).ok_or("a field longer than the message")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;
    use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

    /// A message behind its prefix.
    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0], &length[..], message].concat()
    }

    #[test]
    fn answers_are_read_with_fields_that_are_not_known() {
        for (message, expected) in [
            (&[][..], Status::Unknown),
            (&[8, 1], Status::Serving),
            (&[8, 2], Status::NotServing),
            (&[8, 3], Status::ServiceUnknown),
            (&[8, 0x80, 1], Status::Other(128)),
            (&[8, 2, 8, 1], Status::Serving),
            (&[0x12, 2, 9, 9, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 1, 2, 3, 4, 0x28, 7, 8, 1], Status::Serving),
        ] {
            assert_eq!(decode(&framed(message)), Ok(expected), "{message:?}");
        }
    }

    #[test]
    fn the_peers_own_answers_are_read() {
        for (status, expected) in
            [(0, Status::Unknown), (1, Status::Serving), (2, Status::NotServing), (3, Status::ServiceUnknown)]
        {
            assert_eq!(decode(&framed(&HealthCheckResponse { status }.encode_to_vec())), Ok(expected));
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for answer in [
            &[][..],
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 2, 8, 1],
            &[0, 0, 0, 0, 3, 8, 1],
            &[0, 0, 0, 0, 1, 8, 1],
            &[0, 0, 0, 0, 1, 8],
            &[0, 0, 0, 0, 2, 0x12, 9],
            &[0, 0, 0, 0, 1, 0x0b],
        ] {
            assert!(decode(answer).is_err(), "{answer:?}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_panics(answer in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&answer);
            let _ = decode(&framed(&answer));
        }

        #[test]
        fn requests_are_what_the_peer_encodes(service in "[a-zA-Z.]{0,300}") {
            let peer = HealthCheckRequest { service: service.clone() };
            prop_assert_eq!(encode(&service), framed(&peer.encode_to_vec()));
        }
    }
}
