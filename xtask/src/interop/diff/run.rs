//! One conversation with one broker: what was sent, and what was heard.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Instant;

use super::asking::{ASK_AGAIN, Asking, UNTIL_LIMIT};
use super::codec::{Spec, encode};
use super::connection::{Asked, Connection, Instead};
use super::evaluate::Scope;
use super::request::Options;
use super::script::{Action, Call, Capture, Conversation, Expr, Versions};
use super::value::Value;

/// The name under which it is noted that there was no answer.
pub(super) const CONNECTION: &str = "(connection)";

/// One of the two brokers.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    pub(super) cluster: String,
}

/// One answer, or what came in its place.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    /// The number of the step in its conversation.
    pub(super) step: usize,
    pub(super) api: String,
    pub(super) version: i16,
    pub(super) answer: Value,
}

/// All that was heard in a conversation.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    pub(super) heard: Vec<Heard>,
    /// Values that the broker gave, and the names that they have in the conversation.
    pub(super) roles: Vec<(Value, String)>,
    /// APIs and versions that were asked and answered.
    pub(super) covered: BTreeSet<(String, i16)>,
    /// Why the conversation could not go on.
    pub(super) stopped: Option<String>,
}

struct Run<'a> {
    spec: &'a Spec,
    peer: &'a Peer,
    scope: Scope<'a>,
    connections: BTreeMap<String, Connection>,
    step: usize,
    transcript: Transcript,
}

/// Holds a conversation; `version` is what `$v` stands for in one that runs for `each` version.
pub(super) fn run(
    spec: &Spec,
    peer: &Peer,
    conversation: &Conversation,
    version: Option<i16>,
) -> Transcript {
    let prefix = match version {
        Some(version) => format!("{}-v{version}-", conversation.name),
        None => format!("{}-", conversation.name),
    };
    let shorthands = &conversation.shorthands;
    let mut scope = Scope { shorthands, prefix, variables: BTreeMap::new() };
    scope.set("cluster", Value::text(&peer.cluster));
    if let Some(version) = version {
        scope.set("v", Value::Number(i64::from(version)));
    }
    let transcript = Transcript::default();
    let mut run = Run { spec, peer, scope, connections: BTreeMap::new(), step: 0, transcript };
    for (at, step) in conversation.steps.iter().enumerate() {
        run.step = at;
        if let Err(why) = run.take(&step.connection, &step.action) {
            run.transcript.stopped = Some(format!("line {}: {why}", step.line));
            break;
        }
    }
    run.transcript
}

impl Run<'_> {
    fn take(&mut self, connection: &str, action: &Action) -> Result<(), String> {
        match action {
            Action::Let(name, expr) => {
                let value = self.scope.value(expr)?;
                self.scope.set(name, value);
            }
            Action::Topic { name, id, fields } => self.topic(name, id.as_deref(), fields)?,
            Action::Call(call) => self.call(connection, call)?,
            Action::Receive(captures) => {
                let answer = self.receive(connection)?;
                self.capture(&answer, captures)?;
            }
            Action::Quiet(limit) => {
                let found = self.connection(connection)?.peek(*limit);
                self.note("quiet", found);
            }
            Action::Raw(expr) => match self.scope.value(expr)? {
                Value::Bytes(bytes) => self.connection(connection)?.send(&bytes),
                other => return Err(format!("raw takes bytes, not {other}")),
            },
            Action::Rest => self.connection(connection)?.send_rest(),
            Action::Closed => {
                let found = self.connection(connection)?.closed();
                self.note("closed", found);
            }
            Action::Close => drop(self.connections.remove(connection)),
        }
        Ok(())
    }

    fn connection(&mut self, name: &str) -> Result<&mut Connection, String> {
        if !self.connections.contains_key(name) {
            let opened = Connection::open(self.peer.address).map_err(|stop| stop.to_string())?;
            self.connections.insert(name.to_owned(), opened);
        }
        self.connections.get_mut(name).ok_or_else(|| format!("no connection {name}"))
    }

    /// Notes what was found where no answer is read.
    fn note(&mut self, step: &str, found: Instead) {
        let answer = instead(found);
        self.hear(Heard { step: self.step, api: step.to_owned(), version: 0, answer });
    }

    fn hear(&mut self, heard: Heard) {
        self.transcript.heard.push(heard);
    }

    /// Makes a topic and waits until the broker serves it. This is not compared.
    fn topic(&mut self, name: &Expr, id: Option<&str>, fields: &Expr) -> Result<(), String> {
        let name = self.scope.value(name)?;
        let fields = self.scope.value(fields)?;
        let set = |field: &str, unset: Value| {
            (field.to_owned(), fields.field(field).cloned().unwrap_or(unset))
        };
        let topic = Value::Struct(vec![
            ("Name".to_owned(), name.clone()),
            set("NumPartitions", Value::Number(1)),
            set("ReplicationFactor", Value::Number(1)),
            set("Configs", Value::List(Vec::new())),
        ]);
        let mut asking = Asking::open(self.spec, self.peer)?;
        asking.create(&topic)?;
        let partitions = fields.field("NumPartitions").cloned().unwrap_or(Value::Number(1));
        let found = asking.until_served(&name, &partitions)?;
        if let Some(id) = id {
            self.transcript.roles.push((found.clone(), format!("${id}")));
            self.scope.set(id, found);
        }
        Ok(())
    }

    fn call(&mut self, connection: &str, call: &Call) -> Result<(), String> {
        let versions = self.versions(call)?;
        let outer = self.scope.variables.get("v").cloned();
        for version in versions {
            self.scope.set("v", Value::Number(i64::from(version)));
            self.call_version(connection, call, version)?;
        }
        match outer {
            Some(outer) => self.scope.set("v", outer),
            None => drop(self.scope.variables.remove("v")),
        }
        Ok(())
    }

    fn versions(&self, call: &Call) -> Result<Vec<i16>, String> {
        let span = self.spec.request(&call.api)?.versions;
        Ok(match call.versions {
            Versions::All => (span.min..=span.max).collect(),
            Versions::Range(first, last) => (first..=last).collect(),
            Versions::Current => match self.scope.get("v")? {
                Value::Number(version) => {
                    let version = i16::try_from(*version).unwrap_or(i16::MAX);
                    vec![version.clamp(span.min, span.max)]
                }
                other => return Err(format!("$v is {other}")),
            },
        })
    }

    fn call_version(&mut self, connection: &str, call: &Call, version: i16) -> Result<(), String> {
        let end = Instant::now() + UNTIL_LIMIT;
        let until = match &call.until {
            Some((path, expr)) => Some((path, self.scope.value(expr)?)),
            None => None,
        };
        loop {
            self.send(connection, call, version)?;
            if !call.ask {
                return Ok(());
            }
            let answer = self.receive(connection)?;
            if let Some((path, wanted)) = &until
                && answer.at(path) != Some(wanted)
                && answer.field(CONNECTION).is_none()
            {
                if Instant::now() >= end {
                    let found = answer.at(path).map_or_else(|| "nothing".to_owned(), Value::shown);
                    return Err(format!("{path} is {found} and never {wanted}"));
                }
                self.transcript.heard.pop();
                std::thread::sleep(ASK_AGAIN);
                continue;
            }
            return self.capture(&answer, &call.captures);
        }
    }

    fn send(&mut self, connection: &str, call: &Call, version: i16) -> Result<(), String> {
        let message = self.spec.request(&call.api)?;
        let flexible = version >= message.first_flexible;
        let body = encode(message, version, &self.scope.value(&call.fields)?)
            .map_err(|error| format!("{} v{version}: {error}", call.api))?;
        let options = match &call.options {
            Some(options) => self.scope.value(options)?,
            None => Value::Struct(Vec::new()),
        };
        let options = Options::new(&options)?;
        let key = self.spec.key(&call.api)?;
        let open = self.connection(connection)?;
        let id = open.next_id();
        let frame = options.frame(key, version, id, flexible, body)?;
        match options.first {
            Some(first) => open.send_part(&frame, first),
            None => open.send(&frame),
        }
        if !options.silent {
            let version = options.answered.unwrap_or(version);
            open.asked.push_back(Asked {
                id,
                api: call.api.clone(),
                version,
                regular: options.regular(),
            });
        }
        Ok(())
    }

    fn receive(&mut self, connection: &str) -> Result<Value, String> {
        let spec = self.spec;
        let open = self.connection(connection)?;
        let asked = open.asked.pop_front().ok_or("no answer is due on this connection")?;
        let answer = match open.receive() {
            Err(found) => instead(found),
            Ok(frame) => match frame.split_first_chunk() {
                Some((id, body)) if i32::from_be_bytes(*id) == asked.id => {
                    let decoded = spec.decode(&asked.api, asked.version, body);
                    decoded.unwrap_or_else(|error| odd(format!("an answer that is none: {error}")))
                }
                _ => odd("the answer to another request".to_owned()),
            },
        };
        if asked.regular && answer.field(CONNECTION).is_none() {
            self.transcript.covered.insert((asked.api.clone(), asked.version));
        }
        let (api, version) = (asked.api, asked.version);
        self.hear(Heard { step: self.step, api, version, answer: answer.clone() });
        Ok(answer)
    }

    fn capture(&mut self, answer: &Value, captures: &[Capture]) -> Result<(), String> {
        for Capture { name, path } in captures {
            let found = answer
                .at(path)
                .ok_or_else(|| format!("there is no {path} in {}", answer.shown()))?
                .clone();
            self.transcript.roles.push((found.clone(), format!("${name}")));
            self.scope.set(name, found);
        }
        Ok(())
    }
}

fn instead(found: Instead) -> Value {
    odd(match found {
        Instead::Closed => "closed".to_owned(),
        Instead::Silence => "silent".to_owned(),
        Instead::Bytes => "bytes come".to_owned(),
    })
}

fn odd(what: String) -> Value {
    Value::Struct(vec![(CONNECTION.to_owned(), Value::Text(what))])
}
