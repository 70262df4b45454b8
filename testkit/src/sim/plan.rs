//! What a seed decides before a run begins: who takes part, with which options, and how bad it gets.

use std::fmt::Write as _;
use std::time::Duration;

use super::dice::Dice;

/// Topics that stay, with their numbers of partitions.
pub(crate) const TOPICS: &[(&str, i32)] = &[("orders", 3), ("clicks", 1)];

/// A topic that is deleted and made anew now and then, with its number of partitions.
pub(crate) const FLEETING: (&str, i32) = ("flashes", 1);

/// All topics.
pub(crate) fn topics() -> impl Iterator<Item = (&'static str, i32)> {
    TOPICS.iter().copied().chain([FLEETING])
}

/// Seeds of which each rule that is left out must be noticed (`cargo xtask test gallery`).
const SEEDS_OF_RULES: u64 = 300;

/// How long faults happen.
pub(crate) const SAFETY: Duration = Duration::from_mins(1);

/// A run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) producers: Vec<ProducerPlan>,
    pub(crate) groups: Vec<GroupPlan>,
    /// Faults of single requests and answers, in a thousand.
    pub(crate) mishaps: u64,
    /// Answers that are an error of the broker's, in a thousand, while it has a bad time.
    pub(crate) errors: u64,
    /// Those while the run begins.
    pub(crate) first_errors: u64,
    /// Longest calm between two large faults.
    pub(crate) calm_ms: u64,
}

/// A producer.
#[derive(Debug, Clone)]
pub(crate) struct ProducerPlan {
    /// As `Options::parse` takes them, without the address.
    pub(crate) options: String,
    pub(crate) acks: i16,
    pub(crate) idempotent: bool,
    pub(crate) in_flight: u64,
    pub(crate) buffer: u64,
    pub(crate) delivery: Duration,
    /// Longest pause between two bursts.
    pub(crate) pause_ms: u64,
    /// Most records of a burst.
    pub(crate) burst: u64,
    /// Largest value.
    pub(crate) value_bytes: u64,
    /// Whether its batches are compressed.
    pub(crate) compresses: bool,
}

/// A group of consumers.
#[derive(Debug, Clone)]
pub(crate) struct GroupPlan {
    pub(crate) name: String,
    pub(crate) members: Vec<MemberPlan>,
    /// Whether its programs say of each record when it is finished.
    pub(crate) is_explicit: bool,
}

/// A place in a group, for one consumer after the other.
#[derive(Debug, Clone)]
pub(crate) struct MemberPlan {
    /// As `Options::parse` takes them, without the address and the client's name.
    pub(crate) options: String,
    /// `group.instance.id`: a name that each of its consumers has.
    pub(crate) instance: Option<String>,
    /// Whether its program is told of partitions that come and go.
    pub(crate) listens: bool,
    /// Whether it gives all its partitions up before it joins anew.
    pub(crate) is_eager: bool,
    pub(crate) taking: Taking,
    pub(crate) committing: Committing,
    /// Most records of a batch.
    pub(crate) batch: usize,
    /// Longest time of work on what was taken.
    pub(crate) work_ms: u64,
    pub(crate) buffer: usize,
    pub(crate) poll_interval: Duration,
    pub(crate) api_timeout: Duration,
    /// How bad its program is: things done a thousand loops.
    pub(crate) mischief: u64,
}

/// How records are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taking {
    /// One by one.
    Records,
    /// In batches.
    Batches,
    /// In batches whose records are handed on one by one.
    Handing,
}

/// Who commits, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Committing {
    /// The client.
    Auto,
    /// The program, waiting for it.
    Sync,
    /// The program, without waiting.
    Soon,
    /// The program, naming offsets.
    Named,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let dice = &mut Dice::new(seed ^ 0x0ddb_a11a_5eed_cafe);
        let count = dice.between(2, 3);
        let groups = if dice.per_mille(250) { 2 } else { 1 };
        let mut groups: Vec<_> = (0..groups).map(|number| GroupPlan::of(dice, number)).collect();
        // What comes of the seeds by which rules that are left out are noticed stays as it is.
        if seed >= SEEDS_OF_RULES && seed.is_multiple_of(4) {
            groups.iter_mut().for_each(GroupPlan::acknowledge);
        }
        Self {
            seed,
            groups,
            producers: (0..count).map(|number| ProducerPlan::of(dice, number)).collect(),
            mishaps: dice.pick(&[2, 10, 30]),
            errors: dice.pick(&[50, 200, 500]),
            first_errors: dice.pick(&[0, 0, 300]),
            calm_ms: dice.pick(&[1500, 4000, 8000]),
        }
    }
}

impl Plan {
    /// `delivery.timeout.ms` of the client of a name, in milliseconds, if that is a producer.
    pub(crate) fn delivery_ms(&self, client: &str) -> Option<i64> {
        let number: usize = client.strip_prefix('p')?.parse().ok()?;
        i64::try_from(self.producers.get(number)?.delivery.as_millis()).ok()
    }
}

impl GroupPlan {
    fn of(dice: &mut Dice, number: u64) -> Self {
        let members = dice.between(1, 3);
        // All members of a group must know a way that they share.
        let strategy = dice.pick(&[
            "range",
            "roundrobin",
            "sticky",
            "cooperative-sticky",
            "cooperative-sticky",
            "cooperative-sticky,range",
        ]);
        let name = format!("readers-{number}");
        let named = dice.pick(&[0, 0, 700, 1000]);
        let members = (0..members).map(|seat| {
            let mut plan = MemberPlan::of(dice, strategy);
            if dice.per_mille(named) {
                let instance = format!("{name}-{seat}");
                plan.options.push_str(";group.instance.id=");
                plan.options.push_str(&instance);
                plan.instance = Some(instance);
            }
            plan
        });
        Self { members: members.collect(), name, is_explicit: false }
    }

    /// Has its programs say of each record when it is finished, and name nothing by one.
    fn acknowledge(&mut self) {
        self.is_explicit = true;
        for member in &mut self.members {
            member.options.push_str(";acknowledgement.mode=explicit");
            if matches!(member.committing, Committing::Soon | Committing::Named) {
                member.committing = Committing::Sync;
            }
        }
    }
}

impl MemberPlan {
    fn of(dice: &mut Dice, strategy: &str) -> Self {
        let taking = dice.pick(&[Taking::Records, Taking::Batches, Taking::Handing]);
        let committing = dice.pick(&[
            Committing::Auto,
            Committing::Auto,
            Committing::Sync,
            Committing::Soon,
            Committing::Named,
        ]);
        let poll_interval = dice.pick(&[7000, 12_000, 30_000]);
        let api_timeout = dice.pick(&[2000, 10_000]);
        let buffer = dice.pick(&[4096, 65_536, 67_108_864]);
        let mut options = String::new();
        let written = write!(
            options,
            "partition.assignment.strategy={strategy};auto.offset.reset=earliest;enable.auto.commit={};auto.commit.interval.ms={};\
             session.timeout.ms={};heartbeat.interval.ms={};max.poll.interval.ms={poll_interval};\
             request.timeout.ms={};default.api.timeout.ms={api_timeout};retry.backoff.ms={};\
             fetch.max.wait.ms={};fetch.min.bytes={};fetch.max.bytes={};\
             max.partition.fetch.bytes={};fetch.buffer.memory={buffer};metadata.max.age.ms={}",
            committing == Committing::Auto,
            dice.pick(&[50, 500, 3000]),
            dice.pick(&[6000, 10_000]),
            dice.pick(&[300, 1000, 3000]),
            dice.pick(&[1000, 3000, 10_000]),
            dice.pick(&[5, 100]),
            dice.pick(&[50, 500]),
            dice.pick(&[1, 1, 2000]),
            dice.pick(&[1000, 65_536, 16_777_216]),
            dice.pick(&[300, 16_384, 1_048_576]),
            dice.pick(&[5000, 300_000]),
        );
        debug_assert!(written.is_ok(), "a String takes all");
        Self {
            options,
            instance: None,
            listens: dice.flip(),
            // With a strategy beside it that is not, nobody is cooperative.
            is_eager: strategy != "cooperative-sticky",
            taking,
            committing,
            batch: dice.pick(&[1, 10, usize::MAX]),
            work_ms: dice.pick(&[0, 20, 200]),
            buffer,
            poll_interval: Duration::from_millis(poll_interval),
            api_timeout: Duration::from_millis(api_timeout),
            mischief: dice.pick(&[0, 30, 150]),
        }
    }
}

impl ProducerPlan {
    /// The first producer of a run always keeps the promise of order.
    fn of(dice: &mut Dice, number: u64) -> Self {
        let idempotent = number == 0 || dice.per_mille(700);
        let acks = if idempotent { -1 } else { dice.pick(&[-1, -1, 1, 0]) };
        let in_flight = if idempotent { dice.between(1, 5) } else { dice.pick(&[1, 1, 3, 8]) };
        let linger = dice.pick(&[0, 5, 50, 300]);
        let request = dice.pick(&[1000, 3000, 10_000]);
        let delivery = linger + request + dice.pick(&[500, 4000, 20_000, 110_000]);
        let batch = dice.pick(&[0, 200, 1000, 16_384, 262_144]);
        let buffer = dice.pick(&[32_768, 65_536, 1_048_576]);
        let codec = dice.pick(&["none", "none", "lz4"]);
        let mut options = String::new();
        let written = write!(
            options,
            "client.id=p{number};acks={};enable.idempotence={idempotent};\
             max.in.flight.requests.per.connection={in_flight};linger.ms={linger};\
             request.timeout.ms={request};delivery.timeout.ms={delivery};batch.size={batch};\
             buffer.memory={buffer};compression.type={codec};retry.backoff.ms={};\
             max.block.ms={};metadata.max.age.ms={}",
            if acks == -1 { "all".to_owned() } else { acks.to_string() },
            dice.pick(&[5, 100]),
            dice.pick(&[2000, 60_000]),
            dice.pick(&[5000, 300_000]),
        );
        debug_assert!(written.is_ok(), "a String takes all");
        Self {
            options,
            acks,
            idempotent,
            in_flight,
            buffer,
            delivery: Duration::from_millis(delivery),
            pause_ms: dice.pick(&[200, 600]),
            burst: dice.pick(&[3, 6, 15]),
            value_bytes: dice.pick(&[20, 100, 1500]),
            compresses: codec != "none",
        }
    }
}
