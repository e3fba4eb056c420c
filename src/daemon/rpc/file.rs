//! `file.*`.

use super::{Module, later};
use crate::daemon::awake::Use;
use crate::daemon::failure::Failure;
use crate::daemon::files::{NewFile, Part};
use crate::daemon::progress::Report;
use crate::daemon::text;
use crate::proto::files::{FileContent, FileWriteResult, MAX_READ_BYTES};
use crate::proto::methods::{FileList, FileRead, FileWrite};

/// Where commands run: what is listed if no path is named.
const HERE: &str = ".";

pub(super) fn register(module: &mut Module) {
    later::<FileRead, _, _>(module, |asked, app, _| async move {
        let (offset, limit) = (asked.offset.unwrap_or(0), asked.limit.unwrap_or(MAX_READ_BYTES));
        let wanted = wanted(asked.session, asked.resume);
        Ok(content(app.driver.read_file(wanted, &asked.path, offset, limit).await?))
    });
    later::<FileWrite, _, _>(module, |asked, app, _| async move {
        let bytes =
            text::decode(asked.encoding, asked.content).map_err(|_| Failure::field("content", "base64"))?;
        let file = NewFile { path: asked.path, bytes, mode: asked.mode, create_dirs: asked.create_dirs };
        let wanted = wanted(asked.session, asked.resume);
        let (path, size_bytes) = app.driver.write_file(wanted, file).await?;
        Ok(FileWriteResult { path, size_bytes })
    });
    later::<FileList, _, _>(module, |asked, app, _| async move {
        let wanted = wanted(asked.session, asked.resume);
        app.driver.list_files(wanted, asked.path.as_deref().unwrap_or(HERE)).await
    });
}

fn wanted(session: String, resume: Option<bool>) -> Use {
    Use { session, resume, report: Report::default() }
}

fn content(part: Part) -> FileContent {
    let Part { mut bytes, size_bytes, truncated } = part;
    if truncated {
        text::drop_cut_character(&mut bytes);
    }
    let (encoding, [content]) = text::encode([bytes]);
    FileContent { content, encoding, size_bytes, truncated }
}
