//! Apache Kafka from its published jars: one combined broker and controller on loopback.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::outcome::Done;
use crate::process::{Run, Service};
use crate::tools::{self, JAVA, MAVEN};
use crate::workspace::{Workspace, free_port, read, write};

use super::wire;

/// The version that `interop/kafka/pom.xml` names.
pub(super) const VERSION: &str = "4.4.0";
/// 16 bytes in URL-safe base64, as the format tool wants them.
const CLUSTER_ID: &str = "b3R0bGEtaW50ZXJvcC0wMQ";
const PROPERTIES: &str = "server.properties";
const READY_LIMIT: Duration = Duration::from_mins(1);
const STOP_LIMIT: Duration = Duration::from_secs(30);
const LOGGING: &str = "Configuration:\n  Appenders: {Console: {name: S, \
    PatternLayout: {pattern: \"[%d] %p %m (%c)%n\"}}}\n  \
    Loggers: {Root: {level: INFO, AppenderRef: {ref: S}}}\n";

/// A running Apache Kafka. It ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct Kafka {
    service: Service,
    address: SocketAddr,
}

impl Kafka {
    /// Fetches the jars and gives the class path, for a machine that has a Java runtime.
    pub(crate) fn fetch(workspace: &Workspace) -> Done<PathBuf> {
        tools::need(&[&JAVA])?;
        Ok(Self::fetch_jars(workspace)?.join("*"))
    }

    /// Fetches the jars, once for each state of the pom, and gives their folder.
    pub(super) fn fetch_jars(workspace: &Workspace) -> Done<PathBuf> {
        let pom = workspace.root.join("interop/kafka/pom.xml");
        let home = workspace.cache("interop/kafka")?;
        let (lib, stamp) = (home.join("lib"), home.join("fetched.pom"));
        if !(stamp.is_file() && read(&stamp)? == read(&pom)?) {
            tools::need(&[&MAVEN])?;
            let mut folder = OsString::from("-DoutputDirectory=");
            folder.push(&lib);
            let maven = Run::new("mvn").args(["-q", "-B", "-f"]).arg(&pom);
            let maven = maven.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
            maven.arg(folder).quiet().check()?;
            write(&stamp, read(&pom)?)?;
        }
        Ok(lib)
    }

    /// Formats a new data folder under `dir`, starts Kafka on free ports, waits until it answers.
    /// Tells too how long that took from the start of the process.
    pub(crate) fn start_timed(classes: &Path, dir: &Path) -> Done<(Self, Duration)> {
        Self::start_with(classes, dir, &[])
    }

    /// The same with settings of the caller's, as `name=value`; they hold before our own.
    pub(crate) fn start_with(classes: &Path, dir: &Path, more: &[&str]) -> Done<(Self, Duration)> {
        let address = Self::format(classes, dir)?;
        Self::configure(dir, more)?;
        Self::launch(classes, dir, address)
    }

    /// Adds settings, as `name=value`, to those of a folder formatted before.
    pub(crate) fn configure(dir: &Path, more: &[&str]) -> Done {
        let properties = dir.join(PROPERTIES);
        let settings = read(&properties)? + &more.join("\n") + "\n";
        write(&properties, settings)
    }

    /// Settings for a broker that will take over the data folder that is there under `dir`; gives
    /// the free address on which it will listen.
    pub(super) fn adopt(dir: &Path) -> Done<SocketAddr> {
        let (port, controller) = (free_port()?, free_port()?);
        write(&dir.join(PROPERTIES), settings(dir, port, controller))?;
        write(&dir.join("log4j2.yaml"), LOGGING)?;
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Formats a new data folder under `dir` for a broker that will listen on this free address.
    pub(crate) fn format(classes: &Path, dir: &Path) -> Done<SocketAddr> {
        let address = Self::adopt(dir)?;
        let properties = dir.join(PROPERTIES);
        let format = Run::new("java").arg("-cp").arg(classes);
        let format = format.args(["kafka.tools.StorageTool", "format", "--standalone"]);
        let format = format.args(["-t", CLUSTER_ID, "-c"]).arg(&properties);
        format.dir(dir).quiet().check()?;
        Ok(address)
    }

    /// Starts Kafka on a folder that was formatted before, for its first or a later life.
    pub(crate) fn launch(
        classes: &Path,
        dir: &Path,
        address: SocketAddr,
    ) -> Done<(Self, Duration)> {
        let java = Run::new("java").args(["-Xmx1G", "-Xms1G", "-XX:+UseG1GC"]);
        let java = java.args(Self::class_and_arguments(classes, dir)).dir(dir);
        let begin = Instant::now();
        let mut service = java.start(&dir.join("kafka.log"))?;
        wire::wait_until_it_answers(&mut service, address, READY_LIMIT)?;
        Ok((Self { service, address }, begin.elapsed()))
    }

    /// The command that starts Kafka for a short life on a folder that was formatted before. What
    /// it says goes to `kafka.log` there.
    pub(super) fn command(classes: &Path, dir: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            ["sh", "-c", "exec \"$@\" >>\"$0\" 2>&1"].map(OsString::from).to_vec();
        words.push(dir.join("kafka.log").into());
        // The second compiler takes the processor, and pays off too late.
        let java = ["java", "-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
        words.extend(java.map(OsString::from));
        words.extend(Self::class_and_arguments(classes, dir));
        words
    }

    fn class_and_arguments(classes: &Path, dir: &Path) -> [OsString; 5] {
        let mut logging = OsString::from("-Dlog4j2.configurationFile=");
        logging.push(dir.join("log4j2.yaml"));
        let class = OsString::from("kafka.Kafka");
        [logging, "-cp".into(), classes.into(), class, dir.join(PROPERTIES).into()]
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.service.pid()
    }

    /// Stops it by SIGTERM; it must end by that, not have ended before by a fault of its own.
    pub(crate) fn stop(self) -> Done {
        let status = self.service.stop(STOP_LIMIT)?;
        match status.code() {
            // So a JVM ends whose hooks have run: 128 and the signal's number.
            Some(143) => Ok(()),
            _ => Err(format!("Apache Kafka ended with {status} after SIGTERM").into()),
        }
    }
}

fn settings(dir: &Path, port: u16, controller: u16) -> String {
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\n\
         inter.broker.listener.name=PLAINTEXT\n\
         log.dirs={}\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         num.partitions=3\n",
        dir.join("data").display()
    )
}
