//! What the balancer learns of each call.

use discovery_core::Outcome;
use discovery_tonic::Channel;
use tonic::Code;

use crate::stage::{Node, Stage, member, request, settle, until};
use discovery_greeter::GreeterClient;
use discovery_greeter::HelloRequest;

/// Counts of success, failure, cancellation, and what is in flight.
fn counts(channel: &Channel) -> [u64; 4] {
    let a = member(channel, "a");
    let [success, failure, cancelled] = [Outcome::Success, Outcome::Failure, Outcome::Cancelled].map(|o| a.count(o));
    [success, failure, cancelled, u64::from(a.pending())]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_the_outcome_is_reported_once_at_the_end_of_the_response() {
    let stage = Stage::set();
    let mut a = Node::start("a").await;
    let _a = stage.join(&a).await;
    let channel = stage.channel();
    settle(&channel, &["a"]).await;
    let mut client = GreeterClient::new(channel.clone());
    let counting = |name: &str| HelloRequest { name: name.to_owned(), count: 2 };
    assert_eq!(counts(&channel), [1, 0, 0, 0]);

    client.say_hello(request("you")).await.unwrap();
    assert_eq!(counts(&channel), [2, 0, 0, 0]);
    // Trailers-only: what the application means to say, what the instance fails to do, and what was cancelled there.
    for (code, expected) in [(5, [3, 0, 0, 0]), (14, [3, 1, 0, 0]), (1, [3, 1, 1, 0])] {
        let status = client.say_hello(request(&format!("fail:{code}"))).await.unwrap_err();
        assert_eq!((status.code(), counts(&channel)), (Code::from_i32(code), expected));
    }
    // A stream counts when its trailers are read, not before.
    for (name, expected) in [("", [4, 1, 1, 0]), ("fail:13", [4, 2, 1, 0]), ("fail:3", [5, 2, 1, 0])] {
        let mut stream = client.count_hellos(counting(name)).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
        assert_eq!(counts(&channel)[3], 1);
        while let Ok(Some(_)) = stream.message().await {}
        assert_eq!(counts(&channel), expected, "{name}");
        drop(stream);
        assert_eq!(counts(&channel), expected, "{name}, dropped");
    }
    // A stream that is dropped early, and a call that is dropped before its answer.
    let mut stream = client.count_hellos(counting("wait")).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    drop(stream);
    assert_eq!(counts(&channel), [5, 2, 2, 0]);
    let call = tokio::spawn({
        let mut client = client.clone();
        async move { client.say_hello(request("wait")).await.map(drop) }
    });
    until("the call is in flight", || counts(&channel)[3] == 1).await;
    call.abort();
    until("the call is dropped", || counts(&channel) == [5, 2, 3, 0]).await;
    // A connection that breaks under a stream.
    let mut stream = client.count_hellos(counting("wait")).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    stream.message().await.unwrap().unwrap();
    a.kill().await;
    assert_eq!(stream.message().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(counts(&channel), [5, 3, 3, 0]);
}
