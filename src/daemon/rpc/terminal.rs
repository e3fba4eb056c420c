//! `terminal.*`.

use std::sync::Arc;

use futures_util::FutureExt;

use super::{App, Extensions, Module, at_once, later, reserve, unsubscribe};
use crate::daemon::clock;
use crate::daemon::exec::{TerminalOf, no_terminal};
use crate::daemon::failure::Failure;
use crate::daemon::framing::Audience;
use crate::daemon::stream::notify::{self, Seat, Seats, Typed};
use crate::daemon::text;
use crate::guest::wire::Screen;
use crate::model::id::Timestamp;
use crate::model::session::Session;
use crate::proto::errors::Kind;
use crate::proto::methods::{
    Done, TerminalClose, TerminalList, TerminalOpen, TerminalPeek, TerminalResize, TerminalUnsubscribe,
    TerminalWrite,
};
use crate::proto::stream::Size;
use crate::proto::terminals::{
    Cursor, MAX_WRITE_BYTES, TerminalInfo, TerminalOpenParams, TerminalOpened, TerminalScreen,
    TerminalWriteParams,
};

pub(super) fn register(module: &mut Module) {
    later::<TerminalList, _, _>(module, |asked, app, _| async move {
        let found = app.driver.terminals(asked.session.as_deref()).await?;
        Ok(found.into_iter().map(info).collect::<Vec<_>>())
    });
    later::<TerminalPeek, _, _>(module, |asked, app, _| async move {
        Ok(screen(app.driver.peek(&asked.session, &asked.terminal, asked.scrollback).await?))
    });
    later::<TerminalClose, _, _>(module, |asked, app, _| async move {
        app.driver.close_terminal(&asked.session, &asked.terminal).await?;
        Ok(Done { done: true })
    });
    later::<TerminalOpen, _, _>(module, |asked, app, extensions| async move {
        open(asked, &app, &extensions).await
    });
    at_once::<TerminalUnsubscribe, _>(module, |asked, _, extensions| {
        Ok(unsubscribe(extensions, asked.subscription))
    });
    later::<TerminalWrite, _, _>(module, |asked, app, extensions| async move {
        write(asked, &app, &extensions).await
    });
    later::<TerminalResize, _, _>(module, |asked, app, extensions| async move {
        let session = app.driver.runnable(&asked.session)?;
        match seat(&extensions, &session, &asked.terminal) {
            Some(seat) => seat.resize(asked.size).await,
            None => app.driver.resize_terminal(&session, &asked.terminal, asked.size).await?,
        }
        Ok(Done { done: true })
    });
}

async fn open(
    asked: TerminalOpenParams,
    app: &App,
    extensions: &Extensions,
) -> Result<TerminalOpened, Failure> {
    let place = reserve(extensions, "terminal.peek and terminal.write serve without them")?;
    let seats = extensions.get::<Arc<Seats>>().cloned().unwrap_or_default();
    let opened = notify::open(&app.driver, &app.shutdown, place, &seats, asked).await?;
    let nobody =
        extensions.get::<Audience>().is_some_and(|audience| audience.left().now_or_never().is_some());
    if nobody {
        // Who cancelled the request never hears of its subscription.
        unsubscribe(extensions, opened.subscription);
    }
    Ok(opened)
}

async fn write(asked: TerminalWriteParams, app: &App, extensions: &Extensions) -> Result<Done, Failure> {
    let keys = text::decode(asked.encoding, asked.data).map_err(|_| Failure::field("data", "base64"))?;
    if keys.len() > MAX_WRITE_BYTES {
        let text = format!("one call types at most {MAX_WRITE_BYTES} bytes");
        return Err(Failure::new(Kind::Limit, text));
    }
    let session = app.driver.runnable(&asked.session)?;
    let typed = match seat(extensions, &session, &asked.terminal) {
        Some(seat) => seat.write(&keys).await?,
        None => Typed::Left,
    };
    match typed {
        Typed::Taken => {}
        Typed::Ended => return Err(no_terminal(&session, &asked.terminal)),
        Typed::Left => app.driver.type_into(&session, &asked.terminal, &keys).await?,
    }
    Ok(Done { done: true })
}

/// The connection's own place at a terminal.
fn seat(extensions: &Extensions, session: &Session, terminal: &str) -> Option<Arc<Seat>> {
    extensions.get::<Arc<Seats>>()?.at(&session.id, terminal)
}

fn info(found: TerminalOf) -> TerminalInfo {
    let TerminalOf { session, cmd, entry } = found;
    let started = i64::try_from(entry.started_ms).map(Timestamp).unwrap_or_default();
    TerminalInfo {
        session: session.name.to_string(),
        terminal: entry.terminal,
        exec: entry.id,
        cmd,
        size: entry.size.map(|size| Size { cols: size.cols, rows: size.rows }),
        clients: entry.followers,
        started_at: clock::rfc3339(started),
    }
}

fn screen(screen: Screen) -> TerminalScreen {
    TerminalScreen {
        lines: screen.lines,
        scrollback: screen.scrollback,
        size: Size { cols: screen.size.cols, rows: screen.size.rows },
        cursor: Cursor { column: screen.column, row: screen.row, visible: screen.cursor_visible },
        alternate: screen.alternate,
        title: screen.title,
    }
}
