//! An engine that works at something long, played by a test.

use std::future::pending;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::*;

/// Answers one request, if it is one that this engine answers.
async fn serve(mut client: UnixStream, pings: bool) {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        // A client that is gone asks nothing more.
        if client.read_buf(&mut text).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let text = String::from_utf8_lossy(&text);
    let body = if text.contains("/version") { r#"{"ApiVersion":"1.41","Version":"1"}"# } else { "OK" };
    if !text.contains("/version") && !pings {
        pending::<()>().await;
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length:";
    let answer = format!("{head} {}\r\n\r\n{body}", body.len());
    client.write_all(answer.as_bytes()).await.expect("it reads");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_leaves_a_ping_without_an_answer_is_not_waited_for_and_one_that_works_is() {
    for pings in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, pings));
            }
        });
        let address = Some((format!("unix://{}", socket.display()), "a test".to_owned()));
        let link = Link::new(Settings { address, ..Settings::default() });
        let begun = Instant::now();
        let work = link.call_alive("commit", IMAGE, About::Nothing, |_| pending::<Result<(), api::Error>>());
        let refused = work.await.expect_err("it never ends");
        assert!(matches!(refused, EngineError::Timeout { call: "commit", .. }), "{refused:?}");
        assert_eq!(begun.elapsed() >= IMAGE, pings, "{:?}", begun.elapsed());
    }
}
