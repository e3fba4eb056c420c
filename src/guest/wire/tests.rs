use super::*;

fn run() -> Run {
    Run {
        id: "0192".to_owned(),
        argv: vec![b"sh".to_vec(), vec![0xff, b'x']],
        env: vec![b"A=b=c".to_vec()],
        cwd: Some(b"/w".to_vec()),
        user: None,
        tty: Some(Size { cols: 80, rows: 24 }),
        terminal: "main".to_owned(),
        stdin: true,
        keep: 1 << 20,
        window: 9,
        ..Run::default()
    }
}

#[test]
fn headers_and_payloads_come_back_as_they_went() {
    for &kind in Kind::ALL {
        let bytes = header(kind, 0x0102_0304, 70_000);
        let parsed = Header::parse(bytes, MAX_FROM_GUEST).expect("a short one");
        assert_eq!(parsed, Header { kind: Some(kind), stream: 0x0102_0304, length: 70_000 });
    }
    assert_eq!(Run::decode(&run().encode()), Ok(run()));
    let entry =
        Entry { ended: Some(Exited { code: 137, signal: 9, ..Exited::default() }), ..Entry::default() };
    assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
}

#[test]
fn a_payload_of_a_newer_version_is_read_as_far_as_it_is_known() {
    let mut bytes = run().encode();
    bytes.extend_from_slice(b"more");
    assert_eq!(Run::decode(&bytes), Ok(run()));
}

#[test]
fn a_payload_of_an_older_version_has_defaults_for_what_it_did_not_know() {
    let whole = Exited { code: 7, signal: 1, oom: true, stdout: 2, stderr: 3 }.encode();
    let older = Exited { code: 7, signal: 1, ..Exited::default() };
    assert_eq!(Exited::decode(&whole[..5]), Ok(older));
    assert_eq!(Welcome::decode(b""), Ok(Welcome::default()));
}

#[test]
fn what_is_cut_off_or_lies_about_its_length_is_refused_without_reserving_it() {
    let whole = run().encode();
    for cut in 0..whole.len() {
        // Where a field ends the rest has its defaults, and nothing else is made up.
        if let Ok(read) = Run::decode(&whole[..cut]) {
            let again = read.encode();
            assert!(again.starts_with(&whole[..cut]), "{cut} bytes");
            assert!(again[cut..].iter().all(|byte| *byte == 0), "{cut} bytes");
        }
    }
    assert!(Run::decode(&whole[..whole.len() - 1]).is_err());
    assert!(Run::decode(&whole[..3]).is_err());
    let huge = u32::MAX.to_be_bytes();
    assert!(Vec::<Vec<u8>>::take(&mut huge.as_slice()).is_err());
    assert!(String::take(&mut [0, 0, 0, 1, 0xff].as_slice()).is_err());
    assert!(Header::parse(header(Kind::Stdout, 1, MAX_FROM_GUEST + 1), MAX_FROM_GUEST).is_err());
}
