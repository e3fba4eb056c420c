use super::*;
use crate::model::attention::Noted;
use crate::model::id::ExecId;
use crate::model::session::tests::sample;
use crate::model::session::{Operation, Reason, Status};

fn kinds(told: &[Told]) -> Vec<&'static str> {
    told.iter().map(|told| told.kind.as_str()).collect()
}

fn fact<'a>(told: &'a Told, name: &str) -> &'a Fact {
    told.data.iter().find(|(key, _)| *key == name).map(|(_, fact)| fact).expect("the fact")
}

#[test]
fn a_row_that_comes_changes_and_goes_tells_each_of_it() {
    let old = sample("a");
    let mut new = old.clone();
    new.status = Status::Stopped;
    new.reason = Some(Reason::Idle);
    new.operation = Some(Operation::Save);
    new.expires_at = Some(Timestamp(5));
    assert_eq!(kinds(&of_session(None, Some(&old))), ["session.created"]);
    assert_eq!(kinds(&of_session(Some(&old), None)), ["session.deleted"]);
    let told = of_session(Some(&old), Some(&new));
    assert_eq!(kinds(&told), ["session.status", "session.operation", "session.changed"]);
    assert_eq!(fact(&told[0], "reason"), &Fact::text("idle"));
    assert_eq!(fact(&told[1], "operation"), &Fact::text("save"));
    assert_eq!(fact(&told[2], "fields"), &Fact::Texts(vec!["expires_at".to_owned()]));
}

#[test]
fn what_an_agent_is_doing_is_told_when_it_is_something_else() {
    let noted = |state, note: Option<&str>, at| Noted {
        state,
        source: Source::Osc9,
        note: note.map(str::to_owned),
        exec: None,
        at: Timestamp(at),
    };
    let none = sample("a");
    let works = Session { attention: Some(noted(Attention::Working, None, 1)), ..none.clone() };
    let waits = Session { attention: Some(noted(Attention::Waiting, Some("which?"), 2)), ..none.clone() };
    let told = of_session(Some(&works), Some(&waits));
    assert_eq!(kinds(&told), ["session.attention"]);
    assert_eq!(
        (fact(&told[0], "from"), fact(&told[0], "to")),
        (&Fact::text("working"), &Fact::text("waiting"))
    );
    assert_eq!(
        (fact(&told[0], "note"), fact(&told[0], "source")),
        (&Fact::text("which?"), &Fact::text("osc9"))
    );
    let told = of_session(Some(&waits), Some(&none));
    assert_eq!((fact(&told[0], "to"), fact(&told[0], "source")), (&Fact::Nothing, &Fact::Nothing));
    let later = Session { attention: Some(noted(Attention::Working, None, 9)), ..none };
    assert_eq!(of_session(Some(&works), Some(&later)), []);
}

#[test]
fn counts_of_use_and_revisions_tell_nothing_by_themselves() {
    let old = sample("a");
    let new = Session { exec_count: 7, last_active: Timestamp(9), revision: 4, ..old.clone() };
    assert_eq!(of_session(Some(&old), Some(&new)), []);
}

fn exec() -> Exec {
    Exec {
        id: ExecId::new("e"),
        session: SessionId::new("s"),
        key: None,
        argv: vec!["cat".to_owned()],
        terminal: None,
        tty: false,
        detached: true,
        started_at: Timestamp(1000),
        deadline: None,
        verdict: None,
        ended: None,
    }
}

fn told_of(before: Option<&Exec>, after: Option<&Exec>) -> Vec<Told> {
    of_exec(before, after, Dropped::WithSession)
}

#[test]
fn a_command_tells_its_start_and_its_end_once() {
    let running = exec();
    let started = told_of(None, Some(&running));
    assert_eq!(kinds(&started), ["exec.started"]);
    assert_eq!(fact(&started[0], "cmd"), &Fact::Texts(vec!["cat".to_owned()]));
    let end = End { at: Timestamp(3500), code: 143, signal: Some(15), reason: None };
    let over = Exec { ended: Some(end), ..exec() };
    let ended = told_of(Some(&running), Some(&over));
    assert_eq!(kinds(&ended), ["exec.ended"]);
    assert_eq!(fact(&ended[0], "duration_ms"), &Fact::Number(2500));
    assert!(ended[0].data.iter().all(|(key, _)| *key != "cmd"), "the start has it");
    assert_eq!(told_of(Some(&over), Some(&over)), []);
    assert_eq!(told_of(Some(&over), None), []);
    let on_a_terminal = Exec { terminal: Some("main".to_owned()), ..over };
    let both = ["terminal.opened", "terminal.ended"];
    assert_eq!(kinds(&told_of(None, Some(&on_a_terminal))), both);
}

#[test]
fn a_command_whose_row_goes_before_it_ended_tells_an_end_without_a_code() {
    for (dropped, reason) in
        [(Dropped::NotStarted, "it was not started"), (Dropped::WithSession, "its session was deleted")]
    {
        let told = of_exec(Some(&exec()), None, dropped);
        assert_eq!(kinds(&told), ["exec.ended"]);
        assert_eq!(fact(&told[0], "exit_code"), &Fact::Nothing);
        assert_eq!(fact(&told[0], "reason"), &Fact::text(reason));
    }
    let terminal = Exec { terminal: Some("main".to_owned()), ..exec() };
    assert_eq!(kinds(&told_of(Some(&terminal), None)), ["terminal.ended"]);
}

#[test]
fn a_command_line_takes_no_more_than_its_room_as_json_has_it() {
    let text = |text: &str| vec![text.to_owned()];
    assert_eq!(shown(&text("make")), text("make"));
    for argv in [
        text(&"x".repeat(2000)),
        text(&"\u{1}".repeat(2000)),
        text(&"ж\"\\\n".repeat(500)),
        vec![String::new(); 2000],
        vec!["a".to_owned(); 2000],
    ] {
        let shown = shown(&argv);
        let encoded = serde_json::to_string(&shown).expect("texts").len();
        assert!(encoded <= MAX_SHOWN_BYTES && encoded > MAX_SHOWN_BYTES - 16, "{encoded}: {shown:?}");
        assert!(shown.last().expect("a part").ends_with(CUT), "{shown:?}");
    }
}
