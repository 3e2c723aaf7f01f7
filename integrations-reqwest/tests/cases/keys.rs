//! What pickers know of a request.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use discovery_core::picker::ConsistentHash;
use discovery_core::{Context, Member, Picker};
use discovery_reqwest::{ClientBuilder, HashKey};
use http::HeaderName;
use reqwest_middleware::RequestBuilder;

use crate::stage::{Node, Stage};

/// Every session stays with one server, and together they go to all.
async fn keeps_sessions(
    builder: impl Fn(&Stage) -> ClientBuilder,
    mark: impl Fn(RequestBuilder, &str) -> RequestBuilder,
) {
    let stage = Stage::set();
    let nodes = [Node::start("a").await, Node::start("b").await, Node::start("c").await];
    let mut registered = Vec::new();
    for node in &nodes {
        registered.push(stage.join(node).await);
    }
    let client = builder(&stage).with_picker(|_| ConsistentHash::new()).build().unwrap();
    let balancer = client.middleware().balancer("http://orders").unwrap().unwrap();
    crate::stage::until("all are known", || balancer.members().len() == 3).await;
    let mut servers = BTreeSet::new();
    for session in 0..20 {
        let mut of_session = BTreeSet::new();
        for _ in 0..5 {
            let request = mark(client.get("http://orders/name"), &format!("session-{session}"));
            of_session.insert(request.send().await.unwrap().text().await.unwrap());
        }
        assert_eq!(of_session.len(), 1, "session {session} went to {of_session:?}");
        servers.extend(of_session);
    }
    assert_eq!(servers.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p06_a_session_is_kept_by_a_header() {
    let builder = |stage: &Stage| stage.builder().with_key_header(HeaderName::from_static("x-session"));
    keeps_sessions(builder, |request, session| request.header("x-session", session)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p06_a_session_is_kept_by_an_extension() {
    keeps_sessions(|stage| stage.builder(), |request, session| request.with_extension(HashKey::from(session))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p06_a_session_is_kept_by_a_closure() {
    let builder =
        |stage: &Stage| stage.builder().with_key(|request| request.url().query().map(|query| query.as_bytes().into()));
    keeps_sessions(builder, |request, session| {
        let (client, request) = request.build_split();
        let mut request = request.unwrap();
        request.url_mut().set_query(Some(session));
        RequestBuilder::from_parts(client, request)
    })
    .await;
}

/// Picks the first, and remembers what it was asked.
struct Asked(Arc<Mutex<Vec<String>>>);

impl Picker for Asked {
    fn pick(&self, members: &[Member], context: &Context<'_>) -> Option<usize> {
        self.0.lock().unwrap().push(context.method.unwrap().to_owned());
        (!members.is_empty()).then_some(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picker_sees_method_and_path() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let seen = asked.clone();
    let builder = stage.builder().with_picker(move |_| {
        let seen = seen.clone();
        move |_: &[Member]| Asked(seen.clone())
    });
    let client = builder.build().unwrap();
    client.put("http://orders/echo?secret=1").body("x").send().await.unwrap();
    assert_eq!(asked.lock().unwrap().last().unwrap(), "PUT /echo");
    assert_eq!(format!("{:?}", HashKey::from("secret")), "HashKey(6 bytes)");
}
