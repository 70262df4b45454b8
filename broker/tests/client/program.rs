//! The program `ottla-broker`, for tests that end it from outside.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// The program, running.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ottla-broker"));
        Self::ready(program.args(["--listen", "127.0.0.1:0"]).args(arguments))
    }

    /// Runs a command that is or becomes the program, until it says where it listens.
    pub(crate) fn ready(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its standard output");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("ready ").expect("ready HOST:PORT");
        let address = address.parse().expect("an address");
        Self { child, address }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().expect("kill");
        assert!(sent.success());
    }

    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.child.kill().is_err();
        let _reaped = self.child.wait().is_err();
    }
}
