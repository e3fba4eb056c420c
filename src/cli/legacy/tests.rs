//! Every sample of the older tools' files, and odd ones beside them.

use std::path::Path;

use serde_json::json;

use super::*;

const WRITTEN: &str = "2026-06-01T00:00:00.000Z";

fn written() -> Timestamp {
    WRITTEN.parse().expect("a time")
}

fn sample(name: &str) -> Result<Legacy, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compat/import").join(name);
    read(&std::fs::read(path).expect("a sample"), None, written())
}

fn good(name: &str) -> Legacy {
    sample(name).unwrap_or_else(|why| panic!("{name}: {why}"))
}

fn text(value: &Value) -> Result<Legacy, String> {
    read(value.to_string().as_bytes(), None, written())
}

#[test]
fn the_sdks_files_become_rows_with_times_in_utc() {
    let Legacy { row, notes } = good("agent-sandbox/my-project.json");
    assert_eq!(notes, [""; 0]);
    assert_eq!((row.origin.as_str(), row.row.name.as_str()), ("agent-sandbox", "my-project"));
    assert_eq!(row.row.sandbox_id.as_deref(), Some("sbx-7f3a1c"));
    assert_eq!(row.row.status.as_deref(), Some("running"));
    assert_eq!(row.row.created_at.as_deref(), Some("2026-03-04T08:15:30.250Z"));
    assert_eq!(row.row.last_connected.as_deref(), Some("2026-03-05T19:00:01.000Z"));
    assert_eq!(row.row.metadata["purpose"], "data cleaning");

    let Legacy { row, notes } = good("agent-sandbox/dev_env.json");
    assert_eq!((row.row.name.as_str(), notes.len()), ("dev env", 0));
    assert_eq!(row.row.created_at.as_deref(), Some("2026-03-04T00:15:30.000Z"));
    assert_eq!(row.row.extra["envdAccessToken"], "tok-not-a-real-one");
    assert_eq!(row.row.extra["config"]["ttl"], 86_400);

    let Legacy { row, .. } = good("agent-sandbox/数据-会议.json");
    assert_eq!(row.row.created_at.as_deref(), Some("2026-03-04T08:15:30.000Z"));
    assert_eq!(row.row.metadata["emoji"], "👩\u{200d}💻");
}

#[test]
fn snake_case_bom_and_other_file_names_are_understood() {
    let Legacy { row, .. } = good("agent-sandbox/snake.json");
    assert_eq!((row.origin.as_str(), row.row.sandbox_id.as_deref()), ("agent-sandbox", Some("sbx-s1")));
    assert_eq!(good("agent-sandbox/bom.json").row.row.name, "bom");
    assert_eq!(good("agent-sandbox/renamed_by_hand.json").row.row.name, "another.name");
    let Legacy { row, notes } = good("agent-sandbox/no-sandbox.json");
    assert_eq!((row.row.sandbox_id, row.row.created_at.as_deref()), (None, Some(WRITTEN)));
    assert_eq!(notes, [""; 0]);
}

#[test]
fn a_file_of_a_newer_tool_keeps_what_is_unknown() {
    let Legacy { row, notes } = good("agent-sandbox/future.json");
    assert_eq!(row.row.status.as_deref(), Some("hibernating"));
    assert_eq!(row.row.extra["unknownField"], json!({"a": [1, 2]}));
    assert_eq!(row.row.metadata["n"], "3");
    assert_eq!(notes, ["metadata \"n\" is not text; its JSON text is kept"]);
}

#[test]
fn agentkernels_files_become_rows() {
    let Legacy { row, notes } = good("agentkernel/feature-x.json");
    assert_eq!((row.origin.as_str(), notes.len()), ("agentkernel", 0));
    assert_eq!(row.sandbox.as_deref(), Some("session-feature-x"));
    assert_eq!(row.agent.as_deref(), Some("claude"));
    assert_eq!(row.row.status.as_deref(), Some("running"));
    assert_eq!(row.row.created_at.as_deref(), Some("2026-02-01T09:00:00.123Z"));
    assert_eq!(row.last_active.as_deref(), Some("2026-02-01T11:14:00.500Z"));
    let bugfix = good("agentkernel/bugfix-123.json").row;
    assert_eq!((bugfix.exec_count, bugfix.snapshot.as_deref()), (12, Some("bugfix-123-20260201")));
    let old = good("agentkernel/old-session.json").row;
    assert_eq!((old.snapshot, old.row.created_at.as_deref()), (None, Some("2026-01-29T07:00:00.000Z")));
}

#[test]
fn odd_values_are_bent_and_each_is_said() {
    let Legacy { row, notes } = good("agentkernel/weird-agent.json");
    assert_eq!((row.agent.as_deref(), row.exec_count), (Some("my-own-agent"), 0));
    assert_eq!(row.row.created_at.as_deref(), Some(WRITTEN));
    assert_eq!(row.last_active.as_deref(), Some(WRITTEN));
    let want = [
        "exec_count is negative; 0 is used".to_owned(),
        format!("last_active is no time; the file's own, {WRITTEN}, is used"),
        format!("created_at is no time; the file's own, {WRITTEN}, is used"),
    ];
    assert_eq!(notes, want);
    let Legacy { row, notes } = good("agentkernel/big-count.json");
    assert_eq!(row.exec_count, i64::MAX as u64);
    assert_eq!(notes, ["exec_count is too large; 9223372036854775807 is used"]);
}

#[test]
fn files_without_a_session_say_why() {
    for (name, want) in [
        ("agent-sandbox/list.json", "it holds a list, not a session"),
        ("agent-sandbox/nameless.json", "it has no name"),
        ("agent-sandbox/torn.json", "it is cut off at line 5, column 9"),
        ("agent-sandbox/empty.json", "it is empty"),
        ("agent-sandbox/nul.json", "it holds nothing but null bytes"),
        ("agent-sandbox/latin1.json", "it is not UTF-8 (at byte 12)"),
        ("agentkernel/zero.json", "it holds nothing but null bytes"),
    ] {
        assert_eq!(sample(name).expect_err("no session"), want, "{name}");
    }
    assert!(sample("agentkernel/cut.json").expect_err("no session").starts_with("it is cut off"));
    assert_eq!(text(&json!({"name": 3})), Err("its name is not text".to_owned()));
    assert_eq!(text(&json!("name")), Err("it holds a single value, not a session".to_owned()));
    assert!(read("[".repeat(100_000).as_bytes(), None, written()).is_err());
    assert!(read(b"{\"name\":\"a\"} trailing", None, written()).is_err());
}

#[test]
fn a_name_that_breaks_the_rules_is_the_daemons_to_refuse() {
    assert_eq!(good("agent-sandbox/evil.json").row.row.name, "../../evil");
}

#[test]
fn every_row_survives_the_wire_whatever_the_file_called_its_fields() {
    let odd = json!({
        "name": "a", "exec_count": 1.5, "sandboxId": "x", "template": {"t": 1}, "metadata": [1],
        "createdAt": "2026-01-01", "last_connected": 5, "extra": 1, "agent": null,
    });
    for origin in [Origin::Agentkernel, Origin::AgentSandbox] {
        let Legacy { row, .. } = read(odd.to_string().as_bytes(), Some(origin), written()).expect("a row");
        let wire = serde_json::to_string(&row).expect("JSON");
        assert_eq!(serde_json::from_str::<ImportRow>(&wire).expect("parses"), row);
    }
}

#[test]
fn times_with_and_without_zones_are_utc_in_the_end() {
    for (text, want) in [
        ("2026-03-04T08:15:30Z", Some("2026-03-04T08:15:30.000Z")),
        ("2026-03-04 08:15:30+08:00", Some("2026-03-04T00:15:30.000Z")),
        ("2026-03-04T08:15:30.123999", Some("2026-03-04T08:15:30.123Z")),
        ("2026-03-04", Some("2026-03-04T00:00:00.000Z")),
        ("", None),
        ("1772612130", None),
        ("2026-13-40T00:00:00Z", None),
    ] {
        assert_eq!(parse_time(text).map(stamp).as_deref(), want, "{text}");
    }
}
