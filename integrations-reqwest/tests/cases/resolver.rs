//! A plain client that resolves services by name.

use std::time::Duration;

use discovery_core::{Instance, State};
use discovery_reqwest::{ServiceHosts, ServiceResolver};

use crate::stage::{Authority, Node, Stage, Web, dead, settings, start_tls};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_client_finds_services_and_everything_else() {
    let stage = Stage::set();
    let six = Node::start_with("six", "[::1]:0", Web::default()).await;
    let _six = stage.register("six", &format!("http://{}", six.address())).await;
    let _dead = stage.register("dead", &dead()).await;
    let resolver = ServiceResolver::new(stage.backend.clone());
    assert!(format!("{resolver:?}").contains("ServiceResolver"));
    for _ in 0..5 {
        // A new client, so that it has no connection yet.
        let client = settings().dns_resolver(resolver.clone()).build().unwrap();
        let response = client.get("http://orders/host").send().await.unwrap();
        assert_eq!(response.remote_addr(), Some(six.address()));
        assert_eq!(response.text().await.unwrap(), "orders");
    }
    let four = Node::start("four").await;
    let client = settings().dns_resolver(resolver).build().unwrap();
    let url = format!("http://localhost:{}/name", four.address().port());
    assert_eq!(client.get(url).send().await.unwrap().text().await.unwrap(), "four");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_drained_and_the_draining_come_only_if_there_are_no_others() {
    let stage = Stage::set();
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let instance = |node: &Node| {
        Instance::builder("orders").id(node.name().to_owned()).endpoint(&format!("http://{}", node.address()))
    };
    let draining = instance(&a).state(State::Draining).build().unwrap();
    let _a = stage.backend.register(draining, Default::default()).await.unwrap();
    let get = async || {
        let resolver = ServiceResolver::new(stage.backend.clone());
        let client = settings().dns_resolver(resolver).build().unwrap();
        client.get("http://orders/name").send().await.unwrap().text().await.unwrap()
    };
    assert_eq!(get().await, "a");
    let _b = stage.backend.register(instance(&b).build().unwrap(), Default::default()).await.unwrap();
    for _ in 0..10 {
        assert_eq!(get().await, "b");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_without_instances_is_waited_for_and_then_refused_with_the_reason() {
    let stage = Stage::set();
    let resolver = ServiceResolver::new(stage.backend.clone()).with_hosts(ServiceHosts::named(["shop.internal"]));
    let client = settings().dns_resolver(resolver.clone().with_wait(Duration::from_millis(50))).build().unwrap();
    let error = client.get("http://shop.internal/").send().await.unwrap_err();
    assert!(
        error.is_connect() && format!("{error:?}").contains("cannot resolve service \\\"shop.internal\\\""),
        "{error:?}"
    );

    let client = settings().dns_resolver(resolver).build().unwrap();
    let waiting =
        tokio::spawn(async move { client.get("http://shop.internal/name").send().await.unwrap().text().await });
    let a = Node::start("a").await;
    let instance = Instance::builder("shop.internal").endpoint(&format!("tcp://{}", a.address())).build().unwrap();
    let _a = stage.backend.register(instance, Default::default()).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tls_the_name_in_the_url_is_checked() {
    let (stage, authority) = (Stage::set(), Authority::new());
    let a = start_tls("a", authority.server("orders", false)).await;
    let endpoints = ["http://127.0.0.1:1".to_owned(), format!("https://{}", a.address())];
    let instance = Instance::builder("orders").endpoint(&endpoints[0]).endpoint(&endpoints[1]).build().unwrap();
    let _a = stage.backend.register(instance, Default::default()).await.unwrap();
    let resolver = ServiceResolver::new(stage.backend.clone()).with_schemes(["https"]);
    let client = settings().tls_certs_only([authority.root()]).dns_resolver(resolver).build().unwrap();
    assert_eq!(client.get("https://orders/sni").send().await.unwrap().text().await.unwrap(), "orders");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_whose_host_nobody_knows_hides_nobody() {
    let stage = Stage::set();
    let lost = stage.register("lost", "http://no-such-host.invalid:80").await;
    let get = async || {
        let client = settings().dns_resolver(ServiceResolver::new(stage.backend.clone())).build().unwrap();
        client.get("http://orders/name").send().await
    };
    let error = format!("{:?}", get().await.unwrap_err());
    assert!(error.contains("\\\"orders\\\"") && error.contains("no-such-host.invalid"), "{error}");
    let (a, b) = (Node::start("a").await, Node::start("b").await);
    let by_name = format!("http://localhost:{}", b.address().port());
    let _registered = [lost, stage.join(&a).await, stage.register("b", &by_name).await];
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 2 {
        seen.insert(get().await.unwrap().text().await.unwrap());
    }
}
