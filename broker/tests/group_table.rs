//! The table of classic groups, row by row, through the socket.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod client;
#[path = "../src/state/group/tests/rows.rs"]
mod rows;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;

use client::Client;
use ottla_broker::{Broker, BrokerConfig};
use ottla_protocol::frame::encode_request;
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::leave_group_request::MemberIdentity;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use ottla_protocol::messages::{
    DescribeGroupsRequest, DescribeGroupsResponse, FindCoordinatorRequest, HeartbeatRequest,
    HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    OffsetCommitRequest, OffsetCommitResponse, SyncGroupRequest, SyncGroupResponse,
};
use ottla_protocol::{ErrorCode, Request, Writer};
use rows::{Step, rows};

const TABLE: &str = include_str!("tables/classic_groups.txt");

/// Looks at a group's state before a test gives up on it.
const LOOKS: usize = 100_000;

/// One group and those who speak for its members, a connection each.
struct Scene {
    address: SocketAddr,
    group: String,
    /// What the broker calls the members that the table calls so.
    ids: BTreeMap<String, String>,
    probe: Client,
    /// Connections whose join or sync may still be unanswered.
    waiting: Vec<(Client, Pending)>,
}

/// What is not answered yet.
struct Pending {
    version: i16,
    kind: Kind,
    /// The table's name of who asks.
    symbol: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Join,
    Sync,
}

impl Scene {
    fn new(broker: &Broker, group: String) -> Self {
        let (address, probe) = (broker.address(), Client::connect(broker.address()));
        Self { address, group, ids: BTreeMap::new(), probe, waiting: Vec::new() }
    }

    /// What the broker calls a member; one that it never named is a stranger.
    fn id(&self, symbol: &str) -> String {
        self.ids.get(symbol).cloned().unwrap_or_else(|| symbol.to_owned())
    }

    /// What the table calls a member.
    fn symbol(&self, id: &str) -> String {
        let known = self.ids.iter().find(|(_, known)| *known == id);
        known.map_or_else(|| id.to_owned(), |(symbol, _)| symbol.clone())
    }

    /// A connection of its own, with the request of a client of that name on its way.
    fn send<'a, R: Request<'a>>(&self, client_id: &str, version: i16, request: &R) -> Client {
        let mut client = Client::connect(self.address);
        let mut writer = Writer::new();
        encode_request(version, 1, Some(client_id), request, &mut writer).expect("a request");
        client.stream.write_all(writer.bytes()).expect("sent");
        client
    }

    /// The state of the group, as tools see it.
    fn state(&mut self) -> String {
        let request =
            DescribeGroupsRequest { groups: vec![&self.group], ..DescribeGroupsRequest::default() };
        let answer = self.probe.call(5, &request);
        let response = answer.decode::<DescribeGroupsResponse<'_>>();
        match response.groups[0].group_state {
            // One that is not there is as empty as one that is.
            "Dead" => "Empty".to_owned(),
            state => state.to_owned(),
        }
    }

    /// Waits until the group is in a state; what it is in, if that never comes.
    fn reach(&mut self, expected: &str) -> String {
        for _ in 0..LOOKS {
            if self.state() == expected {
                return expected.to_owned();
            }
        }
        self.state()
    }

    /// The answer of what waits last; `parked` if there is none.
    fn answer_so_far(&mut self) -> String {
        let (client, pending) = self.waiting.pop().expect("something waits");
        client.stream.set_nonblocking(true).expect("a socket");
        let there = client.stream.peek(&mut [0; 1]);
        client.stream.set_nonblocking(false).expect("a socket");
        match there {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.waiting.push((client, pending));
                "parked".to_owned()
            }
            _ => self.receive(client, &pending),
        }
    }

    fn receive(&mut self, mut client: Client, pending: &Pending) -> String {
        let answer = client.receive(pending.version);
        if pending.kind == Kind::Sync {
            let response = answer.decode::<SyncGroupResponse<'_>>();
            return match response.error_code {
                ErrorCode::NONE => {
                    format!("assigned {}", String::from_utf8_lossy(response.assignment))
                }
                error => error.name().to_owned(),
            };
        }
        let response = answer.decode::<JoinGroupResponse<'_>>();
        if !response.member_id.is_empty() {
            self.ids.insert(pending.symbol.clone(), response.member_id.to_owned());
        }
        if response.error_code != ErrorCode::NONE {
            return response.error_code.name().to_owned();
        }
        let role = if response.leader == response.member_id { "leader" } else { "follower" };
        let skip = if response.skip_assignment { ", skip" } else { "" };
        let (symbol, count) = (self.symbol(response.member_id), response.members.len());
        format!("{symbol} {role} in {}, told of {count}{skip}", response.generation_id)
    }

    /// Sends a join; its answer may take its time.
    fn join(&mut self, step: &Step) {
        let instance = step.option("instance");
        let asked = i16::try_from(step.number_or("v", 3)).expect("a version");
        // The first version that carries an instance id; as to it, the rules are the same.
        let version = if instance.is_some() { asked.max(5) } else { asked };
        let client = step.word(0);
        let metadata = format!("{client}:{}", step.option("topics").unwrap_or("t"));
        let names = step.list("protocols", '+').unwrap_or_else(|| vec!["range"]);
        let protocols = names
            .into_iter()
            .map(|name| JoinGroupRequestProtocol { name, metadata: metadata.as_bytes() });
        let id = step.option("id").unwrap_or_default();
        let member_id = self.id(id);
        let request = JoinGroupRequest {
            group_id: &self.group,
            session_timeout_ms: step.number_or("session", 10_000),
            rebalance_timeout_ms: 60_000,
            member_id: &member_id,
            group_instance_id: instance,
            protocol_type: step.option("kind").unwrap_or("consumer"),
            protocols: protocols.collect(),
            ..JoinGroupRequest::default()
        };
        let name = instance.unwrap_or(client);
        let symbol = if id.is_empty() {
            format!("{name}-{}", step.option("fresh").unwrap_or("0"))
        } else {
            id.to_owned()
        };
        let sent = self.send(client, version, &request);
        self.waiting.push((sent, Pending { version, kind: Kind::Join, symbol }));
    }

    fn sync(&mut self, step: &Step) {
        let named = step.option("unnamed").is_none();
        let member_id = self.id(step.word(0));
        let given: Vec<(String, &str)> = step
            .list("given", ',')
            .unwrap_or_default()
            .into_iter()
            .filter_map(|pair| pair.split_once(':'))
            .map(|(member, what)| (self.id(member), what))
            .collect();
        let assignments = given.iter().map(|(member, what)| SyncGroupRequestAssignment {
            member_id: member,
            assignment: what.as_bytes(),
        });
        let request = SyncGroupRequest {
            group_id: &self.group,
            generation_id: step.number(1),
            member_id: &member_id,
            group_instance_id: step.option("instance"),
            protocol_type: named.then_some(step.option("kind").unwrap_or("consumer")),
            protocol_name: named.then_some(step.option("protocol").unwrap_or("range")),
            assignments: assignments.collect(),
        };
        let version = if named { 5 } else { 4 };
        let sent = self.send("any", version, &request);
        let symbol = step.word(0).to_owned();
        self.waiting.push((sent, Pending { version, kind: Kind::Sync, symbol }));
    }

    fn heartbeat(&mut self, step: &Step) -> ErrorCode {
        let request = HeartbeatRequest {
            group_id: &self.group,
            generation_id: step.number(1),
            member_id: &self.id(step.word(0)),
            group_instance_id: step.option("instance"),
        };
        let answer = self.probe.call(4, &request);
        answer.decode::<HeartbeatResponse>().error_code
    }

    fn leave(&mut self, step: &Step) -> String {
        let members: Vec<(String, Option<&str>)> = step
            .words()
            .iter()
            .map(|word| match word.split_once('/') {
                Some(("-", instance)) => (String::new(), Some(instance)),
                Some((id, instance)) => (self.id(id), Some(instance)),
                None => (self.id(word), None),
            })
            .collect();
        let members = members.iter().map(|(member_id, instance)| MemberIdentity {
            member_id,
            group_instance_id: *instance,
            ..MemberIdentity::default()
        });
        let request = LeaveGroupRequest {
            group_id: &self.group,
            members: members.collect(),
            ..LeaveGroupRequest::default()
        };
        let answer = self.probe.call(4, &request);
        let response = answer.decode::<LeaveGroupResponse<'_>>();
        let codes = response.members.iter().map(|one| one.error_code.name());
        codes.collect::<Vec<_>>().join(" ")
    }

    fn commit(&mut self, step: &Step) -> ErrorCode {
        let partition = OffsetCommitRequestPartition { committed_offset: 7, ..Default::default() };
        let topic = OffsetCommitRequestTopic {
            name: "t",
            partitions: vec![partition],
            ..OffsetCommitRequestTopic::default()
        };
        let request = OffsetCommitRequest {
            group_id: &self.group,
            generation_id_or_member_epoch: step.number(1),
            member_id: &self.id(step.word(0)),
            group_instance_id: step.option("instance"),
            topics: vec![topic],
            ..OffsetCommitRequest::default()
        };
        let answer = self.probe.call(9, &request);
        answer.decode::<OffsetCommitResponse<'_>>().topics[0].partitions[0].error_code
    }

    /// Does a step; what is answered at once. A join or a sync waits for its answer.
    fn ask(&mut self, step: &Step) -> Option<String> {
        match step.verb {
            "join" => {
                self.join(step);
                None
            }
            "sync" => {
                self.sync(step);
                None
            }
            "heartbeat" => Some(self.heartbeat(step).name().to_owned()),
            "leave" => Some(self.leave(step)),
            "commit" => Some(self.commit(step).name().to_owned()),
            other => panic!("no request {other}"),
        }
    }

    /// Does a step on the way to a state, and waits for its answer if it is to have one.
    fn prepare(&mut self, text: &'static str, answered: bool) -> String {
        let text = format!("any | any | {text} | any | any");
        let row = rows(String::leak(text)).pop().expect("a row");
        let said = self.ask(&row.steps[0]);
        if !answered {
            return "parked".to_owned();
        }
        said.unwrap_or_else(|| {
            let (client, pending) = self.waiting.pop().expect("something waits");
            self.receive(client, &pending)
        })
    }

    /// Brings the group into the state that a row begins in.
    fn begin(&mut self, start: &str) {
        if start == "absent" {
            return;
        }
        let is_static = start == "static";
        let (first, again, given) = if is_static {
            ("join a instance=i", "join a v=9 id=i-0 instance=i", "sync i-0 2 given=i-0:p0,b-0:p1")
        } else {
            ("join a", "join a v=9 id=a-0", "sync a-0 2 given=a-0:p0,b-0:p1")
        };
        self.prepare(first, true);
        // Parked until the leader comes back; only then it is known.
        self.prepare("join b", false);
        assert_eq!(self.reach("PreparingRebalance"), "PreparingRebalance");
        let leads = self.prepare(again, true);
        assert!(leads.ends_with("leader in 2, told of 2"), "{leads}");
        let (client, pending) = self.waiting.pop().expect("b waits");
        assert_eq!(self.receive(client, &pending), "b-0 follower in 2, told of 0");
        if start == "completing" {
            return;
        }
        // The leader's ids are the broker's, so they are known by now.
        assert_eq!(self.prepare(given, true), "assigned p0");
        assert_eq!(self.prepare("sync b-0 2", true), "assigned p1");
        match start {
            "preparing" => {
                self.prepare("join c", false);
                assert_eq!(self.reach("PreparingRebalance"), "PreparingRebalance");
            }
            "empty" => {
                assert_eq!(self.prepare("leave a-0 b-0", true), "NONE NONE");
            }
            _ => {}
        }
    }
}

#[test]
fn every_row_of_the_table_holds_through_the_socket() {
    let broker = Broker::start(BrokerConfig::new()).expect("a broker in memory");
    broker.create_topic("t", 1).expect("a topic");
    let mut probe = Client::connect(broker.address());
    let any = FindCoordinatorRequest { key: "any", ..FindCoordinatorRequest::default() };
    probe.call(2, &any);
    let mut wrong = Vec::new();
    let rows = rows(TABLE);
    assert!(rows.len() >= 147, "{} rows are left", rows.len());
    for row in rows {
        let mut scene = Scene::new(&broker, format!("line-{}", row.line));
        scene.begin(row.start);
        let (last, before) = row.steps.split_last().expect("a request");
        for step in before {
            // Of these only an id that is given out, or nothing, is waited for.
            if scene.ask(step).is_none() && step.option("v") == Some("4") {
                let (client, pending) = scene.waiting.pop().expect("a join");
                scene.receive(client, &pending);
            } else {
                scene.reach("PreparingRebalance");
            }
        }
        let said = match scene.ask(last) {
            Some(said) => said,
            None if row.said == "parked" => {
                scene.reach(row.after);
                scene.answer_so_far()
            }
            None => {
                let (client, pending) = scene.waiting.pop().expect("an answer");
                scene.receive(client, &pending)
            }
        };
        let after = scene.reach(row.after);
        if said.trim_end() != row.said || after != row.after {
            wrong.push(format!("line {}: {said:?} {after:?}, not {row:?}", row.line));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
