//! Tar streams where the crate `tar` does not do: every stream that is read is read through [`archive`].
//!
//! The crate ends a PAX record at a newline, where its length ends it: a name with a newline is lost, and a part of a
//! value is taken for a record. So it sees none of these records. What they say of an entry is put into words that it
//! reads right: names as GNU's long names, numbers in the entry's own header, all else in one record without newlines.

use std::io::{self, Cursor, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tar::{Archive, Entry, EntryType, GnuExtSparseHeader, Header};

/// Size of a header, and what everything is filled up to.
const BLOCK_BYTES: usize = 512;

/// Most bytes of records or of a long name before one entry, as Go's reader has it. More is refused: it is held in memory.
const MAX_EXTENSION_BYTES: u64 = 1024 * 1024;

/// The name under which GNU tar writes a name that does not fit.
const LONG_NAME: &[u8] = b"././@LongLink";

/// Where names stand in a header, and how long one may be there, in bytes.
const PATH_AT: usize = 0;
const LINK_AT: usize = 157;
const NAME_BYTES: usize = 100;

/// The one record that is left to the crate. It holds the others in base64.
const OTHERS: &str = "abx.records";

/// A record of an entry.
struct Record<'r> {
    key: &'r [u8],
    value: &'r [u8],
    /// All of it, its length included.
    whole: &'r [u8],
}

/// The archive in a stream.
pub fn archive<R: Read>(from: R) -> Archive<Plain<R>> {
    let ready = Cursor::new(Vec::new());
    #[expect(clippy::disallowed_methods, reason = "the one place that it is kept for")]
    Archive::new(Plain { from, ready, map: false, data: 0, numbers: None })
}

/// What the PAX records of an entry say beyond its names and numbers. A key that is no text is left out.
///
/// # Errors
/// When it is not an entry of [`archive`].
pub fn extensions<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    for record in entry.pax_extensions()?.into_iter().flatten() {
        let record = record?;
        if record.key_bytes() != OTHERS.as_bytes() {
            continue;
        }
        let bytes = STANDARD.decode(record.value_bytes()).map_err(|_| damaged("records are garbled"))?;
        for Record { key, value, .. } in records(&bytes)? {
            all.extend(str::from_utf8(key).ok().map(|key| (key.to_owned(), value.to_vec())));
        }
    }
    Ok(all)
}

/// An entry that says something of the next one, as it is in a stream: a long name, a long link, or records.
pub fn extension(kind: EntryType, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    if let Some(gnu) = header.as_gnu_mut() {
        gnu.name[..LONG_NAME.len()].copy_from_slice(LONG_NAME);
    }
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let mut bytes = [header.as_bytes(), content].concat();
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes
}

/// The head of an entry as it is in a stream: of one that was read, under this name, with all that is said of it.
///
/// # Errors
/// When it is not an entry of [`archive`], or has no numbers where there should be some.
pub fn head<R: Read>(entry: &mut Entry<'_, R>, path: &[u8], link: Option<&[u8]>) -> io::Result<Vec<u8>> {
    let mut records = Vec::new();
    for (key, value) in extensions(entry)? {
        records.extend(record(key.as_bytes(), &value));
    }
    let read = entry.header();
    let mut header = Header::new_ustar();
    let kind = read.entry_type();
    // What is between the pieces of a sparse file was read as zeros.
    header.set_entry_type(if kind.is_gnu_sparse() { EntryType::Regular } else { kind });
    header.set_mode(read.mode()?);
    header.set_uid(read.uid()?);
    header.set_gid(read.gid()?);
    header.set_mtime(read.mtime()?);
    header.set_size(entry.size());
    if let (Ok(Some(major)), Ok(Some(minor))) = (read.device_major(), read.device_minor()) {
        header.set_device_major(major)?;
        header.set_device_minor(minor)?;
    }
    Ok(named(&header, path, link, records))
}

/// A header under a name of any length, behind its records.
pub fn named(header: &Header, path: &[u8], link: Option<&[u8]>, mut records: Vec<u8>) -> Vec<u8> {
    let mut header = header.clone();
    let fields = [(PATH_AT, &b"path"[..], path), (LINK_AT, b"linkpath", link.unwrap_or_default())];
    for (at, key, name) in fields {
        let short = &name[..name.len().min(NAME_BYTES)];
        header.as_mut_bytes()[at..at + short.len()].copy_from_slice(short);
        if short.len() < name.len() {
            records.extend(record(key, name));
        }
    }
    header.set_cksum();
    let mut all = if records.is_empty() { Vec::new() } else { extension(EntryType::XHeader, &records) };
    all.extend(header.as_bytes());
    all
}

/// A record of an entry, with its length in front, which counts itself.
pub fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

/// What fills so many bytes of content up to the next header.
pub fn padding(bytes: u64) -> Vec<u8> {
    let over = usize::try_from(bytes % BLOCK_BYTES as u64).unwrap_or(0);
    vec![0; if over == 0 { 0 } else { BLOCK_BYTES - over }]
}

/// A tar stream without PAX records. It is otherwise as it came, its faults included.
pub struct Plain<R> {
    from: R,
    /// What is given before more is read.
    ready: Cursor<Vec<u8>>,
    /// The next block belongs to the map of a sparse file.
    map: bool,
    /// Bytes that pass unchanged before the next header.
    data: u64,
    /// What records said of the entry that comes, if there were any.
    numbers: Option<Numbers>,
}

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let given = self.ready.read(buffer)?;
            if given > 0 || buffer.is_empty() {
                return Ok(given);
            }
            if self.map {
                self.map_block()?;
            } else if self.data > 0 {
                let most = usize::try_from(self.data).map_or(buffer.len(), |data| data.min(buffer.len()));
                let passed = self.from.read(&mut buffer[..most])?;
                self.data -= passed as u64;
                return Ok(passed);
            } else if !self.header()? {
                return Ok(0);
            }
        }
    }
}

impl<R: Read> Plain<R> {
    /// Takes the next header, with what follows it if it is records. False at the end of the stream.
    fn header(&mut self) -> io::Result<bool> {
        let mut header = Header::new_old();
        let more = self.block(header.as_mut_bytes())?;
        if !more || !sound(&header) {
            if self.numbers.is_some() {
                return Err(damaged("records stand before no entry"));
            }
            // The end of the archive, or what the crate refuses: no header is looked for behind it.
            self.data = if more { u64::MAX } else { 0 };
            self.give(header.as_bytes()[..if more { BLOCK_BYTES } else { 0 }].to_vec());
            return Ok(more);
        }
        let known = header.as_gnu().is_some() || header.as_ustar().is_some();
        match header.entry_type() {
            EntryType::XHeader if known => return self.records(&header).map(|()| true),
            EntryType::GNULongName | EntryType::GNULongLink if known => drop(extension_size(&header)?),
            EntryType::XGlobalHeader if self.numbers.is_some() => {
                return Err(damaged("records stand before no entry"));
            }
            _ => {
                if let Some(numbers) = self.numbers.take() {
                    numbers.put(&mut header);
                }
            }
        }
        self.map = header.entry_type().is_gnu_sparse() && header.as_gnu().is_some_and(|g| g.is_extended());
        self.data = padded(header.entry_size()?)?;
        self.give(header.as_bytes().to_vec());
        Ok(true)
    }

    /// Takes the records behind their header, and gives what they say in the crate's words.
    fn records(&mut self, header: &Header) -> io::Result<()> {
        if self.numbers.is_some() {
            return Err(damaged("an entry has records twice"));
        }
        let size = extension_size(header)?;
        let mut bytes = Vec::new();
        self.from.by_ref().take(padded(size)?).read_to_end(&mut bytes)?;
        let content = usize::try_from(size).ok().and_then(|size| bytes.get(..size));
        let content = content.ok_or(io::ErrorKind::UnexpectedEof)?;
        let said = Said::read(content)?;
        let mut ready = Vec::new();
        for (kind, name) in [(EntryType::GNULongName, said.path), (EntryType::GNULongLink, said.link)] {
            if let Some(name) = name {
                ready.extend(extension(kind, &[name, &[0]].concat()));
            }
        }
        if !said.others.is_empty() {
            let text = STANDARD.encode(&said.others);
            // Eight digits, a blank, an equals sign and a newline are counted too.
            let record = format!("{:08} {OTHERS}={text}\n", 11 + OTHERS.len() + text.len());
            ready.extend(extension(EntryType::XHeader, record.as_bytes()));
        }
        self.numbers = Some(said.numbers);
        self.give(ready);
        Ok(())
    }

    fn map_block(&mut self) -> io::Result<()> {
        let mut block = GnuExtSparseHeader::new();
        if !self.block(block.as_mut_bytes())? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.map = block.is_extended();
        self.give(block.as_bytes().to_vec());
        Ok(())
    }

    fn give(&mut self, bytes: Vec<u8>) {
        self.ready = Cursor::new(bytes);
    }

    /// Fills a block. False at the end of the stream.
    fn block(&mut self, block: &mut [u8; BLOCK_BYTES]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            match self.from.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// What the records before an entry say of it.
#[derive(Debug, Default)]
struct Said<'r> {
    path: Option<&'r [u8]>,
    link: Option<&'r [u8]>,
    numbers: Numbers,
    /// The other records, as they are.
    others: Vec<u8>,
}

/// Numbers that stand in place of those in an entry's header.
#[derive(Debug, Default)]
struct Numbers {
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<u64>,
}

impl<'r> Said<'r> {
    fn read(bytes: &'r [u8]) -> io::Result<Self> {
        let mut said = Self::default();
        let Self { path, link, numbers, others } = &mut said;
        // The last of its key holds. One without a value takes the earlier ones back.
        for Record { key, value, whole } in records(bytes)? {
            match key {
                b"path" => *path = name(value)?,
                b"linkpath" => *link = name(value)?,
                b"size" => numbers.size = number(value, digits)?,
                b"uid" => numbers.uid = number(value, digits)?,
                b"gid" => numbers.gid = number(value, digits)?,
                b"mtime" => numbers.mtime = number(value, seconds)?,
                _ => others.extend_from_slice(whole),
            }
        }
        Ok(said)
    }
}

impl Numbers {
    fn put(&self, header: &mut Header) {
        for (number, set) in [
            (self.size, Header::set_size as fn(&mut Header, u64)),
            (self.uid, Header::set_uid),
            (self.gid, Header::set_gid),
            (self.mtime, Header::set_mtime),
        ] {
            if let Some(number) = number {
                set(header, number);
            }
        }
        header.set_cksum();
    }
}

/// Whether a header is one: whether its sum is right.
fn sound(header: &Header) -> bool {
    let mut summed = header.clone();
    summed.set_cksum();
    matches!((summed.cksum(), header.cksum()), (Ok(sum), Ok(claimed)) if sum == claimed)
}

fn extension_size(header: &Header) -> io::Result<u64> {
    let size = header.entry_size()?;
    if size > MAX_EXTENSION_BYTES { Err(damaged("a name or record is too long")) } else { Ok(size) }
}

fn padded(size: u64) -> io::Result<u64> {
    size.checked_next_multiple_of(BLOCK_BYTES as u64).ok_or_else(|| damaged("a size is past all bounds"))
}

fn records(mut left: &[u8]) -> io::Result<Vec<Record<'_>>> {
    let mut all = Vec::new();
    while !left.is_empty() {
        let (first, rest) = first(left).ok_or_else(|| damaged("a record is garbled"))?;
        all.push(first);
        left = rest;
    }
    Ok(all)
}

/// The first record, and what is behind it.
fn first(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let blank = bytes.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(digits(&bytes[..blank])?).ok()?;
    let (whole, rest) = bytes.split_at_checked(length)?;
    let text = whole.get(blank + 1..)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    Some((Record { key: &text[..equals], value: &text[equals + 1..], whole }, rest))
}

fn name(value: &[u8]) -> io::Result<Option<&[u8]>> {
    if value.contains(&0) {
        return Err(damaged("a name has a NUL byte"));
    }
    Ok(Some(value).filter(|value| !value.is_empty()))
}

fn number(value: &[u8], parse: impl Fn(&[u8]) -> Option<u64>) -> io::Result<Option<u64>> {
    match value {
        [] => Ok(None),
        value => parse(value).map(Some).ok_or_else(|| damaged("a record holds no number")),
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    // The standard library's own reading takes a sign.
    let text = str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

/// Whole seconds of a time. One before 1970 is 1970, as headers have it.
fn seconds(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let whole = parts.next()?;
    if !parts.all(|fraction| fraction.iter().all(u8::is_ascii_digit)) {
        return None;
    }
    match whole.strip_prefix(b"-") {
        Some(before) => digits(before).map(|_| 0),
        None => digits(whole),
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
