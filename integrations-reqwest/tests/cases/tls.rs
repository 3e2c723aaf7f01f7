//! Names in TLS: what is asked for, what is checked, and what is refused.

use discovery_core::{ErrorKind, Instance, Registration};
use discovery_reqwest::{CallError, Client, TLS_NAME, WhenEmpty};

use crate::stage::{Authority, Node, Stage, counts, settings, start_tls};

async fn join(stage: &Stage, node: &Node, name: Option<&str>) -> Registration {
    let endpoint = format!("https://{}", node.address());
    let mut instance = Instance::builder("orders").id(node.name()).endpoint(&endpoint);
    if let Some(name) = name {
        instance = instance.metadata(TLS_NAME, name);
    }
    stage.backend.register(instance.build().unwrap(), Default::default()).await.unwrap()
}

fn client(stage: &Stage, authority: &Authority) -> Client {
    let root = authority.root();
    let settings = move || settings().tls_certs_only([root.clone()]);
    stage.builder().with_when_empty(WhenEmpty::FailFast).with_settings(settings).build().unwrap()
}

async fn get(client: &Client, url: &str) -> String {
    client.get(url).send().await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_services_name_is_asked_for_checked_and_sent() {
    let (stage, authority) = (Stage::set(), Authority::new());
    let a = start_tls("a", authority.server("orders", false)).await;
    let _a = join(&stage, &a, None).await;
    let client = client(&stage, &authority);
    for scheme in ["https", "discovery"] {
        for path in ["sni", "host"] {
            assert_eq!(get(&client, &format!("{scheme}://orders/{path}")).await, "orders");
        }
    }
    // A connection is back in its pool a moment after its answer, so requests may take more; the clients are two.
    assert_eq!(client.middleware().held(), (2, 2), "one client for each scheme");
    // Nobody speaks plain HTTP there.
    let plain = client.get("http://orders/name").send().await.unwrap_err();
    assert!(CallError::of(&plain).unwrap().to_string().contains("no filter left any"), "{plain}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_in_the_metadata_goes_before_the_services() {
    let (stage, authority) = (Stage::set(), Authority::new());
    let a = start_tls("a", authority.server("a.orders.example", false)).await;
    let _a = join(&stage, &a, Some("a.orders.example")).await;
    let client = client(&stage, &authority);
    for path in ["sni", "host"] {
        assert_eq!(get(&client, &format!("https://orders/{path}")).await, "a.orders.example");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_certificate_is_refused_and_the_request_goes_elsewhere() {
    let (stage, authority) = (Stage::set(), Authority::new());
    let wrong = start_tls("wrong", authority.server("payments", false)).await;
    let forged = start_tls("forged", Authority::new().server("orders", false)).await;
    let mut held = vec![join(&stage, &wrong, None).await, join(&stage, &forged, None).await];
    let client = client(&stage, &authority);
    let error = client.post("https://orders/echo").body("secret").send().await.unwrap_err();
    let error = CallError::of(&error).unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("certificate"), "{error}");
    assert_eq!((wrong.requests(), forged.requests()), (0, 0));

    let right = start_tls("right", authority.server("orders", false)).await;
    held.push(join(&stage, &right, None).await);
    let balancer = client.middleware().balancer("https://orders").unwrap().unwrap();
    crate::stage::until("right is known", || balancer.members().len() == 3).await;
    for _ in 0..10 {
        assert_eq!(get(&client, "https://orders/name").await, "right");
    }
    assert_eq!((wrong.requests(), forged.requests()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_shown_where_it_is_asked_for() {
    let (stage, authority) = (Stage::set(), Authority::new());
    let a = start_tls("a", authority.server("orders", true)).await;
    let _a = join(&stage, &a, None).await;
    let (root, identity) = (authority.root(), authority.identity("shop"));
    let settings = move || settings().tls_certs_only([root.clone()]).identity(identity.clone());
    let known = stage.builder().with_settings(settings).build().unwrap();
    assert_eq!(get(&known, "https://orders/name").await, "a");
    client(&stage, &authority).get("https://orders/name").send().await.unwrap_err();
    assert_eq!((a.requests(), counts(&known, "a")[4]), (1, 0));
}
