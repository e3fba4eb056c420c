//! WebSocket.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::support::{Daemon, Home, LIMIT};

async fn connect(daemon: &Daemon) -> WebSocketStream<UnixStream> {
    let stream = UnixStream::connect(daemon.socket()).await.expect("somebody listens");
    client_async("ws://localhost/", stream).await.expect("accepted").0
}

async fn next(socket: &mut WebSocketStream<UnixStream>) -> Option<Result<Message, Error>> {
    tokio::time::timeout(LIMIT, socket.next()).await.expect("something in time")
}

async fn answer(socket: &mut WebSocketStream<UnixStream>) -> Value {
    let message = next(socket).await.expect("open").expect("a message");
    serde_json::from_str(message.to_text().expect("text")).expect("JSON")
}

fn request(id: u32, method: &str, params: &Value) -> Message {
    Message::text(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())
}

#[tokio::test]
async fn texts_bytes_fragments_and_pings_are_answered() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = connect(&daemon).await;
    socket.send(request(1, "debug.echo", &json!({}))).await.expect("sent");
    assert_eq!(answer(&mut socket).await["id"], 1);
    socket.send(Message::binary(r#"{"jsonrpc":"2.0","id":2,"method":"debug.echo"}"#)).await.expect("sent");
    assert_eq!(answer(&mut socket).await["id"], 2);
    for (part, kind, last) in [
        ("{\"jsonrpc\":\"2.0\",", Data::Text, false),
        ("\"id\":3,\"method\":", Data::Continue, false),
        ("\"debug.echo\"}", Data::Continue, true),
    ] {
        let frame = Frame::message(part, OpCode::Data(kind), last);
        socket.send(Message::Frame(frame)).await.expect("sent");
        if !last {
            socket.send(Message::Ping("between".into())).await.expect("sent");
            assert_eq!(
                next(&mut socket).await.expect("open").expect("pong"),
                Message::Pong("between".into())
            );
        }
    }
    assert_eq!(answer(&mut socket).await["id"], 3);
    socket.send(Message::text("[]")).await.expect("sent");
    assert_eq!(answer(&mut socket).await["error"]["code"], -32600);
    socket.close(None).await.expect("sent");
    assert!(matches!(next(&mut socket).await, Some(Ok(Message::Close(_)))));
    assert!(next(&mut socket).await.is_none());
}

#[tokio::test]
async fn calls_run_side_by_side_can_be_cancelled_and_notify() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let gate = home.dir().join("gate");
    let mut socket = connect(&daemon).await;
    for id in [1, 2] {
        socket.send(request(id, "debug.wait", &json!({"file": gate}))).await.expect("sent");
    }
    socket.send(request(3, "debug.notify", &json!({"method": "event", "count": 1}))).await.expect("sent");
    let (first, second) = (answer(&mut socket).await, answer(&mut socket).await);
    assert!([&first, &second].iter().any(|message| message["method"] == "event"));
    assert!([&first, &second].iter().any(|message| message["result"] == 1));
    let cancel = r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}"#;
    socket.send(Message::text(cancel)).await.expect("sent");
    let cancelled = answer(&mut socket).await;
    assert_eq!((&cancelled["id"], &cancelled["error"]["code"]), (&json!(1), &json!(-32800)));
    std::fs::write(&gate, "").expect("write");
    assert_eq!(answer(&mut socket).await["id"], 2);
}

#[tokio::test]
async fn a_message_that_is_too_long_gets_an_error_and_a_close_with_the_reason() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let part = "x".repeat(5 * 1024 * 1024);
    let whole = vec![Message::text("x".repeat(20 * 1024 * 1024))];
    let parts = vec![
        Message::Frame(Frame::message(part.clone(), OpCode::Data(Data::Text), false)),
        Message::Frame(Frame::message(part.clone(), OpCode::Data(Data::Continue), false)),
        Message::Frame(Frame::message(part, OpCode::Data(Data::Continue), true)),
    ];
    for messages in [whole, parts] {
        let mut socket = connect(&daemon).await;
        for message in messages {
            socket.send(message).await.expect("the daemon reads on");
        }
        let error = answer(&mut socket).await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&Value::Null, &json!(-32600)));
        let Some(Ok(Message::Close(Some(close)))) = next(&mut socket).await else { panic!("no close") };
        assert_eq!(u16::from(close.code), 1009);
    }
}

#[tokio::test]
async fn a_client_may_send_many_requests_before_it_reads_an_answer() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let mut socket = connect(&daemon).await;
    let text = "some text of a usual length";
    for id in 0..5_000 {
        socket.feed(request(id, "debug.echo", &json!({"text": text}))).await.expect("sent");
    }
    socket.flush().await.expect("the daemon reads on");
    for id in 0..5_000 {
        assert_eq!(answer(&mut socket).await["id"], id);
    }
}

#[tokio::test]
async fn a_stop_answers_what_is_under_way_and_says_that_it_goes_away() {
    let home = Home::new();
    let mut daemon = Daemon::start(&home);
    let gate = home.dir().join("gate");
    let mut socket = connect(&daemon).await;
    socket.send(request(1, "debug.wait", &json!({"file": gate}))).await.expect("sent");
    socket.send(request(2, "daemon.shutdown", &json!({}))).await.expect("sent");
    assert_eq!(answer(&mut socket).await["id"], 2);
    socket.send(request(3, "debug.echo", &json!({}))).await.expect("sent");
    assert_eq!(answer(&mut socket).await["error"]["data"]["kind"], "shutting_down");
    std::fs::write(&gate, "").expect("write");
    assert_eq!(answer(&mut socket).await["result"], true);
    let Some(Ok(Message::Close(Some(close)))) = next(&mut socket).await else { panic!("no close") };
    assert_eq!(u16::from(close.code), 1001);
    drop(socket);
    assert!(daemon.wait().success());
}

#[test]
fn a_handshake_that_is_wrong_is_refused_with_the_reason() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (headers, want) in [
        (format!("{key}Sec-WebSocket-Version: 8\r\n\r\n"), "426"),
        ("Sec-WebSocket-Version: 13\r\n\r\n".to_owned(), "400"),
        (format!("{key}Sec-WebSocket-Version: 13\r\nOrigin: http://evil.example\r\n\r\n"), "403"),
        (format!("{key}Sec-WebSocket-Version: 13\r\n\r\n"), "101"),
    ] {
        let mut socket = daemon.connect();
        let answer = socket.send(format!("{upgrade}{headers}")).up_to("\r\n\r\n");
        assert_eq!(answer.split(' ').nth(1), Some(want), "{headers}");
    }
}
