//! Which URLs lead where, and under which name.

use discovery_core::Instance;
use discovery_reqwest::{CallError, Called, ServiceHosts, TLS_NAME, WhenEmpty};

use crate::stage::{Node, Stage, Web, counts, dead, hello, members, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_called_by_its_name_with_either_scheme() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let client = stage.client();
    for url in ["http://orders/host?x=1#f", "discovery://orders/host?x=1#f", "http://ORDERS:80/host?x=1#f"] {
        let response = client.get(url).send().await.unwrap();
        assert_eq!(*response.url(), url.parse().unwrap());
        assert_eq!(response.remote_addr(), Some(a.address()));
        let called = response.extensions().get::<Called>().unwrap();
        assert_eq!((called.instance().id(), called.endpoint().port()), ("a", a.address().port()));
        assert_eq!(response.text().await.unwrap(), "orders", "{url}");
    }
    let named = client.get("http://orders/host").header("host", "shop.example").send().await.unwrap();
    assert_eq!(named.text().await.unwrap(), "shop.example");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_else_is_left_alone() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let client = stage.builder().with_hosts(ServiceHosts::named(["shop.internal"])).build().unwrap();
    let (by_address, by_name) =
        (format!("http://{}/host", a.address()), format!("http://localhost:{}/host", a.address().port()));
    for url in [by_address, by_name] {
        let response = client.get(&url).send().await.unwrap();
        assert!(response.extensions().get::<Called>().is_none());
        assert_eq!(format!("http://{}/host", response.text().await.unwrap()), url);
    }
    assert_eq!(client.middleware().held(), (0, 0));
    let instance = Instance::builder("shop.internal").endpoint(&format!("http://{}", a.address())).build().unwrap();
    let _a = stage.backend.register(instance, Default::default()).await.unwrap();
    let response = client.get("http://shop.internal/host").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "shop.internal");
    let refused = client.get("discovery://orders:80/").send().await.unwrap_err();
    assert!(CallError::of(&refused).unwrap().to_string().contains("a service has no port"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_comes_from_the_metadata_and_any_service_can_be_called() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let endpoint = format!("http://{}", a.address());
    let named = Instance::builder("orders").endpoint(&endpoint).metadata(TLS_NAME, "a.orders.example").build().unwrap();
    let odd = Instance::builder("pay/v2 (new)").endpoint(&endpoint).build().unwrap();
    let _named = stage.backend.register(named, Default::default()).await.unwrap();
    let _odd = stage.backend.register(odd, Default::default()).await.unwrap();
    let client = stage.client();
    let response = client.get("http://orders/host").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "a.orders.example");
    let response = client.get("discovery://pay%2Fv2%20(new)/host").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), a.address().to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_without_an_address_of_that_kind_is_not_picked() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _secure = stage.register("secure", "https://127.0.0.1:1").await;
    let _grpc = stage.register("grpc", "grpc://127.0.0.1:1").await;
    let _a = stage.register("a", &format!("tcp://{}", a.address())).await;
    let client = stage.client();
    for _ in 0..10 {
        assert_eq!(hello(&client).await.unwrap(), "a");
    }
    assert_eq!((members(&client).len(), counts(&client, "secure")), (3, [0; 5]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_name_in_the_registry_hides_nobody() {
    let stage = Stage::set();
    let a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let bad = Instance::builder("orders").id("bad").endpoint(&dead()).metadata(TLS_NAME, "10.0.0.1").build().unwrap();
    let _bad = stage.backend.register(bad, Default::default()).await.unwrap();
    let client = stage.client();
    for _ in 0..10 {
        assert_eq!(hello(&client).await.unwrap(), "a");
    }
    assert_eq!(counts(&client, "bad"), [0; 5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_bad_records_hide_nobody_from_those_who_do_not_wait() {
    let stage = Stage::set();
    let good = Node::start("good").await;
    let mut registered = Vec::new();
    for number in 0..20 {
        let bad = Instance::builder("orders").id(format!("bad-{number:02}")).endpoint(&dead());
        let bad = bad.metadata(TLS_NAME, "10.0.0.1").build().unwrap();
        registered.push(stage.backend.register(bad, Default::default()).await.unwrap());
    }
    registered.push(stage.join(&good).await);
    let client = stage.builder().with_when_empty(WhenEmpty::FailFast).build().unwrap();
    let balancer = client.middleware().balancer("http://orders").unwrap().unwrap();
    until("all are known", || balancer.members().len() == 21).await;
    for _ in 0..100 {
        assert_eq!(hello(&client).await.unwrap(), "good");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f08_ipv6_addresses_and_host_names_are_called_as_they_are_registered() {
    let stage = Stage::set();
    let six = Node::start_with("six", "[::1]:0", Web::default()).await;
    let first = stage.register("six", &format!("http://[::1]:{}", six.address().port())).await;
    let client = stage.client();
    let response = client.get("http://orders/host").send().await.unwrap();
    assert_eq!(response.remote_addr(), Some(six.address()));
    assert_eq!(response.text().await.unwrap(), "orders");
    first.deregister().await.unwrap();

    let four = Node::start("four").await;
    let _second = stage.register("four", &format!("http://localhost:{}", four.address().port())).await;
    let client = stage.client();
    let response = client.get("http://orders/host").send().await.unwrap();
    assert_eq!(response.remote_addr(), Some(four.address()));
    assert_eq!(response.text().await.unwrap(), "orders");
}
