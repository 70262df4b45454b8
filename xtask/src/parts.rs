//! `cargo xtask test`: the tests of each part, each language by its own runner.

use std::path::Path;
use std::time::Duration;

use crate::dist::python::Venv;
use crate::outcome::{Count, Done, Report, Stop, in_ci};
use crate::process::Run;
use crate::results;
use crate::tools::{self, CC, CXX, NODE, NPM, PKG_CONFIG, PYTHON, VALGRIND};
use crate::workspace::{Workspace, copy_dir, files_ending, write};
use crate::{demo, dist, gallery, quickstart, soak};

/// Valgrind makes a program some thirty times slower.
const VALGRIND_LIMIT: Duration = Duration::from_mins(10);

/// Longest the simulator may take with its build.
const SIM_LIMIT: Duration = Duration::from_mins(30);

type Part = fn(&Workspace) -> Done<Count>;

/// Every part, in the order in which `cargo xtask test` runs them.
const PARTS: &[(&str, Part)] = &[
    ("rust", rust),
    ("loom", loom),
    ("sim", sim),
    ("python", python),
    ("node", node),
    ("c", c),
    ("quickstart", |workspace| Ok(quickstart::run(workspace))),
    ("demo", demo::test),
    ("soak", soak::test),
    ("gallery", gallery::run),
];

/// Runs one part, or all.
pub(crate) fn run(workspace: &Workspace, report: &mut Report, wanted: Option<&str>) -> Done {
    let fits = |name: &str| wanted.is_none_or(|wanted| wanted == name);
    if !PARTS.iter().any(|(name, _)| fits(name)) {
        let names: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
        return Err(format!("no such part; there are: {}", names.join(", ")).into());
    }
    for (name, part) in PARTS.iter().filter(|(name, _)| fits(name)) {
        report.tests(name, || part(workspace));
    }
    Ok(())
}

fn rust(workspace: &Workspace) -> Done<Count> {
    let finished = workspace.cargo("test").args(["--no-fail-fast"]).finish()?;
    results::settle(&finished, results::cargo_test)
}

/// What the client's threads share, in every order of their steps.
fn loom(workspace: &Workspace) -> Done<Count> {
    let run = workspace.cargo("test").args(["--package", "ottla", "--lib", "state::orders"]);
    let run = run.env("RUSTC_WORKSPACE_WRAPPER", workspace.compiler("ottla_loom")?);
    let finished = run.finish()?;
    results::settle(&finished, results::cargo_test)
}

/// Client and broker in simulated storms: a thousand seeds, by optimised code that still asserts.
fn sim(workspace: &Workspace) -> Done<Count> {
    let run = workspace.cargo("test").args(["--profile", "sim", "--no-fail-fast"]);
    let finished = run.args(["--package", "ottla-testkit"]).limit(SIM_LIMIT).finish()?;
    results::settle(&finished, results::cargo_test)
}

/// The wheel in a fresh virtual environment, with no path into the tree but to the tests.
fn python(workspace: &Workspace) -> Done<Count> {
    tools::need(&[&PYTHON])?;
    let wheel = dist::python::run(workspace)?;
    let scratch = workspace.scratch("python")?;
    let venv = Venv::fresh(&scratch.path().join("venv"), &[])?;
    let requirements = workspace.root.join("bindings-python/tests/requirements.txt");
    let (wheel, listed) = (wheel.to_string_lossy(), requirements.to_string_lossy());
    venv.install(&[&wheel, "-r", &listed])?;
    copy_dir(&workspace.root.join("bindings-python/tests"), &scratch.path().join("tests"), &[])?;
    let pytest = venv.run("python").args(["-m", "pytest", "-p", "no:cacheprovider", "tests"]);
    let finished = pytest.dir(scratch.path()).finish()?;
    results::settle(&finished, results::pytest)
}

/// The tarball in an empty npm project, beside the tests and what they need.
fn node(workspace: &Workspace) -> Done<Count> {
    tools::need(&[&NODE, &NPM])?;
    let tarball = dist::node::run(workspace)?;
    let scratch = workspace.scratch("node")?;
    copy_dir(&workspace.root.join("bindings-node/test"), scratch.path(), &["node_modules"])?;
    npm_project(scratch.path(), &tarball)?;
    let tests = files_ending(scratch.path(), &[".test.js", ".test.mjs", ".test.cjs"])?;
    let run = Run::new("node").args(["--test", "--test-reporter=spec"]).args(tests);
    let finished = run.dir(scratch.path()).finish()?;
    results::settle(&finished, results::node_test)
}

/// Makes `dir` a project that has our package, and first what its own lock file names.
pub(crate) fn npm_project(dir: &Path, tarball: &Path) -> Done {
    let npm = |command: &str| {
        let quiet = ["--ignore-scripts", "--no-audit", "--no-fund"];
        Run::new("npm").arg(command).args(quiet).dir(dir).quiet()
    };
    if dir.join("package-lock.json").is_file() {
        npm("ci").check()?;
    } else {
        write(&dir.join("package.json"), "{ \"name\": \"scratch\", \"private\": true }\n")?;
    }
    npm("install").arg("--no-save").arg("--no-package-lock").arg(tarball).check()?;
    Ok(())
}

/// Programs of the C tests that also run under valgrind: who owns what, and a record's whole way.
const WATCHED: &[&str] = &["lifetimes", "round_trip"];

/// What compilers take of neither a test nor the header: a header, above all, that says a thing twice.
const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wredundant-decls"];

/// Each C program against the library as installed, shared and static, and the header as C++.
fn c(workspace: &Workspace) -> Done<Count> {
    tools::need(&[&CC, &CXX, &PKG_CONFIG])?;
    let dist = dist::c::run(workspace)?;
    let scratch = workspace.scratch("c")?;
    let tests = workspace.root.join("bindings-c/tests");
    let header = Run::new("c++").args(["-std=c++11", "-fsyntax-only"]).args(STRICT);
    let header = header.arg("-I").arg(dist.join("include")).arg(tests.join("header.cpp"));
    let outcome = header.check().map(|_| ()).map_err(|stop| stop.to_string());
    let mut total = Count::check("ottla.h as C++", outcome);
    for source in files_ending(&tests, &[".c"])? {
        for linked in [Linked::Shared, Linked::Static] {
            let program = compile_c(&dist, &source, scratch.path(), linked)?;
            let finished = Run::new(&program).dir(scratch.path()).finish()?;
            total += results::settle(&finished, results::plain)?;
            let watched = WATCHED.iter().any(|name| source.ends_with(format!("{name}.c")));
            if watched && linked == Linked::Shared {
                total += under_valgrind(&program)?;
            }
        }
    }
    Ok(total)
}

/// A program's memory: nothing read or written that is not there, nothing lost.
fn under_valgrind(program: &Path) -> Done<Count> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = format!("{name} under valgrind");
    match tools::need(&[&VALGRIND]) {
        Err(stop @ Stop::Missing { .. }) if !in_ci() => {
            println!("skipped {name}: {stop}");
            return Ok(Count { skipped: 1, ..Count::default() });
        }
        needed => needed?,
    }
    // What is only possibly lost are threads of the last client, which end in the background.
    let run = Run::new("valgrind").args(["-q", "--error-exitcode=9", "--leak-check=full"]);
    let run = run.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
    let outcome = run.arg(program).limit(VALGRIND_LIMIT).check();
    Ok(Count::check(&name, outcome.map(|_| ()).map_err(|stop| stop.to_string())))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linked {
    Shared,
    Static,
}

/// Builds one C program with nothing but what `pkg-config` tells.
pub(crate) fn compile_c(
    dist: &Path,
    source: &Path,
    into: &Path,
    linked: Linked,
) -> Done<std::path::PathBuf> {
    let ask = Run::new("pkg-config").args(["--cflags", "--libs", "ottla"]);
    let ask = if linked == Linked::Static { ask.arg("--static") } else { ask };
    let flags = ask.env("PKG_CONFIG_PATH", dist.join("lib/pkgconfig")).quiet().check()?;
    let flags = flags.first().ok_or_else(|| Stop::from("pkg-config said nothing"))?;
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let program = into.join(format!("{stem}-{linked:?}").to_lowercase());
    let cc = Run::new("cc").args(["-std=c99", "-g", "-D_POSIX_C_SOURCE=200809L", "-pthread"]);
    let cc = cc.args(STRICT).arg("-o").arg(&program);
    let cc = cc.arg(source);
    let cc = match linked {
        Linked::Shared => {
            let mut path = std::ffi::OsString::from("-Wl,-rpath,");
            path.push(dist.join("lib"));
            cc.args(flags.split_whitespace()).arg(path)
        }
        Linked::Static => {
            let rest = flags.split_whitespace().filter(|flag| *flag != "-lottla");
            cc.arg(dist.join("lib/libottla.a")).args(rest)
        }
    };
    let include = source.parent().unwrap_or(source);
    cc.arg("-I").arg(include).check()?;
    Ok(program)
}
