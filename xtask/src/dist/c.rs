//! The C library: `target/dist/c/{include,lib}`, static and shared, found by `pkg-config`.
//!
//! rustc hands the linker a version script of its own when it makes a shared library, so ours is
//! linked anew from the static one, with our symbol versions and SONAME.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::outcome::{Doing, Done, Stop};
use crate::process::Run;
use crate::tools::{self, BINUTILS, CC};
use crate::workspace::{Workspace, copy, fresh_dir, read, write};

use super::{copy_licences, library, release_dir};

/// Which symbols the shared library shows, and under which version.
const VERSION_SCRIPT: &str = "bindings-c/ottla.map";
/// What comes with a C compiler: libc, its parts of old, and the compiler's own.
const SYSTEM: [&str; 7] = ["-lc", "-lm", "-lpthread", "-ldl", "-lrt", "-lutil", "-lgcc_s"];
const HEADER: &str = "bindings-c/include/ottla.h";

/// Builds the library and gives its folder.
pub(crate) fn run(workspace: &Workspace) -> Done<PathBuf> {
    tools::need(&[&CC, &BINUTILS])?;
    let built = library(workspace, "ottla-c", "staticlib", &["--print", "native-static-libs"]);
    let system = system_libraries(&built.quiet().check()?)?;
    come_with_the_compiler(&system)?;
    let dist = workspace.dist("c");
    fresh_dir(&dist)?;
    let lib = dist.join("lib");
    fresh_dir(&lib.join("pkgconfig"))?;
    fresh_dir(&dist.join("include"))?;
    copy_licences(workspace, &dist)?;
    let header = workspace.root.join(HEADER);
    copy(&header, &dist.join("include/ottla.h"))?;
    let archive = lib.join("libottla.a");
    copy(&release_dir(workspace).join("libottla_c.a"), &archive)?;
    Run::new("strip").arg("--strip-debug").arg(&archive).quiet().check()?;
    let version = workspace.version()?;
    let shared = link_shared(workspace, &lib, &version, &system)?;
    write(&lib.join("pkgconfig/ottla.pc"), pkg_config(&version, &system))?;
    same_functions(&read(&header)?, &exported(&shared)?)?;
    Ok(dist)
}

/// The system's libraries that rustc says a static library needs.
fn system_libraries(lines: &[String]) -> Done<Vec<String>> {
    let said = lines.iter().find_map(|line| line.split_once("native-static-libs: "));
    let Some((_, said)) = said else {
        return Err("rustc did not say which libraries the static library needs".into());
    };
    let mut libraries: Vec<String> = Vec::new();
    for name in said.split_whitespace() {
        if !libraries.iter().any(|known| known == name) {
            libraries.push(name.to_owned());
        }
    }
    Ok(libraries)
}

/// Nobody has to install a library to build or to use ours: that is where others lose their users
/// (confluentinc/librdkafka#5135). The shared one is linked against these alone, and says so if a
/// symbol is missing.
fn come_with_the_compiler(libraries: &[String]) -> Done {
    match libraries.iter().find(|library| !SYSTEM.contains(&library.as_str())) {
        Some(other) => Err(format!("the C library needs {other} of the system").into()),
        None => Ok(()),
    }
}

fn link_shared(ws: &Workspace, lib: &Path, version: &str, system: &[String]) -> Done<PathBuf> {
    let soname = format!("libottla.so.{}", abi(version)?);
    let file = format!("libottla.so.{version}");
    let mut script = std::ffi::OsString::from("-Wl,--version-script=");
    script.push(ws.root.join(VERSION_SCRIPT));
    let link = Run::new("cc").args(["-shared", "-Wl,--gc-sections", "-Wl,-z,defs", "-Wl,-z,relro"]);
    let link = link.arg("-Wl,-z,now").arg(format!("-Wl,-soname,{soname}")).arg(script);
    let link = link.arg("-Wl,--whole-archive").arg(lib.join("libottla.a"));
    let link = link.arg("-Wl,--no-whole-archive").args(system);
    link.arg("-Wl,--strip-all").arg("-o").arg(lib.join(&file)).quiet().check()?;
    for name in [soname.as_str(), "libottla.so"] {
        symlink(&file, lib.join(name)).doing(format_args!("cannot link {name}"))?;
    }
    Ok(lib.join(file))
}

/// The part of a version that names the binary interface: `0.y` before 1.0, then the major.
fn abi(version: &str) -> Done<String> {
    let mut numbers = version.split('.');
    match (numbers.next(), numbers.next()) {
        (Some("0"), Some(minor)) => Ok(format!("0.{minor}")),
        (Some(major), Some(_)) => Ok(major.to_owned()),
        _ => Err(format!("not a version: {version}").into()),
    }
}

fn pkg_config(version: &str, system: &[String]) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/lib\n\
         \n\
         Name: ottla\n\
         Description: A client for the Apache Kafka protocol, with an embedded broker\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lottla\n\
         Libs.private: {}\n",
        system.join(" ")
    )
}

/// The functions that the shared library shows.
fn exported(library: &Path) -> Done<BTreeSet<String>> {
    let list = Run::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library);
    let lines = list.quiet().check()?;
    let symbol = |line: &String| {
        let mut words = line.split(' ');
        let name = words.next()?.split('@').next()?;
        matches!(words.next(), Some("T" | "D" | "B" | "R")).then(|| name.to_owned())
    };
    Ok(lines.iter().filter_map(symbol).collect())
}

/// What the header promises is in the library, and nothing else is shown.
fn same_functions(header: &str, exported: &BTreeSet<String>) -> Done {
    let declared = declared(header);
    let missing: Vec<&String> = declared.difference(exported).collect();
    let extra: Vec<&String> = exported.difference(&declared).collect();
    if missing.is_empty() && extra.is_empty() && !declared.is_empty() {
        return Ok(());
    }
    let what = format!("header and library differ: not in the library {missing:?}, ");
    Err(Stop::Failed(format!("{what}not in the header {extra:?}, {} declared", declared.len())))
}

/// The functions that a header declares: every `ottla_name(` outside comments and macros.
fn declared(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    let mut names = BTreeSet::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let line = line.split("//").next().unwrap_or_default();
        for (at, _) in line.match_indices('(') {
            let name: Vec<char> =
                line[..at].chars().rev().take_while(|&letter| in_name(letter)).collect();
            let name: String = name.into_iter().rev().collect();
            if name.starts_with("ottla_") {
                names.insert(name);
            }
        }
    }
    names
}

fn in_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_functions_are_found_and_comments_are_not() {
        let header = "/* calls ottla_old(x) */\n#define OTTLA(x) ottla_macro(x)\n\
            OTTLA_API ottla_error_t *ottla_producer_send(ottla_producer_t *p,\n    int n);\n\
            typedef void (*ottla_fn_t)(int); // ottla_not(1)\nvoid ottla_free(void *p);\n";
        let names: Vec<String> = declared(header).into_iter().collect();
        assert_eq!(names, ["ottla_free", "ottla_producer_send"]);
    }

    #[test]
    fn header_and_library_must_agree_both_ways() {
        let exported = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let header = "void ottla_a(void);\nvoid ottla_b(void);\n";
        assert!(same_functions(header, &exported(&["ottla_a", "ottla_b"])).is_ok());
        assert!(same_functions(header, &exported(&["ottla_a"])).is_err());
        assert!(same_functions(header, &exported(&["ottla_a", "ottla_b", "ottla_c"])).is_err());
        assert!(same_functions("", &exported(&[])).is_err());
    }

    #[test]
    fn before_one_the_minor_names_the_binary_interface() {
        assert_eq!(abi("0.1.0").unwrap(), "0.1");
        assert_eq!(abi("2.3.4").unwrap(), "2");
        assert!(abi("3").is_err());
    }

    #[test]
    fn rustc_tells_the_system_libraries_once_each() {
        let lines = ["note: native-static-libs: -lgcc_s -lc -lm -lc".to_owned()];
        assert_eq!(system_libraries(&lines).unwrap(), ["-lgcc_s", "-lc", "-lm"]);
        assert!(system_libraries(&[]).is_err());
    }

    #[test]
    fn a_c_compiler_is_all_that_the_library_needs_of_a_system() {
        let needs = |library: &str| ["-lc".to_owned(), library.to_owned()];
        assert!(come_with_the_compiler(&needs("-lgcc_s")).is_ok());
        for other in ["-lssl", "-lzstd", "-lz", "-lstdc++"] {
            assert!(come_with_the_compiler(&needs(other)).is_err(), "{other}");
        }
    }
}
