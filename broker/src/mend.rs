//! The commands that look at a data folder and mend it, while no broker has it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ottla_storage::check::{DirectoryCheck, Severity, check_directory};
use ottla_storage::folder::parse_folder_name;
use ottla_storage::{DirectoryLock, DiskFiles, repair};

/// The file by which a broker knows its folder, written before any partition's.
const META_PROPERTIES: &str = "meta.properties";

/// Exit status where the command itself could not be carried out.
const UNABLE: u8 = 2;

/// `ottla-broker check` and `ottla-broker repair`.
pub(crate) fn commands() -> [Command; 2] {
    let data = || {
        Arg::new("data")
            .long("data")
            .value_name("DIR")
            .value_parser(value_parser!(PathBuf))
            .required(true)
            .help("Folder that keeps the data")
    };
    let partition = || {
        Arg::new("partition")
            .long("partition")
            .value_name("TOPIC-N")
            .help("One partition only, by its folder's name")
    };
    let check = Command::new("check")
        .about("Reads a data folder and tells what is damaged in it; changes nothing")
        .after_help(
            "Exit status: 0 without damage, 1 with damage, 2 if the folder cannot be \
             read or is none of a broker's.\n\
             While a broker has the folder, its newest batches may look torn.",
        )
        .arg(data())
        .arg(partition());
    let repair = Command::new("repair")
        .about("Tells what would be dropped to mend a data folder; with --yes, does it")
        .after_help(
            "What is dropped is kept beside, in files that end with .damaged. Batches after a \
             damaged one stay, at their offsets. Refused while a broker has the folder.\n\
             Exit status: 0 if all is well or mended or told, 1 if damage stays, 2 if the folder \
             cannot be read, is none of a broker's or is in use.",
        )
        .arg(data())
        .arg(partition())
        .arg(Arg::new("yes").long("yes").action(ArgAction::SetTrue).help("Do it"));
    [check, repair]
}

/// Carries out one of the commands.
pub(crate) fn run(name: &str, arguments: &ArgMatches) -> ExitCode {
    let done = match name {
        "check" => check(arguments),
        _ => mend(arguments),
    };
    done.unwrap_or_else(|reason| {
        // Where standard error is gone, the exit status still tells.
        let _told = writeln!(io::stderr(), "ottla-broker: {reason}").is_ok();
        ExitCode::from(UNABLE)
    })
}

fn check(arguments: &ArgMatches) -> Result<ExitCode, String> {
    let (dir, found) = look(arguments)?;
    print(|out| {
        tell(out, dir, &found)?;
        if found.damages() > 0 {
            let dir = dir.display();
            writeln!(out, "`ottla-broker repair --data {dir}` tells what it would drop")?;
        }
        Ok(())
    })?;
    Ok(if found.damages() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn mend(arguments: &ArgMatches) -> Result<ExitCode, String> {
    let dir = folder(arguments)?;
    let _lock = DirectoryLock::acquire_to_mend(dir).map_err(|error| error.to_string())?;
    let (dir, found) = look(arguments)?;
    let steps = repair::plan(&found);
    let yes = arguments.get_flag("yes");
    print(|out| {
        tell(out, dir, &found)?;
        for step in &steps {
            writeln!(out, "{} {step}", if yes { "will" } else { "would" })?;
        }
        match (steps.is_empty(), yes) {
            (true, _) => writeln!(out, "nothing to repair"),
            (false, false) => writeln!(out, "nothing was changed; with --yes it is done"),
            (false, true) => Ok(()),
        }
    })?;
    if steps.is_empty() {
        let stays = found.damages() > 0;
        return Ok(if stays { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    if !yes {
        return Ok(ExitCode::SUCCESS);
    }
    repair::apply(&DiskFiles::new(), dir, &steps).map_err(|error| error.to_string())?;
    let (_, after) = look(arguments)?;
    print(|out| {
        writeln!(out, "done; {} steps", steps.len())?;
        tell(out, dir, &after)
    })?;
    Ok(if after.damages() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The folder that is meant, if a broker has ever kept anything there: "no damage" about a folder
/// that was named by mistake would be false comfort.
fn folder(arguments: &ArgMatches) -> Result<&Path, String> {
    let dir = arguments.get_one::<PathBuf>("data");
    let dir = dir.map(PathBuf::as_path).ok_or_else(|| "--data is missing".to_owned())?;
    let unreadable = |error| format!("the folder {} cannot be read: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let name = name.to_string_lossy();
        if name == META_PROPERTIES || parse_folder_name(&name).is_some() {
            return Ok(dir);
        }
    }
    let dir = dir.display();
    Err(format!(
        "{dir} is no data folder: it has neither {META_PROPERTIES} nor a partition's folder"
    ))
}

fn look(arguments: &ArgMatches) -> Result<(&Path, DirectoryCheck), String> {
    let dir = folder(arguments)?;
    let only = match arguments.get_one::<String>("partition") {
        None => None,
        Some(name) => {
            let parsed = parse_folder_name(name);
            Some(parsed.ok_or_else(|| format!("--partition {name}: expected TOPIC-N"))?)
        }
    };
    let found = check_directory(&DiskFiles::new(), dir, only).map_err(|error| error.to_string())?;
    if let (Some((topic, partition)), true) = (only, found.logs.is_empty()) {
        return Err(format!("{} has no folder {topic}-{partition}", dir.display()));
    }
    Ok((dir, found))
}

/// Says what every log holds, what is wrong, and how much of it.
fn tell(out: &mut dyn Write, dir: &Path, found: &DirectoryCheck) -> io::Result<()> {
    for log in &found.logs {
        writeln!(
            out,
            "{}-{}: {} segments, {} batches, {} records, {} bytes, log end {}",
            log.topic,
            log.partition,
            log.segments,
            log.batches,
            log.records,
            log.bytes,
            log.log_end
        )?;
    }
    for finding in found.all_findings() {
        writeln!(out, "{finding}")?;
    }
    let notes = found.all_findings().filter(|finding| finding.severity == Severity::Note).count();
    let stopped = if found.clean { "stopped cleanly" } else { "not stopped cleanly, or in use" };
    let (dir, damages) = (dir.display(), found.damages());
    writeln!(out, "{dir}: {damages} damaged, {notes} notes; {stopped}")
}

fn print(text: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    let mut out = io::stdout().lock();
    text(&mut out)
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot write to standard output: {error}"))
}
