//! `table.*`.

use super::{Module, later, now, report};
use crate::proto::methods::{TableExport, TableImport};

pub(super) fn register(module: &mut Module) {
    now::<TableExport, _>(module, |asked, app| Ok(app.driver.export(asked.with_secrets)));
    later::<TableImport, _, _>(module, |asked, app, extensions| async move {
        let report = report(&app, None, asked.op.clone(), &extensions)?;
        app.driver.import_table(asked, report).await
    });
}
