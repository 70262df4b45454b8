//! State × request × kind of member: one row of the table, one answer and the state after it.

use super::rows::{Row, Step, rows};
use super::*;

const TABLE: &str = include_str!("../../../../tests/tables/classic_groups.txt");

fn start(row: &Row) -> Start {
    match row.start {
        "absent" => Start::Absent,
        "empty" => Start::Empty,
        "preparing" => Start::Preparing,
        "completing" => Start::Completing,
        "stable" => Start::Stable,
        "static" => Start::Static,
        other => panic!("line {}: no state {other}", row.line),
    }
}

/// Words that outlive the test's own copy of them.
fn kept(words: Vec<&'static str>) -> &'static [&'static str] {
    Vec::leak(words)
}

fn join(step: &Step) -> Join {
    Join {
        client: step.word(0),
        member_id: step.option("id").unwrap_or_default(),
        instance: step.option("instance"),
        version: i16::try_from(step.number_or("v", 3)).unwrap(),
        session_ms: step.number_or("session", NEW.session_ms),
        kind: step.option("kind").unwrap_or(NEW.kind),
        protocols: step.list("protocols", '+').map_or(NEW.protocols, kept),
        topics: step.option("topics").unwrap_or(NEW.topics),
        fresh: step.option("fresh").unwrap_or(NEW.fresh),
    }
}

fn ask_sync(step: &Step) -> Sync {
    let named = step.option("unnamed").is_none();
    let base = sync(step.word(0), step.number(1));
    let given = step.list("given", ',').unwrap_or_default().into_iter();
    let given = given.map(|pair| -> &'static str { String::leak(pair.replace(':', "=")) });
    Sync {
        instance: step.option("instance"),
        kind: step.option("kind").or(base.kind).filter(|_| named),
        protocol: step.option("protocol").or(base.protocol).filter(|_| named),
        given: kept(given.collect()),
        ..base
    }
}

/// Asks, and tells the answer.
fn ask(scene: &mut Scene, step: &Step) -> String {
    let instance = step.option("instance");
    let token = match step.verb {
        "join" => scene.join(join(step)),
        "sync" => scene.sync(ask_sync(step)),
        "heartbeat" => scene.heartbeat(step.word(0), instance, step.number(1)),
        "leave" => {
            let members = step.words().iter().map(|word| match word.split_once('/') {
                Some((id, instance)) => (if id == "-" { "" } else { id }, Some(instance)),
                None => (*word, None),
            });
            scene.leave(&members.collect::<Vec<_>>())
        }
        "commit" => {
            let code = scene.commit(step.word(0), instance, step.number(1));
            return code.name().to_owned();
        }
        other => panic!("no request {other}"),
    };
    scene.said(token)
}

#[test]
fn every_request_is_answered_as_the_table_says() {
    let mut wrong = Vec::new();
    let rows = rows(TABLE);
    assert!(rows.len() >= 147, "{} rows are left", rows.len());
    for row in rows {
        let mut scene = scene(start(&row));
        let said = row.steps.iter().map(|step| ask(&mut scene, step)).last().unwrap();
        let after = scene.phase().text();
        if said.trim_end() != row.said || after != row.after {
            wrong.push(format!("line {}: {said:?} {after:?}, not {row:?}", row.line));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
