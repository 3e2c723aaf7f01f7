//! Registry URLs, their options as each backend reads them, and their redaction.

#![no_main]

use discovery_core::{Login, Policy, RegistryUrl, fixed};
use libfuzzer_sys::fuzz_target;

/// In no text that a fuzzer comes upon, and in no message.
const SECRET: &str = "hunter2hunter2";

fuzz_target!(|text: &str| {
    read(text);
    // The same with credentials, and with options that hold one; whatever is wrong with it, none is shown.
    let (scheme, rest) = text.split_once("://").unwrap_or(("etcd", text));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, "ttl=5s"));
    for credentials in [format!("user:{SECRET}@"), format!(":{SECRET}@"), format!("{SECRET}@"), String::new()] {
        let url = format!("{scheme}://{credentials}{rest}?{query}&sentinel_password={SECRET}&grace={SECRET}");
        let shown = read(&url);
        assert!(!shown.contains(SECRET), "{url}: {shown}");
    }
});

/// Reads a URL in every way, and answers everything that was said.
fn read(text: &str) -> String {
    let url = match text.parse::<RegistryUrl>() {
        Ok(url) => url,
        Err(error) => return format!("{error} {error:?} {error:#?}"),
    };
    let shown = url.to_string();
    // What is shown is a URL again, unless something was hidden or has to be encoded.
    if url.user().is_none() && url.path().is_ascii() && !url.path().contains(['%', '#', '?', '@']) {
        let again = shown.parse::<RegistryUrl>().expect("a URL");
        assert_eq!((again.path(), again.scheme(), again.hosts(1).ok()), (url.path(), url.scheme(), url.hosts(1).ok()));
    }
    let mut options = url.options();
    let said = [
        discovery_etcd::fuzzing::read_url(&url).err(),
        discovery_redis::fuzzing::read_url(&url).err(),
        discovery_zookeeper::fuzzing::read_url(&url).err(),
        url.hosts(1).err(),
        Login::from_url(&url, &mut url.options(), None).err(),
        url.without_authority().err(),
        fixed::connect(&url).err(),
        Policy::from_url(&mut options).err(),
        options.finish().err(),
    ];
    let said: Vec<_> = said.into_iter().flatten().map(|error| format!("{error} {error:?} {error:#?}")).collect();
    format!("{shown} {url:?} {:?} {said:?}", url.options())
}
