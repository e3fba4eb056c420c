//! `store.*`.

use super::{Module, later, now};
use crate::proto::methods::{StoreDelete, StoreListAll, StoreLoad, StoreSave};
use crate::proto::types::StoreDeleteResult;

pub(super) fn register(module: &mut Module) {
    later::<StoreSave, _, _>(module, |row, app, _| async move { app.driver.store_save(row).await });
    now::<StoreLoad, _>(module, |asked, app| Ok(app.driver.store_load(&asked)));
    now::<StoreListAll, _>(module, |asked, app| Ok(app.driver.store_list(&asked)));
    later::<StoreDelete, _, _>(module, |asked, app, _| async move {
        Ok(StoreDeleteResult { deleted: app.driver.store_delete(&asked).await? })
    });
}
