//! Programs of others that a part needs, and how to get them.

use std::sync::Mutex;
use std::time::Duration;

use crate::outcome::{Done, Stop, in_ci};
use crate::process::Run;

/// A program, how to see that it is there, and the packages that bring it.
#[derive(Debug)]
pub(crate) struct Tool {
    name: &'static str,
    /// A command that succeeds only if the tool is there and new enough.
    probe: &'static [&'static str],
    /// Debian's packages.
    packages: &'static [&'static str],
}

/// A C compiler.
pub(crate) static CC: Tool = Tool { name: "cc", probe: &["cc", "--version"], packages: &["gcc"] };
/// Builds what is in C and of others.
pub(crate) static MAKE: Tool =
    Tool { name: "make", probe: &["make", "--version"], packages: &["make"] };
/// A Go compiler, which fetches modules.
pub(crate) static GO: Tool =
    Tool { name: "go", probe: &["go", "version"], packages: &["golang-go"] };
/// A C++ compiler: the C header must be fit for it too.
pub(crate) static CXX: Tool =
    Tool { name: "c++", probe: &["c++", "--version"], packages: &["g++"] };
/// `strip` and `nm`.
pub(crate) static BINUTILS: Tool =
    Tool { name: "binutils", probe: &["nm", "--version"], packages: &["binutils"] };
/// Tells a C compiler where a library stands.
pub(crate) static PKG_CONFIG: Tool =
    Tool { name: "pkg-config", probe: &["pkg-config", "--version"], packages: &["pkg-config"] };
/// Sees what a program does with its memory.
pub(crate) static VALGRIND: Tool =
    Tool { name: "valgrind", probe: &["valgrind", "--version"], packages: &["valgrind"] };
/// Python 3.11 or later, able to make virtual environments.
pub(crate) static PYTHON: Tool = Tool {
    name: "python3 (3.11 or later, with venv)",
    probe: &[
        "python3",
        "-c",
        "import sys, venv, ensurepip; sys.exit(0 if sys.version_info >= (3, 11) else 1)",
    ],
    packages: &["python3", "python3-venv"],
};
/// Node 20 or later, with npm.
pub(crate) static NODE: Tool = Tool {
    name: "node (20 or later)",
    probe: &["node", "-e", "process.exit(+process.versions.node.split('.')[0] < 20 ? 1 : 0)"],
    packages: &["nodejs"],
};
/// Node's package manager.
pub(crate) static NPM: Tool =
    Tool { name: "npm", probe: &["npm", "--version"], packages: &["npm"] };
/// A Java runtime, for Apache Kafka.
pub(crate) static JAVA: Tool =
    Tool { name: "java", probe: &["java", "-version"], packages: &["default-jre-headless"] };
/// A Java compiler, and `jar`, which unpacks.
pub(crate) static JDK: Tool =
    Tool { name: "javac", probe: &["javac", "-version"], packages: &["default-jdk-headless"] };
/// Fetches Apache Kafka.
pub(crate) static MAVEN: Tool =
    Tool { name: "mvn", probe: &["mvn", "--version"], packages: &["maven"] };
/// A Kafka client on the command line, built on librdkafka.
pub(crate) static KCAT: Tool = Tool { name: "kcat", probe: &["kcat", "-V"], packages: &["kcat"] };

/// Longest a package manager may take.
const INSTALL_LIMIT: Duration = Duration::from_mins(10);
/// Longest a tool may take to say its version.
const PROBE_LIMIT: Duration = Duration::from_mins(1);

impl Tool {
    fn there(&self) -> bool {
        let Some((program, args)) = self.probe.split_first() else { return false };
        let run = Run::new(program).args(args).quiet().limit(PROBE_LIMIT);
        run.finish().is_ok_and(|finished| finished.status.success())
    }

    fn missing(&self) -> Stop {
        let install = format!("apt-get install {}", self.packages.join(" "));
        Stop::Missing { tool: self.name, install }
    }
}

/// Sees that the tools are there. In CI, as root, what is missing is installed.
pub(crate) fn need(tools: &[&'static Tool]) -> Done {
    for tool in tools {
        if tool.there() {
            continue;
        }
        if !(in_ci() && rustix::process::geteuid().is_root()) {
            return Err(tool.missing());
        }
        install(tool.packages)?;
        if !tool.there() {
            return Err(tool.missing());
        }
    }
    Ok(())
}

fn install(packages: &[&str]) -> Done {
    static LISTS_FETCHED: Mutex<bool> = Mutex::new(false);
    let mut fetched = LISTS_FETCHED.lock().map_err(|_| Stop::from("a panic before"))?;
    let apt = || Run::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").limit(INSTALL_LIMIT);
    if !*fetched {
        apt().args(["update", "-q"]).quiet().check()?;
        *fetched = true;
    }
    apt()
        .args(["install", "-y", "-q", "--no-install-recommends"])
        .args(packages)
        .quiet()
        .check()?;
    Ok(())
}
