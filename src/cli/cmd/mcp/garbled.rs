//! Answers to lines that are not JSON, which the protocol's makers pass over: who wrote one waits for an answer.

use std::io;
use std::pin::Pin;

use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::mpsc::Receiver;

/// A transport that answers them, too.
pub(super) struct Answering<T> {
    inner: T,
    /// One for each such line.
    garbled: Receiver<()>,
    answer: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send>>>,
}

impl<T: Transport<RoleServer, Error = io::Error>> Answering<T> {
    /// On top of this.
    pub(super) fn new(inner: T, garbled: Receiver<()>) -> Self {
        Self { inner, garbled, answer: None }
    }

    fn begin_answer(&mut self) {
        let error = ErrorData::parse_error("Parse error: this is not JSON", None);
        let error = TxJsonRpcMessage::<RoleServer>::error(error, None);
        self.answer = Some(Box::pin(self.inner.send(error)));
    }

    /// Goes on with the answer that is under way.
    ///
    /// # Cancel safety
    /// The next call goes on.
    async fn answered(&mut self) {
        if let Some(answer) = &mut self.answer {
            // Whoever does not read has gone, and is noticed elsewhere.
            let _ = answer.await;
        }
        self.answer = None;
    }
}

impl<T: Transport<RoleServer, Error = io::Error>> Transport<RoleServer> for Answering<T> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            self.answered().await;
            tokio::select! {
                biased;
                Some(()) = self.garbled.recv() => self.begin_answer(),
                message = self.inner.receive() => match message {
                    // The last lines came in one piece with the end.
                    None if self.garbled.try_recv().is_ok() => self.begin_answer(),
                    message => return message,
                },
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use rmcp::transport::async_rw::AsyncRwTransport;
    use tokio::io::AsyncReadExt;

    use super::super::input::Input;
    use super::*;

    #[tokio::test]
    async fn each_line_that_is_no_json_is_answered_and_the_others_come_through() {
        let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        let lines = format!("nonsense\n{ping}\n\n  \n{{\"jsonrpc\":\n\"\u{fffd}\n");
        let (input, _over, garbled) = Input::new(lines.as_bytes());
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        let mut transport = Answering::new(AsyncRwTransport::new_server(input, ours), garbled);
        let message = transport.receive().await.expect("a message");
        assert!(matches!(message, RxJsonRpcMessage::<RoleServer>::Request(_)), "{message:?}");
        assert!(transport.receive().await.is_none());
        drop(transport);
        let mut said = String::new();
        theirs.read_to_string(&mut said).await.expect("text");
        let codes: Vec<i64> = said
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).expect("JSON")["error"]["code"].clone()
            })
            .map(|code| code.as_i64().expect("a code"))
            .collect();
        assert_eq!(codes, [-32700; 3], "{said}");
    }
}
