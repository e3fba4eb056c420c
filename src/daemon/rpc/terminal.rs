//! `terminal.*`.

use super::{Module, later};
use crate::daemon::clock;
use crate::daemon::exec::TerminalOf;
use crate::guest::wire::Screen;
use crate::model::id::Timestamp;
use crate::proto::execs::{Cursor, TerminalInfo, TerminalScreen};
use crate::proto::methods::{Done, TerminalClose, TerminalList, TerminalPeek};
use crate::proto::stream::Size;

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
