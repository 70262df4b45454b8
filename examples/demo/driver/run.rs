//! The run: a broker, four members of a group, four senders, and a change of member under load.

use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerConfig};

use crate::Failure;
use crate::arguments::Arguments;
use crate::deal::{Hands, LANGUAGES};
use crate::feed::{self, Gate};
use crate::flights::Flights;
use crate::ledger::{Account, Change, Outcome};
use crate::program::{Program, Said, Verb};
use crate::report::Progress;

/// The topic of the flights.
const TOPIC: &str = "flights";
/// Partitions of the topic: three a member while there are four.
const PARTITIONS: i32 = 12;
/// The group of the members.
const GROUP: &str = "departures";
/// The language whose member changes.
const CHANGES: usize = 1;
/// Longest time without a line from any program.
const SILENCE: Duration = Duration::from_secs(30);
/// How often the loop looks up although nothing was said.
const TICK: Duration = Duration::from_millis(100);

/// Runs the demo. An error if it cannot be run; what the checks find is not one.
pub(crate) fn run(
    arguments: &Arguments,
    flights: &Arc<Flights>,
    hands: &Hands,
) -> Result<Outcome, Failure> {
    let config = BrokerConfig::new().data_dir(&arguments.folder);
    let broker = Broker::start(config)?;
    broker.create_topic(TOPIC, PARTITIONS)?;
    let address = broker.bootstrap();
    println!("broker at {address}, {} flights, {PARTITIONS} partitions", flights.all.len());
    let (said, lines) = channel();
    let mut stage = Stage {
        arguments,
        flights,
        address,
        said,
        programs: Vec::new(),
        inputs: Vec::new(),
        accounts: Vec::new(),
        progress: Progress::new(flights.all.len()),
        heard: Instant::now(),
    };
    let outcome = stage.play(&lines, hands)?;
    drop(stage);
    broker.stop(Duration::from_secs(10))?;
    Ok(outcome)
}

/// All that is on the stage.
struct Stage<'a> {
    arguments: &'a Arguments,
    flights: &'a Arc<Flights>,
    address: String,
    said: Sender<Said>,
    programs: Vec<Program>,
    /// The inputs of the members, by number; dropping one asks its member to leave.
    inputs: Vec<Option<ChildStdin>>,
    accounts: Vec<Account>,
    progress: Progress,
    heard: Instant,
}

impl Stage<'_> {
    fn play(&mut self, lines: &Receiver<Said>, hands: &Hands) -> Result<Outcome, Failure> {
        for language in 0..LANGUAGES.len() {
            self.enter(language, Verb::Consume)?;
        }
        while !self.all_members_assigned() {
            if self.hear(lines)? {
                return Err("the group did not form".into());
            }
        }
        let begun = Instant::now();
        let gate = Arc::new(Gate::new(self.share(70)));
        let mut feeds = Vec::new();
        for (language, hand) in hands.iter().enumerate() {
            let number = self.enter(language, Verb::Produce)?;
            let input = self.inputs[number].take().ok_or("a sender without an input")?;
            feeds.push(feed::start(self.flights, hand.clone(), &gate, input)?);
        }
        let sent: usize = hands.iter().map(Vec::len).sum();
        let (change, stalled) = self.stream(lines, &gate, sent)?;
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if stalled.is_none() {
            for feed in feeds {
                feed.join().map_err(|_| "a stream broke off")??;
            }
        }
        self.leave(lines)?;
        let accounts = std::mem::take(&mut self.accounts);
        Ok(Outcome { accounts, change, millis, stalled })
    }

    /// Follows the stream until all that is sent is read, and changes a member in its midst.
    fn stream(
        &mut self,
        lines: &Receiver<Said>,
        gate: &Gate,
        sent: usize,
    ) -> Result<(Change, Option<String>), Failure> {
        let (mut change, mut successor) = (Change::default(), None);
        while !(self.read() >= sent && self.senders_done() && change.joined.is_some()) {
            if self.hear(lines)? {
                let why = format!("{} of {sent} records read, then silence", self.read());
                return Ok((change, Some(why)));
            }
            let unread = self.flights.all.len().saturating_sub(self.read());
            if change.left.is_none() && self.read() >= self.share(30) {
                change.left = Some(unread);
                self.inputs[CHANGES] = None;
            }
            if self.accounts[CHANGES].finished && successor.is_none() {
                successor = Some(self.enter(CHANGES, Verb::Consume)?);
            }
            if let Some(number) = successor
                && change.joined.is_none()
                && self.accounts[number].assigned > 0
            {
                change.joined = Some(unread);
                gate.open();
            }
        }
        Ok((change, None))
    }

    /// Asks all members to leave and waits for the end of every program.
    fn leave(&mut self, lines: &Receiver<Said>) -> Result<(), Failure> {
        self.inputs.iter_mut().for_each(|input| *input = None);
        while self.members().any(|account| !account.finished) {
            if self.hear(lines)? {
                return Err("a member did not leave in time".into());
            }
        }
        let done = self.programs.iter_mut().zip(&self.accounts);
        for (program, _) in done.filter(|(_, account)| account.finished) {
            program.end()?;
        }
        self.progress.end();
        Ok(())
    }

    /// Starts a program.
    fn enter(&mut self, language: usize, verb: Verb) -> Result<usize, Failure> {
        let number = self.programs.len();
        let command = &self.arguments.programs[language];
        let arguments: &[&str] = match verb {
            Verb::Produce => &[&self.address, TOPIC],
            Verb::Consume => &[&self.address, TOPIC, GROUP],
        };
        let (program, input) =
            Program::start(number, language, verb, command, arguments, self.said.clone())?;
        self.accounts.push(Account::new(language, verb, program.pid));
        self.programs.push(program);
        self.inputs.push(Some(input));
        Ok(number)
    }

    /// Takes in what was said, if anything was. True once it has been silent for too long.
    fn hear(&mut self, lines: &Receiver<Said>) -> Result<bool, Failure> {
        match lines.recv_timeout(TICK) {
            Ok(said) => {
                self.heard = Instant::now();
                let account = &mut self.accounts[said.program];
                match said.line {
                    Some(line) => account.handle_line(&line, self.flights)?,
                    None if !account.finished => {
                        self.programs[said.program].end()?;
                        let name = self.programs[said.program].name();
                        return Err(format!("the {name} program said no last line").into());
                    }
                    None => {}
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("no program is left".into()),
        }
        let sent = self.with(Verb::Produce).map(|account| account.records).sum();
        self.progress.show(sent, self.read());
        Ok(self.heard.elapsed() > SILENCE)
    }

    fn with(&self, verb: Verb) -> impl Iterator<Item = &Account> {
        self.accounts.iter().filter(move |account| account.verb == verb)
    }

    fn members(&self) -> impl Iterator<Item = &Account> {
        self.with(Verb::Consume)
    }

    fn all_members_assigned(&self) -> bool {
        let assigned: usize = self.members().map(|account| account.assigned).sum();
        let partitions = usize::try_from(PARTITIONS).unwrap_or_default();
        assigned == partitions && self.members().all(|account| account.assigned > 0)
    }

    fn senders_done(&self) -> bool {
        self.with(Verb::Produce).all(|account| account.finished)
    }

    fn read(&self) -> usize {
        self.members().map(|account| account.records).sum()
    }

    /// So many hundredths of all flights.
    fn share(&self, hundredths: usize) -> usize {
        self.flights.all.len() * hundredths / 100
    }
}
