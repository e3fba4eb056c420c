//! `file.*`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Module, later};
use crate::daemon::failure::Failure;
use crate::daemon::files::{NewFile, Part};
use crate::proto::files::{Encoding, FileContent, FileWriteResult, MAX_READ_BYTES};
use crate::proto::methods::{FileList, FileRead, FileWrite};

/// Where commands run: what is listed if no path is named.
const HERE: &str = ".";

pub(super) fn register(module: &mut Module) {
    later::<FileRead, _, _>(module, |asked, app, _| async move {
        let (offset, limit) = (asked.offset.unwrap_or(0), asked.limit.unwrap_or(MAX_READ_BYTES));
        Ok(content(app.driver.read_file(&asked.session, &asked.path, offset, limit).await?))
    });
    later::<FileWrite, _, _>(module, |asked, app, _| async move {
        let bytes = match asked.encoding {
            Encoding::Utf8 => asked.content.into_bytes(),
            Encoding::Base64 => STANDARD
                .decode(asked.content)
                .map_err(|error| Failure::params(format!("content is not base64: {error}")))?,
        };
        let file = NewFile { path: asked.path, bytes, mode: asked.mode, create_dirs: asked.create_dirs };
        let (path, size_bytes) = app.driver.write_file(&asked.session, file).await?;
        Ok(FileWriteResult { path, size_bytes })
    });
    later::<FileList, _, _>(module, |asked, app, _| async move {
        app.driver.list_files(&asked.session, asked.path.as_deref().unwrap_or(HERE)).await
    });
}

fn content(part: Part) -> FileContent {
    let Part { mut bytes, size_bytes, truncated } = part;
    if let Err(error) = std::str::from_utf8(&bytes)
        && truncated
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        bytes.truncate(error.valid_up_to());
    }
    let (encoding, content) = match String::from_utf8(bytes) {
        Ok(text) => (Encoding::Utf8, text),
        Err(error) => (Encoding::Base64, STANDARD.encode(error.as_bytes())),
    };
    FileContent { content, encoding, size_bytes, truncated }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: &[u8], truncated: bool) -> (Encoding, String) {
        let got = content(Part { bytes: bytes.to_vec(), size_bytes: 9, truncated });
        (got.encoding, got.content)
    }

    #[test]
    fn a_part_is_text_where_it_can_be_and_no_character_is_cut() {
        assert_eq!(told("aé".as_bytes(), false), (Encoding::Utf8, "aé".to_owned()));
        assert_eq!(told(b"a\xc3", true), (Encoding::Utf8, "a".to_owned()));
        assert_eq!(told(b"a\xc3", false), (Encoding::Base64, "YcM=".to_owned()));
        // Nothing would be left: then it is told byte by byte, or a reader would never get on.
        assert_eq!(told(b"\xc3", true), (Encoding::Base64, "ww==".to_owned()));
        assert_eq!(told(b"\xff\x00", true), (Encoding::Base64, "/wA=".to_owned()));
    }
}
