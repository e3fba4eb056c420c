//! Connections whose clients hold up the daemon: each ends, and none holds up another.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use jsonrpsee::RpcModule;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::calls::Work;
use super::dispatch::{Connection, Dispatcher};
use super::json::JsonTexts;
use super::memory::{Memory, SHORT_BYTES, Share, TIGHT_BYTES};
use super::replay::Replay;
use super::*;
use crate::daemon::shutdown::Shutdown;
use crate::daemon::subscriptions::{Answered, Subscriptions};

/// More than a socket takes several times.
const ANSWER_BYTES: usize = 2 * 1024 * 1024;

/// Connections of a daemon that holds so much, whose only methods have a short and a long answer.
fn connects(memory: &Arc<Memory>) -> impl Fn(Framing, Notifier) -> Connection + use<> {
    let mut methods = RpcModule::new(());
    methods.register_method("one", |_, (), _| 1).expect("one method");
    methods.register_method("fill", |_, (), _| "x".repeat(ANSWER_BYTES)).expect("another");
    let (methods, shutdown, work) = (methods.into(), Shutdown::new(), Arc::new(Work::new()));
    let dispatcher = Arc::new(Dispatcher { methods, shutdown, work, memory: Arc::clone(memory) });
    move |framing, notifier| {
        let peer = Peer { uid: 0, gid: 0, pid: None, connection: 1, framing };
        Connection::new(Arc::clone(&dispatcher), peer, notifier, false)
    }
}

/// Serves JSON texts; gives the client's side.
fn speaks_json(memory: &Arc<Memory>) -> UnixStream {
    let (client, server) = UnixStream::pair().expect("a pair");
    let connect = connects(memory);
    tokio::spawn(async move {
        let (notifier, notifications) = Notifier::new();
        let connection = connect(Framing::Json, notifier);
        let (_closes, closing) = Closing::new();
        stream::serve(server, BytesMut::new(), JsonTexts::new(), &connection, notifications, &closing).await
    });
    client
}

#[tokio::test]
async fn nothing_of_a_subscription_is_queued_once_it_was_ended() {
    let (notifier, mut queued) = Notifier::new();
    let all = Subscriptions::default();
    let place = all.reserve(&notifier, Answered::default()).expect("the first");
    let (told, sent) = oneshot::channel();
    let id = place.begin(|begun| async move {
        let mut sent = 0;
        while begun.voice.send("news", &sent).await {
            sent += 1;
        }
        told.send(sent).expect("somebody waits");
    });
    // The next waits for room.
    while queued.len() < MAX_NOTIFICATIONS {
        yield_now().await;
    }
    all.end(id);
    for _ in 0..MAX_NOTIFICATIONS {
        queued.recv().await.expect("queued before the end");
    }
    assert_eq!(sent.await, Ok(MAX_NOTIFICATIONS));
    assert!(queued.is_empty());
}

fn batch(method: &str, entries: usize) -> String {
    let entry = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
    format!("[{}]", vec![entry; entries].join(","))
}

/// The first half of a message.
fn half(bytes: usize) -> Vec<u8> {
    [b"{\"jsonrpc\":\"".as_slice(), &vec![b'x'; bytes]].concat()
}

async fn rest(client: &mut UnixStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).await.expect("text until the end");
    text
}

#[tokio::test(start_paused = true)]
async fn a_long_message_whose_rest_does_not_come_ends_its_connection_and_a_short_one_takes_its_time() {
    let memory = Arc::default();
    let mut client = speaks_json(&memory);
    client.write_all(&half(2 * SHORT_BYTES)).await.expect("sent");
    assert!(rest(&mut client).await.contains("the rest of a message did not come"));
    let mut client = speaks_json(&memory);
    client.write_all(br#"{"jsonrpc":"2.0","id":1,"#).await.expect("sent");
    sleep(10 * STALL).await;
    client.write_all(br#""method":"one"}"#).await.expect("sent");
    client.shutdown().await.expect("ended");
    assert_eq!(rest(&mut client).await.trim_end(), r#"{"jsonrpc":"2.0","id":1,"result":1}"#);
    assert_eq!(memory.held(), 0, "all is given back");
}

#[tokio::test]
async fn where_much_is_held_for_others_nothing_long_is_begun_and_short_calls_are_served() {
    let memory = Arc::default();
    let _others = Share::new(&memory, TIGHT_BYTES);
    let mut client = speaks_json(&memory);
    client.write_all(&half(2 * SHORT_BYTES)).await.expect("sent");
    assert!(rest(&mut client).await.contains(r#""kind":"limit""#));
    let mut client = speaks_json(&memory);
    client.write_all(batch("one", 3).as_bytes()).await.expect("sent");
    client.write_all(br#"{"jsonrpc":"2.0","id":2,"method":"one"}"#).await.expect("sent");
    client.shutdown().await.expect("ended");
    let text = rest(&mut client).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].matches(r#""kind":"limit""#).count(), 3, "{text}");
    assert_eq!(lines[1], r#"{"jsonrpc":"2.0","id":2,"result":1}"#);
}

#[tokio::test]
async fn clients_that_read_nothing_hold_a_bounded_amount_together() {
    let memory = Arc::default();
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = speaks_json(&memory);
        client.write_all(batch("fill", 31).as_bytes()).await.expect("sent");
        clients.push(client);
    }
    // Whoever reads is told what was left out.
    let mut line = String::new();
    BufReader::new(clients.pop().expect("some")).read_line(&mut line).await.expect("an answer");
    assert!(line.contains(r#""kind":"limit""#), "all of it came: {}", line.len());
    assert!(memory.held() < TIGHT_BYTES + 8 * 2 * ANSWER_BYTES, "{}", memory.held());
}

#[tokio::test]
async fn others_have_their_turns_while_a_batch_is_started() {
    let memory = Arc::default();
    let connection = connects(&memory)(Framing::Json, Notifier::none());
    let (text, done) = (batch("fill", 20), AtomicBool::new(false));
    let starts = async {
        connection.start(text.as_bytes()).await;
        done.store(true, Ordering::Relaxed);
    };
    let turns = async {
        let mut turns = 0;
        while !done.load(Ordering::Relaxed) {
            turns += 1;
            tokio::task::yield_now().await;
        }
        turns
    };
    let ((), turns) = tokio::join!(starts, turns);
    assert!(turns >= 10, "{turns}");
}

#[tokio::test(start_paused = true)]
async fn a_client_of_http_that_reads_nothing_is_given_up() {
    let (mut client, server) = UnixStream::pair().expect("a pair");
    let connect = connects(&Arc::default());
    let served = tokio::spawn(async move {
        let (_closes, closing) = Closing::new();
        http::serve(Replay::new(Bytes::new(), server), connect, &closing).await
    });
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"fill"}"#;
    let request = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    client.write_all(request.as_bytes()).await.expect("sent");
    let error = served.await.expect("no panic").expect_err("nobody reads");
    let cause = std::iter::successors(Some(&*error as &(dyn std::error::Error + 'static)), |e| e.source());
    let io = cause.filter_map(|error| error.downcast_ref::<io::Error>()).next().expect("the system's");
    assert_eq!(io.kind(), io::ErrorKind::TimedOut);
}
