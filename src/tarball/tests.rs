//! Streams as others write them, and as no one should.

use proptest::prelude::*;
use tar::Builder;

use super::*;

/// What comes of an entry: name, link, size, and bytes.
type Got = (Vec<u8>, Option<Vec<u8>>, u64, Vec<u8>);

fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let length = (1..).map(|digits| rest + digits).find(|length| length.to_string().len() + rest == *length);
    [format!("{} {key}=", length.expect("one fits")).as_bytes(), value, b"\n"].concat()
}

fn member(kind: EntryType, name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_path(name).expect("short");
    header.set_mode(0o644);
    header.set_uid(1);
    header.set_gid(1);
    header.set_mtime(1);
    header.set_size(content.len() as u64);
    header.set_cksum();
    filled(&[header.as_bytes(), content].concat())
}

fn filled(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes
}

fn said(records: &[(&str, &[u8])]) -> Vec<u8> {
    let records: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
    member(EntryType::XHeader, "PaxHeaders.0/x", &records)
}

fn stream(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 2 * BLOCK_BYTES]].concat()
}

fn read(from: impl Read) -> io::Result<Vec<Got>> {
    let mut all = Vec::new();
    for entry in archive(from).entries()? {
        let mut entry = entry?;
        let name = entry.path_bytes().into_owned();
        let link = entry.link_name_bytes().map(|link| link.into_owned());
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        all.push((name, link, entry.size(), bytes));
    }
    Ok(all)
}

/// Gives a byte at a time.
struct Dripping<'b>(&'b [u8]);

impl Read for Dripping<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(1);
        self.0.read(&mut buffer[..most])
    }
}

#[test]
fn names_and_links_with_newlines_come_whole_in_whatever_pieces() {
    let long = format!("d/{}\ny", "l".repeat(120));
    let sly = b"one\n22 linkpath=/etc/evil\ntwo";
    let bytes = stream(&[
        said(&[("path", "d/ü\nx".as_bytes())]),
        member(EntryType::Regular, "d/x", b"1"),
        said(&[("mtime", b"5"), ("linkpath", sly), ("path", long.as_bytes())]),
        member(EntryType::Symlink, "d/cut", b""),
        said(&[("path", b"first"), ("path", "ñ\nq/".as_bytes()), ("linkpath", b"x"), ("linkpath", b"")]),
        member(EntryType::Directory, "q", b""),
        member(EntryType::Regular, "plain\nname", b"two"),
    ]);
    let want: Vec<Got> = vec![
        ("d/ü\nx".into(), None, 1, b"1".into()),
        (long.into(), Some(sly.into()), 0, vec![]),
        ("ñ\nq/".into(), None, 0, vec![]),
        (b"plain\nname".into(), None, 3, b"two".into()),
    ];
    assert_eq!(read(&bytes[..]).expect("whole"), want);
    assert_eq!(read(Dripping(&bytes)).expect("whole"), want);
}

#[test]
fn numbers_of_records_stand_in_place_of_the_headers_and_behind_names_with_newlines() {
    let mut big = member(EntryType::Regular, "x", b"");
    big.extend(b"not all of it");
    let numbers: &[(&str, &[u8])] = &[
        ("gid", b"4294967294"),
        ("mtime", b"1700000000.123456789"),
        ("path", "ü\nx".as_bytes()),
        ("size", b"9000000000"),
        ("uid", b"3000000"),
    ];
    let bytes = stream(&[
        said(&[("path", b"a\n"), ("size", b"3"), ("mtime", b"-1.5")]),
        filled(&[member(EntryType::Regular, "x", b""), b"abc".to_vec()].concat()),
        said(numbers),
        big,
    ]);
    let mut archive = archive(&bytes[..]);
    let mut entries = archive.entries().expect("entries");
    let mut first = entries.next().expect("one").expect("whole");
    let mut content = String::new();
    first.read_to_string(&mut content).expect("read");
    assert_eq!((content.as_str(), first.header().mtime().expect("a time")), ("abc", 0));
    let second = entries.next().expect("one").expect("whole");
    assert_eq!((&*second.path_bytes(), second.size()), ("ü\nx".as_bytes(), 9_000_000_000));
    let header = second.header();
    let got = (header.uid().expect("uid"), header.gid().expect("gid"), header.mtime().expect("a time"));
    assert_eq!(got, (3_000_000, 4_294_967_294, 1_700_000_000));
}

#[test]
fn other_records_come_as_they_were_and_none_is_made_up() {
    let capability = b"\x01\0\0\x02\n\n\0\n=\n";
    let bytes = stream(&[
        said(&[("SCHILY.xattr.security.capability", capability), ("path", b"p\nq"), (OTHERS, b"forged")]),
        member(EntryType::Regular, "q", b""),
        member(EntryType::Regular, "none", b""),
    ]);
    let mut archive = archive(&bytes[..]);
    let mut all = archive.entries().expect("entries").map(|entry| {
        let mut entry = entry.expect("whole");
        extensions(&mut entry).expect("records")
    });
    let want = [("SCHILY.xattr.security.capability", &capability[..]), (OTHERS, b"forged")];
    assert_eq!(all.next(), Some(want.map(|(key, value)| (key.to_owned(), value.to_vec())).to_vec()));
    assert_eq!((all.next(), all.next()), (Some(Vec::new()), None));
}

#[test]
fn records_that_lie_are_refused() {
    for garbled in [
        "7 a=b\n",
        "5 a=b\n",
        "0 a=b\n",
        "1 a=b\n",
        "2 a=b\n",
        "+6 a=b\n",
        "-6 a=b\n",
        " a=b\n",
        "6a=b\n",
        "6 a=bb",
        "6 aab\n",
        "5 =b\n",
        "99999999999999999999999999 a=b\n",
        "18446744073709551615 a=b\n",
        "6 a=b\n\n",
        "6 a=b\n\0\0",
        "6 a=b\n7 a=b\n",
        "9 path=a\0\n",
        "9 size=a\n",
        "11 size=-1\n",
        "10 mtime=\u{7f}\n",
        "33 size=99999999999999999999999\n",
        "30 size=18446744073709551615\n",
        "12 mtime=1.x\n",
        "x",
        "\n",
    ] {
        let header = member(EntryType::XHeader, "x", garbled.as_bytes());
        let bytes = stream(&[header, member(EntryType::Regular, "name", b"")]);
        let error = read(&bytes[..]).expect_err(garbled);
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{garbled:?}");
    }
}

#[test]
fn records_without_their_entry_or_their_end_are_refused() {
    let (records, file) = (said(&[("path", b"a\nb")]), member(EntryType::Regular, "b", b""));
    let none = said(&[("path", b"")]);
    let huge = |kind| {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(u64::MAX / 2);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let mut broken = file.clone();
    broken[0] ^= 1;
    for (why, bytes) in [
        ("twice", stream(&[records.clone(), records.clone(), file.clone()])),
        ("twice, the first without a word", stream(&[none.clone(), records.clone(), file.clone()])),
        ("before the end", stream(std::slice::from_ref(&none))),
        ("before nothing", none.clone()),
        (
            "before what is for all",
            stream(&[none.clone(), member(EntryType::XGlobalHeader, "g", b""), file.clone()]),
        ),
        ("before garbage", stream(&[records.clone(), broken])),
        ("cut off", records[..BLOCK_BYTES + 5].to_vec()),
        ("cut off in its header", records[..5].to_vec()),
        ("two names", stream(&[records.clone(), extension(EntryType::GNULongName, b"x\0"), file.clone()])),
        ("huge records", huge(EntryType::XHeader)),
        ("a huge name", huge(EntryType::GNULongName)),
        ("a huge link", huge(EntryType::GNULongLink)),
    ] {
        assert!(read(&bytes[..]).is_err(), "{why}");
    }
    assert_eq!(read(&stream(&[none, file])[..]).expect("whole")[0].0, b"b");
}

#[test]
fn a_sparse_file_whose_map_goes_on_in_blocks_of_its_own_is_read_as_before() {
    let octal =
        |number: usize| -> [u8; 12] { format!("{number:011o}\0").into_bytes().try_into().expect("12") };
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNUSparse);
    header.set_path("sparse").expect("short");
    header.set_size(5 * BLOCK_BYTES as u64);
    let gnu = header.as_gnu_mut().expect("GNU's");
    gnu.isextended = [1];
    gnu.realsize = octal(10 * BLOCK_BYTES);
    for (at, part) in gnu.sparse.iter_mut().enumerate() {
        (part.offset, part.numbytes) = (octal(2 * at * BLOCK_BYTES), octal(BLOCK_BYTES));
    }
    header.set_cksum();
    let mut map = GnuExtSparseHeader::new();
    (map.sparse[0].offset, map.sparse[0].numbytes) = (octal(9 * BLOCK_BYTES), octal(BLOCK_BYTES));
    let data = vec![b'x'; 5 * BLOCK_BYTES];
    let sparse = [&header.as_bytes()[..], &map.as_bytes()[..], &data].concat();
    let bytes = stream(&[said(&[("path", b"a\nb")]), sparse, member(EntryType::Regular, "next", b"1")]);
    let got = read(Dripping(&bytes)).expect("whole");
    let part = |byte: u8| vec![byte; BLOCK_BYTES];
    let (hole, full) = (part(0), part(b'x'));
    let want =
        [&full, &hole, &full, &hole, &full, &hole, &full, &hole, &hole, &full].map(Vec::as_slice).concat();
    assert_eq!(got[0], (b"a\nb".to_vec(), None, want.len() as u64, want));
    assert_eq!(got[1].0, b"next");
}

#[test]
fn what_the_crate_writes_is_read_as_it_was() {
    let mut builder = Builder::new(Vec::new());
    let long = "n".repeat(300);
    for name in ["short", long.as_str()] {
        let mut header = Header::new_gnu();
        header.set_size(3);
        builder.append_data(&mut header, name, &b"abc"[..]).expect("written");
    }
    let bytes = builder.into_inner().expect("whole");
    let names: Vec<_> = read(&bytes[..]).expect("whole").into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, [b"short".to_vec(), long.into_bytes()]);
}

proptest! {
    #[test]
    fn no_records_make_it_panic(records: Vec<u8>, lengths in prop::collection::vec((0_usize..40, "[a-z]{0,9}=?[\n0-9 a]{0,9}\n?"), 0..4)) {
        let lines: String = lengths.iter().map(|(length, text)| format!("{length} {text}")).collect();
        for content in [records.as_slice(), lines.as_bytes()] {
            let header = member(EntryType::XHeader, "x", content);
            let bytes = stream(&[header, member(EntryType::Regular, "name", b"")]);
            let _ = read(&bytes[..]);
        }
    }

    #[test]
    fn no_damage_makes_it_panic(at in 0_usize..2048, byte: u8, cut in 0_usize..4096) {
        let mut bytes = stream(&[
            said(&[("path", b"a\nb"), ("size", b"3"), ("SCHILY.xattr.x", b"\n")]),
            member(EntryType::Regular, "b", b"abc"),
        ]);
        bytes[at] = byte;
        bytes.truncate(cut);
        let _ = read(&bytes[..]);
    }
}
