use super::super::fake::{Fake, client};
use super::*;
use crate::proto::methods::{SessionGet, StoreLoad};
use crate::proto::sessions::NameParams;
use crate::proto::types::StoreNameParams;

#[test]
fn progress_that_comes_before_the_answer_reaches_the_caller() {
    let fake = Fake::lines(&[
        r#"{"jsonrpc":"2.0","method":"event","params":{"kind":"progress","data":{"op":"a","text":"Pulling","current_bytes":5,"total_bytes":9}}}"#,
        r#"{"jsonrpc":"2.0","method":"event","params":{"kind":"of-tomorrow","text":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":"somebody else's"}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":null}"#,
    ]);
    let mut seen = Vec::new();
    let wanted = StoreNameParams { name: "a".to_owned(), namespace: None };
    let row =
        client(&fake).call_watched::<StoreLoad>(&wanted, &mut |event| seen.push(event)).expect("an answer");
    assert_eq!(row.get(), "null");
    let want = Progress {
        op: Some("a".to_owned()),
        text: "Pulling".to_owned(),
        current_bytes: Some(5),
        total_bytes: Some(9),
    };
    seen.retain(|event| *event != Meanwhile::Waiting);
    assert_eq!(seen, [Meanwhile::Progress(want)]);
}

#[test]
fn who_watches_hears_of_silence_and_an_answer_in_pieces_is_whole() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut waited = 0;
    let watch = &mut |event| {
        assert_eq!(event, Meanwhile::Waiting);
        waited += 1;
        let piece = match waited {
            1 => "{\"jsonrpc\":\"2.0\",\"id\":1,\"res",
            3 => "ult\":null}\n",
            _ => "",
        };
        (&theirs).write_all(piece.as_bytes()).expect("write");
    };
    let params = StoreNameParams { name: "a".to_owned(), namespace: None };
    let row = Client::new(ours).call_watched::<StoreLoad>(&params, watch).expect("an answer");
    assert_eq!((row.get(), waited), ("null", 3));
}

#[test]
fn a_daemon_that_breaks_off_gives_an_error_that_says_the_work_may_go_on() {
    let fake = Fake::lines(&[]);
    let error =
        client(&fake).call::<SessionGet>(&NameParams { name: "a".to_owned() }).expect_err("no answer");
    assert!(matches!(error, CallError::Gone { .. }), "{error:?}");
    assert!(error.to_string().contains("may still be running"));
}

#[test]
fn half_an_answer_is_no_answer() {
    let fake = Fake::bytes(br#"{"jsonrpc":"2.0","id":ID,"result"#);
    let error = client(&fake).call_raw("x.y", RawValue::NULL).expect_err("cut off");
    assert!(matches!(error, CallError::Gone { .. }), "{error:?}");
}

#[test]
fn an_error_keeps_its_kind_and_what_this_version_does_not_know() {
    let fake = Fake::lines(&[
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":"no session 'a'","data":{"kind":"session_not_found","later":7}}}"#,
    ]);
    let error = client(&fake).call::<SessionGet>(&NameParams { name: "a".to_owned() }).expect_err("an error");
    let CallError::Remote(remote) = error else { panic!("{error:?}") };
    assert_eq!(remote.error.kind().map(crate::proto::errors::Kind::name), Some("session_not_found"));
    assert!(remote.raw.get().contains("\"later\":7"));
}

#[test]
fn an_error_with_strange_data_keeps_code_and_message() {
    let raw: Box<RawValue> =
        serde_json::from_str(r#"{"code":-32601,"message":"no such method","data":[1]}"#).expect("JSON");
    let error = remote(&raw).error;
    assert_eq!((error.code, error.message.as_str()), (-32601, "no such method"));
}

#[test]
fn a_request_over_the_limit_is_not_sent() {
    let fake = Fake::lines(&[]);
    let params = serde_json::value::to_raw_value(&"x".repeat(MAX_MESSAGE_BYTES)).expect("JSON");
    let error = client(&fake).call_raw("x.y", &params).expect_err("too large");
    assert!(matches!(error, CallError::TooLarge { .. }), "{error:?}");
}

#[test]
fn a_result_of_another_shape_names_the_method() {
    let fake = Fake::lines(&[r#"{"jsonrpc":"2.0","id":ID,"result":{"no":"session"}}"#]);
    let error = client(&fake).call::<SessionGet>(&NameParams { name: "a".to_owned() }).expect_err("garbled");
    assert!(error.to_string().contains("session.get"), "{error}");
}
