//! Rules about the tree that no compiler checks: who imports whom, sizes, names, marks.

mod imports;
mod shape;
mod source;
mod suite;
#[cfg(test)]
mod tests;
mod text;
mod tree;

use std::fmt;

use crate::outcome::Done;
use crate::process::Run;
use crate::workspace::Workspace;

use source::Source;

/// One place where a rule is broken.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    what: String,
    /// Only said, not a failure.
    warning: bool,
}

impl Finding {
    fn new(source: &Source, line: usize, what: impl Into<String>) -> Self {
        Self { path: source.path.clone(), line, what: what.into(), warning: false }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.warning { "warning: " } else { "" };
        write!(f, "{}:{}: {word}{}", self.path, self.line, self.what)
    }
}

/// Holds the whole tree to the rules.
pub(crate) fn run(workspace: &Workspace) -> Done {
    let sources = sources(workspace)?;
    let mut findings: Vec<Finding> = sources.iter().flat_map(check_source).collect();
    findings.extend(suite::check(&sources));
    findings.extend(tree::check(workspace)?);
    for finding in &findings {
        println!("{finding}");
    }
    let broken = findings.iter().filter(|finding| !finding.warning).count();
    println!("{} files looked at, {broken} rules broken", sources.len());
    if broken > 0 { Err(format!("tidy: {broken} rules broken").into()) } else { Ok(()) }
}

fn check_source(source: &Source) -> Vec<Finding> {
    let mut findings = text::check(source);
    findings.extend(shape::check(source));
    findings.extend(imports::check(source));
    findings
}

/// Every text file that is committed, or would be.
fn sources(workspace: &Workspace) -> Done<Vec<Source>> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    let paths = Run::new("git").args(list).dir(&workspace.root).quiet().check()?;
    let mut sources = Vec::new();
    for path in paths {
        // Deleted but not yet committed, or not text: nothing to look at.
        let Ok(bytes) = std::fs::read(workspace.root.join(&path)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            sources.push(Source::new(path, text));
        }
    }
    Ok(sources)
}
