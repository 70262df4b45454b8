//! confluent-kafka for Python, as a client of our broker.

use crate::dist::python::Venv;
use crate::outcome::{Count, Done};
use crate::results;
use crate::tools::{self, PYTHON};
use crate::workspace::Workspace;

use super::ours::{OurBroker, Profile};

const CLIENT: &str = "confluent-kafka==2.16.1";

/// A Python environment that holds the client.
pub(crate) fn environment(workspace: &Workspace) -> Done<Venv> {
    tools::need(&[&PYTHON])?;
    Venv::kept(workspace, "confluent", &[CLIENT])
}

pub(super) fn against_our_broker(workspace: &Workspace) -> Done<Count> {
    let venv = environment(workspace)?;
    let program = OurBroker::build(workspace, Profile::Dev)?;
    let scratch = workspace.scratch("confluent")?;
    let broker = OurBroker::start(&program, scratch.path(), &[])?;
    let script = venv.run("python").arg(workspace.root.join("interop/confluent_smoke.py"));
    let finished = script.arg(broker.address()).finish()?;
    let mut total = results::settle(&finished, results::plain)?;
    let stopped = broker.stop().map_err(|stop| stop.to_string());
    total += Count::check("our broker stops cleanly on SIGTERM", stopped);
    Ok(total)
}
