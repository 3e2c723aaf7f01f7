//! The caller's deadline, as gRPC carries it.

use std::time::Duration;

use http::HeaderMap;

/// Reads the `grpc-timeout` header: up to eight digits and a unit. What is malformed is left to the server, which sees it unchanged.
pub(super) fn timeout_of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3_600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_header_is_read_as_the_protocol_defines_it() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_static(text));
            timeout_of(&headers)
        };
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(read("2M"), Some(Duration::from_secs(120)));
        assert_eq!(read("3S"), Some(Duration::from_secs(3)));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("250000u"), Some(Duration::from_millis(250)));
        assert_eq!(read("0n"), Some(Duration::ZERO));
        for text in ["", "S", "3", "123456789S", "+3S", "-3S", "3 S", "3s", "3h"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(timeout_of(&HeaderMap::new()), None);
    }
}
