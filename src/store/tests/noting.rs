//! A way for SQLite to reach the file system that notes what is written and synced, in its order.
//!
//! It stands before the system's own and passes everything on. From its notes follow the files as a loss of power at any
//! instant may leave them.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rusqlite::ffi::{self, SQLITE_OK, sqlite3_file, sqlite3_io_methods, sqlite3_vfs};

/// Its name, for the options of a store.
const NAME: &CStr = c"abx-noting";

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// What was done to a file.
#[derive(Debug, Clone)]
pub(crate) enum Done {
    /// These bytes were written at this place.
    Write(usize, Vec<u8>),
    /// The file was cut to this length.
    Cut(usize),
    /// Everything before is safe.
    Sync,
}

/// All that was done to files since the program began.
static NOTES: Mutex<Vec<(PathBuf, Done)>> = Mutex::new(Vec::new());

fn notes() -> MutexGuard<'static, Vec<(PathBuf, Done)>> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes it known to SQLite, and gives its name.
pub(crate) fn register() -> &'static str {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        #[expect(unsafe_code, reason = "SQLite knows no other way to look at what it writes")]
        // SAFETY: the system's own is never taken away, and ours is leaked: both are there for as long as the program. Ours
        // differs in the size of its files, which have room for what `open` puts before the system's, and in `open`.
        unsafe {
            let own = ffi::sqlite3_vfs_find(ptr::null());
            assert!(!own.is_null(), "SQLite has a way to the file system");
            let noting = sqlite3_vfs {
                szOsFile: (*own).szOsFile + c_int::try_from(size_of::<Noted>()).expect("small"),
                pNext: ptr::null_mut(),
                zName: NAME.as_ptr(),
                pAppData: own.cast(),
                xOpen: Some(open),
                ..*own
            };
            assert_eq!(ffi::sqlite3_vfs_register(Box::leak(Box::new(noting)), 0), SQLITE_OK);
        }
    });
    NAME.to_str().expect("ASCII")
}

/// How much was noted until now.
pub(crate) fn position() -> usize {
    notes().len()
}

/// What was done to files below a directory from one position on.
pub(crate) fn since(position: usize, dir: &Path) -> Vec<(PathBuf, Done)> {
    notes()[position..].iter().filter(|(path, _)| path.starts_with(dir)).cloned().collect()
}

/// The files that have something in them that is not synced, after these notes.
pub(crate) fn unsynced(notes: &[(PathBuf, Done)]) -> Vec<&Path> {
    let mut dirty: BTreeMap<&Path, bool> = BTreeMap::new();
    for (path, done) in notes {
        dirty.insert(path, !matches!(done, Done::Sync));
    }
    dirty.into_iter().filter(|(_, dirty)| *dirty).map(|(path, _)| path).collect()
}

/// The contents of files, and what was done to each since it was last synced.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk(BTreeMap<PathBuf, (Vec<u8>, Vec<Done>)>);

impl Disk {
    /// Files as they are, all safe.
    pub(crate) fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let read = |path: PathBuf| {
            let bytes = std::fs::read(&path).expect("a file");
            (path, (bytes, Vec::new()))
        };
        Self(paths.into_iter().map(read).collect())
    }

    /// Takes the next note.
    pub(crate) fn note(&mut self, path: &Path, done: &Done) {
        let (safe, loose) = self.0.entry(path.to_owned()).or_default();
        match done {
            Done::Sync => loose.drain(..).for_each(|done| apply(safe, &done, usize::MAX)),
            other => loose.push(other.clone()),
        }
    }

    /// The files as a loss of power leaves them. Of what is not synced `choose` says how much of each came through: given
    /// the sectors that it is of, how many of them did.
    pub(crate) fn after_loss(&self, mut choose: impl FnMut(usize) -> usize) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for (path, (safe, loose)) in &self.0 {
            let mut bytes = safe.clone();
            for done in loose {
                let sectors = match done {
                    Done::Write(_, written) => written.len().div_ceil(SECTOR),
                    Done::Cut(_) | Done::Sync => 1,
                };
                apply(&mut bytes, done, choose(sectors) * SECTOR);
            }
            files.insert(path.clone(), bytes);
        }
        files
    }
}

/// Does to a file what was done, as far as this many bytes of it.
fn apply(file: &mut Vec<u8>, done: &Done, most: usize) {
    match done {
        Done::Write(at, bytes) => {
            let bytes = &bytes[..bytes.len().min(most)];
            if bytes.is_empty() {
                return;
            }
            file.resize(file.len().max(at + bytes.len()), 0);
            file[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        Done::Cut(length) if most > 0 => file.truncate(*length),
        Done::Cut(_) | Done::Sync => {}
    }
}

/// What stands before the system's own file.
#[repr(C)]
struct Noted {
    base: sqlite3_file,
    /// Owned, from a box; null for a file that has no name.
    path: *mut PathBuf,
}

#[expect(unsafe_code, reason = "called by SQLite")]
unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: `vfs` is ours, whose data is the system's own. `file` has room for both (see `register`), and SQLite calls
    // nothing on it whose methods are null.
    unsafe {
        let own: *mut sqlite3_vfs = (*vfs).pAppData.cast();
        let code = (*own).xOpen.expect("it opens files")(own, name, behind(file), flags, out);
        let noted: *mut Noted = file.cast();
        (*noted).path = ptr::null_mut();
        (*noted).base.pMethods = ptr::null();
        if !(*behind(file)).pMethods.is_null() {
            (*noted).base.pMethods = &raw const METHODS;
            if !name.is_null() {
                let path = PathBuf::from(CStr::from_ptr(name).to_string_lossy().into_owned());
                (*noted).path = Box::into_raw(Box::new(path));
            }
        }
        code
    }
}

/// The system's own file behind one of ours.
#[expect(unsafe_code, reason = "the two lie one behind the other")]
unsafe fn behind(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: a file that SQLite made for us has room for both.
    unsafe { file.cast::<Noted>().add(1).cast() }
}

#[expect(unsafe_code, reason = "reads what `open` wrote")]
unsafe fn note(file: *mut sqlite3_file, done: Done) {
    // SAFETY: `open` has filled it in, and it lives until `close`.
    let path = unsafe { (*file.cast::<Noted>()).path.as_ref() };
    if let Some(path) = path {
        notes().push((path.clone(), done));
    }
}

/// Functions that pass a call on, and note it first where that is said.
macro_rules! passed {
    ($($name:ident = $method:ident($($arg:ident: $kind:ty),*) -> $result:ty $(, noted as $done:expr)?;)*) => {$(
        #[expect(unsafe_code, reason = "called by SQLite")]
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($arg: $kind),*) -> $result {
            // SAFETY: `file` was opened by `open`, and the system's own behind it too; the arguments are what SQLite says
            // of them.
            unsafe {
                $(note(file, $done);)?
                let own = behind(file);
                (*(*own).pMethods).$method.expect("every file has it")(own, $($arg),*)
            }
        }
    )*};
}

passed! {
    read = xRead(to: *mut c_void, count: c_int, at: i64) -> c_int;
    write = xWrite(from: *const c_void, count: c_int, at: i64) -> c_int, noted as Done::Write(
        usize::try_from(at).expect("a place"),
        std::slice::from_raw_parts(from.cast(), usize::try_from(count).expect("a length")).to_vec(),
    );
    truncate = xTruncate(length: i64) -> c_int, noted as Done::Cut(usize::try_from(length).expect("a length"));
    size = xFileSize(to: *mut i64) -> c_int;
    lock = xLock(level: c_int) -> c_int;
    unlock = xUnlock(level: c_int) -> c_int;
    is_reserved = xCheckReservedLock(to: *mut c_int) -> c_int;
    control = xFileControl(what: c_int, with: *mut c_void) -> c_int;
    sector = xSectorSize() -> c_int;
    traits = xDeviceCharacteristics() -> c_int;
    shm_map = xShmMap(page: c_int, size: c_int, extend: c_int, to: *mut *mut c_void) -> c_int;
    shm_lock = xShmLock(offset: c_int, count: c_int, flags: c_int) -> c_int;
    shm_barrier = xShmBarrier() -> ();
    shm_unmap = xShmUnmap(delete: c_int) -> c_int;
}

#[expect(unsafe_code, reason = "called by SQLite")]
unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: as of those above.
    unsafe {
        let own = behind(file);
        let code = (*(*own).pMethods).xSync.expect("every file has it")(own, flags);
        // Only afterwards is it safe.
        if code == SQLITE_OK {
            note(file, Done::Sync);
        }
        code
    }
}

#[expect(unsafe_code, reason = "called by SQLite")]
unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: as of those above; nothing is called on a file after this.
    unsafe {
        let own = behind(file);
        let code = (*(*own).pMethods).xClose.expect("every file has it")(own);
        let noted: *mut Noted = file.cast();
        if !(*noted).path.is_null() {
            drop(Box::from_raw((*noted).path));
            (*noted).path = ptr::null_mut();
        }
        code
    }
}

/// Version 2 has shared memory, and not the mapping of files, past which nothing would be noted.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(is_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector),
    xDeviceCharacteristics: Some(traits),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
