//! The broker as one program.

mod mend;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ottla_broker::{Broker, BrokerConfig, OPTIONS, StopSignals};
use tracing_subscriber::EnvFilter;

/// The port that Kafka's clients try first.
const LISTEN: &str = "127.0.0.1:9092";

/// Which log lines are written: `OTTLA_LOG=debug`, or targets with levels.
const LOG_VARIABLE: &str = "OTTLA_LOG";

fn main() -> ExitCode {
    let arguments = command().get_matches();
    if let Some((name, arguments)) = arguments.subcommand() {
        return mend::run(name, arguments);
    }
    let filter =
        EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_unset| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // Where standard error is gone, the exit status still tells.
            let _told = writeln!(io::stderr(), "ottla-broker: {reason}").is_ok();
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let mut options = format!(
        "Log lines go to standard error, from the level info on; {LOG_VARIABLE}=warn in the \
         environment has fewer written, {LOG_VARIABLE}=debug more.\n\n\
         Options for -c and --config, with their defaults:\n"
    );
    for row in OPTIONS {
        options.extend(["  ", row.name, "=", row.default, "\n      ", row.doc, "\n"]);
    }
    Command::new("ottla-broker")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A broker that speaks the Apache Kafka protocol")
        .after_long_help(options)
        .args_conflicts_with_subcommands(true)
        .subcommands(mend::commands())
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("HOST:PORT")
                .help("Address to listen on; port 0 takes a free one [default: 127.0.0.1:9092]"),
        )
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("File of options in Kafka's form; what else is given here goes before it"),
        )
        .arg(
            Arg::new("data")
                .long("data")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("memory")
                .help("Folder that keeps the data"),
        )
        .arg(
            Arg::new("memory")
                .long("memory")
                .action(ArgAction::SetTrue)
                .help("Keep all data in memory, which is the default"),
        )
        .arg(
            Arg::new("ready-file")
                .long("ready-file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("File that receives HOST:PORT once the broker serves"),
        )
        .arg(
            Arg::new("option")
                .short('c')
                .value_name("KEY=VALUE")
                .action(ArgAction::Append)
                .help("Option under Kafka's name; --help lists them"),
        )
}

fn run(arguments: &ArgMatches) -> Result<(), String> {
    raise_descriptors();
    let config = config(arguments)?;
    // Before the broker's threads start, so that the signal waits for us on all of them.
    let signals = StopSignals::hold().map_err(|error| format!("signals: {error}"))?;
    let broker = Broker::start(config).map_err(|error| error.to_string())?;
    let address = broker.bootstrap();
    if let Some(file) = arguments.get_one::<PathBuf>("ready-file") {
        write_ready_file(file, &address)
            .map_err(|error| format!("cannot write the ready file {}: {error}", file.display()))?;
    }
    let mut out = io::stdout().lock();
    writeln!(out, "ready {address}")
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot write to standard output: {error}"))?;
    drop(out);
    signals.wait().map_err(|error| format!("signals: {error}"))?;
    broker.stop(Broker::STOP_DEADLINE).map_err(|error| error.to_string())
}

fn config(arguments: &ArgMatches) -> Result<BrokerConfig, String> {
    let config = BrokerConfig::new().listen(LISTEN);
    // A disk that is filled to its last byte is hard to get out of; a program has it for long.
    let config = config.set("disk.reserve.bytes", "-1");
    let mut config = config.map_err(|error| error.to_string())?;
    if let Some(file) = arguments.get_one::<PathBuf>("config") {
        config = config.file(file).map_err(|error| error.to_string())?;
    }
    config = options(config, arguments)?;
    if let Some(address) = arguments.get_one::<String>("listen") {
        config = config.listen(address);
    }
    if let Some(folder) = arguments.get_one::<PathBuf>("data") {
        config = config.data_dir(folder);
    } else if arguments.get_flag("memory") {
        config = config.memory();
    } else if config.is_in_memory() {
        tracing::info!("no --data: all data is kept in memory and ends with this process");
    }
    Ok(config)
}

/// Sets what `-c` gives.
fn options(mut config: BrokerConfig, arguments: &ArgMatches) -> Result<BrokerConfig, String> {
    for option in arguments.get_many::<String>("option").into_iter().flatten() {
        let (name, value) =
            option.split_once('=').ok_or_else(|| format!("-c {option}: expected KEY=VALUE"))?;
        config = config.set(name.trim(), value).map_err(|error| error.to_string())?;
    }
    Ok(config)
}

/// Takes as many descriptors as the system allows, as a Java machine does: connections and logs
/// need them.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if let Err(error) = raised {
        tracing::debug!(%error, "the limit of descriptors stays as it is");
    }
}

/// Puts the address there in one move, so that nobody reads half of it.
fn write_ready_file(file: &Path, address: &str) -> io::Result<()> {
    let mut aside = file.as_os_str().to_owned();
    aside.push(".tmp");
    let aside = PathBuf::from(aside);
    fs::write(&aside, format!("{address}\n"))?;
    fs::rename(&aside, file)
}
